"""A run: archives through a few jobs of Spark, into a folder of tables, resumable job by job.

::

    sources -> jobs, several tables each -> folder: tables/ and run.json -> reading, without Spark
                growth, without Spark    ->

`run` (in `running`) carries out the jobs, or adds new rows. Streams and `send` use some of its parts too:

- `options`: the options of the tables; `sources`: the URIs of archives, and whether their files have changed
- `jobs`: the tables that each job writes and reads; `attempt`: runs the unfinished jobs; `growth`: adds new rows
- `folder`: the versions of the tables that make a run; `reading`: the tables of a finished run, with or without Spark
- `progress`: the events of a run; `summary`: its tables, and the balance of rows
- `failures`: the `FairwayError` for an error of Spark
"""

from __future__ import annotations

from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.running import run, run_with

__all__ = ["RunOptions", "RunTables", "run", "run_with"]
