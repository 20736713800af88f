"""A run: archives through all stages, into a folder of tables, resumable table by table.

::

    sources -> steps, one table each -> folder: tables/ and manifest.json -> reading, without Spark

`run` carries out all steps (`running`). Streams and `send` use some of its parts too:

- `options`: the options of the tables; `sources`: the URIs of archives, and whether their files have changed
- `steps`: the stage and the inputs of each table; `layout`: how sorted tables are spread over files
- `folder`: the tables and the manifest; `reading`: the tables of a finished run, with or without Spark
- `progress`: the events of a run; `summary`: its tables, and the balance of rows
- `failures`: the `FairwayError` for an error of Spark
"""

from __future__ import annotations

from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.running import run, run_with

__all__ = ["RunOptions", "RunTables", "run", "run_with"]
