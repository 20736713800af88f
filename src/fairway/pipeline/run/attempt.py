"""`Attempt`: one attempt at a run: carries out the unfinished jobs, and adds up the balance."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame

from fairway.pipeline.exchange import notes_of
from fairway.pipeline.run.failures import is_of_changed_rows
from fairway.pipeline.run.folder import TableResult
from fairway.pipeline.run.jobs import Job, Materials, Notes, jobs
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.progress import Progress, Steps
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.run.summary import Balance, RunSummary, balance_json, balance_of
from fairway.pipeline.tables import TABLES
from fairway.pipeline.tables.delta import TableFile
from fairway.pipeline.tables.files import WORK_TABLES, told_file

BUCKET_BYTES: Final = 67_108_864
"""Bytes of the sources in one bucket, which a task holds in memory, partly twice."""
_SMALL_BUCKET_BYTES: Final = 4_194_304
_FEW_BUCKETS: Final = 16
"""Least number of buckets, unless they would be smaller than `_SMALL_BUCKET_BYTES`; it keeps all cores busy."""
_BUCKETS_OF_UNKNOWN: Final = 64
"""Buckets for sources of unknown size. A bucket that does not fit in memory is processed in pieces."""
_UNKNOWN_PER_CORE: Final = 4
_MOST_BUCKETS: Final = 2_048
"""Most blobs that a task cuts its rows into; with more they would be too small."""

_ATTEMPTS: Final = 4
"""Attempts at a job while a source changes, as Spark's attempts at a task."""
_BATCH_BYTES: Final = 4_194_304
"""Largest batch from Spark to a worker, unless one blob alone is larger."""

SETTINGS: Final = {
    # A row may be a blob of many megabytes. Java doubles the memory of a growing batch, and copies its contents.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(_BATCH_BYTES),
    # Rows that the Parquet reader holds at once: the default, 4,096 segments, would be 600 MB for each task.
    "spark.sql.parquet.columnarReaderBatchSize": "256",
}
"""The settings of Spark SQL for a run."""


def step_names(options: RunOptions) -> tuple[str, ...]:
    """Return the names of the steps of a run, in their order."""
    return tuple(job.name for job in jobs(options))


def buckets_for(sources: Sequence[RunSource], cores: int, wanted: int | None = None) -> int:
    """Return the number of buckets of tables: ``wanted``, or a number from the sources and ``cores``."""
    if wanted is not None:
        return min(_MOST_BUCKETS, wanted)
    sizes = [source.size_bytes() for source in sources]
    size = sum(sizes)
    least = 1 if all(sizes) else max(_BUCKETS_OF_UNKNOWN, _UNKNOWN_PER_CORE * cores)
    few = min(_FEW_BUCKETS, -(-size // _SMALL_BUCKET_BYTES))
    return min(_MOST_BUCKETS, max(least, few, -(-size // BUCKET_BYTES)))


class Attempt(Materials):
    """One attempt at a run."""

    def work(self, progress: Progress | None) -> RunSummary:
        """Carry out all unfinished jobs, and finish the run."""
        began_s = time.monotonic()
        planned = tuple(jobs(self.options))
        finished = [job for job in planned if self.folder.facts(job.name) is not None]
        resumed = sum(name not in WORK_TABLES for job in finished for name in job.writes)
        steps = Steps(folder=self.folder, names=step_names(self.options), progress=progress)
        for place, job in enumerate(planned):
            if job in finished:
                steps.keep(job.name, job.writes)
                self._drop_work(planned[place + 1 :])  # an earlier attempt may have ended before this
                continue
            steps.begin(job.name)
            results = self._taken(job)
            steps.end(job.name, results)
            self._drop_work(planned[place + 1 :])
        balance = self._balance()
        seconds = round(time.monotonic() - began_s, 3)
        self.folder.finish({"balance": balance_json(balance), "seconds": seconds})
        return RunSummary(
            folder=self.folder.place,
            tables=tuple(self.folder.results[table.name] for table in TABLES),
            balance=balance,
            seconds=seconds,
            resumed=resumed,
            because=self.folder.whole_because,
        )

    def _taken(self, job: Job) -> tuple[TableResult, ...]:
        """Carry out a job, again if a source changed between two attempts of Spark at a task."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._take(job)
            except Exception as error:
                if not is_of_changed_rows(error):
                    raise
        return self._take(job)

    def _take(self, job: Job) -> tuple[TableResult, ...]:
        """Carry out a job, and add its tables to the folder."""
        began_s = time.monotonic()
        notes: Notes = self._notes(job.frame(self))
        for again in job.again:
            if (found := again(self, notes)) is not None:
                stay, frame = found
                notes = [*stay, *self._notes(frame)]
        files = defaultdict[str, list[TableFile]](list)
        for told in notes:
            if "table" in told:
                files[told["table"]].append(told_file(told))
        facts = job.facts(self, [told for told in notes if "table" not in told])
        seconds = round(time.monotonic() - began_s, 3)
        results = tuple(TableResult.of(name, files[name], seconds, work=name in WORK_TABLES) for name in job.writes)
        self.folder.finish_job(job.name, results, facts)
        return results

    def _notes(self, frame: DataFrame) -> list[dict[str, Any]]:
        return notes_of(row.blob for row in frame.select("blob").collect())

    def _drop_work(self, later: Sequence[Job]) -> None:
        """Remove the work tables that no job in ``later`` reads."""
        needed = {name for job in later for name in job.reads}
        for name in WORK_TABLES:
            if name not in needed and self.folder.is_whole(name):
                self.folder.drop_work(name)

    def _balance(self) -> Balance:
        return balance_of(self.told("statistics"), {name: result.rows for name, result in self.folder.results.items()})
