"""A run: archives through all stages, into a folder of tables, resumable table by table.

::

    sources -> steps, one table each -> folder: tables/ and manifest.json -> reading, without Spark

`run` does it all (`running`). Its parts, which streams and batches to send share where they do the same:

- `options`: what decides about the tables; `sources`: the URIs of archives, and whether they are what they were
- `steps`: which table is made from which, by which stage; `layout`: how sorted tables are spread over files
- `folder`: tables, the manifest and their invariant; `reading`: the tables of a finished run, without Spark
- `progress`: what it tells while it works; `summary`: the tables and the balance of rows at its end
- `failures`: what ended a run, in words of the house
"""

from __future__ import annotations

from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.running import is_small, run, run_with

__all__ = ["RunOptions", "is_small", "run", "run_with"]
