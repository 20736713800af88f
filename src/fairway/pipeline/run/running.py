"""A run: whole archives through all stages, into a folder of tables.

`run` writes one table after the other; later steps read it from its files. So memory is bounded by what Spark is given,
whatever the size of the input, and a killed run, started again, continues with the table that it was writing. A run
with other sources, options or keys begins again. At the end `Balance` accounts for every row of the input.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from fairway.errors import ConfigurationError
from fairway.options import Profile
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.location import local_path
from fairway.pipeline.run.failures import named_failures
from fairway.pipeline.run.folder import RunFolder
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.progress import Progress, Steps
from fairway.pipeline.run.sources import RunSource, parse_sources
from fairway.pipeline.run.steps import TableStep, steps
from fairway.pipeline.run.summary import Balance, RunSummary, balance_json
from fairway.pipeline.session import SHORT_JOB_BYTES, lent_settings, session_or_own
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.pipeline.stages.sds_ordered import MAX_CHANNEL_BYTES
from fairway.pipeline.tables import table_named

_PARQUET_OPTIONS: Final = {
    # By default 128 MiB, which every task that writes holds in memory, and every one that reads holds again.
    "parquet.block.size": "33554432",
    # How full a page or a row group is, is looked at first after so many rows: by default 100, of a megabyte each.
    "parquet.page.size.row.check.min": "4",
    "parquet.block.size.row.check.min": "4",
    # Level 3, the default, takes twice the time and makes payloads no smaller: they are bloom filters and ciphertext.
    "parquet.compression.codec.zstd.level": "1",
}
_SETTINGS: Final = {
    # Rows that the reader of Parquet holds at once: by default 4,096, which of segments would be 600 MB a task.
    "spark.sql.parquet.columnarReaderBatchSize": "256",
}
_PAYLOAD_SETTINGS: Final = {
    # Whole messages have a megabyte and more: their reader takes one row at a time.
    "spark.sql.parquet.enableVectorizedReader": "false",
}
# What Spark says without the jars of a format, and Java with those for another version of Spark.
_WRONG_JARS: Final = (
    "DATA_SOURCE_NOT_FOUND",
    "NoSuchMethodError",
    "IncompatibleClassChangeError",
    "AbstractMethodError",
)


def run(
    sources: Sequence[str],
    out: str | PathLike[str],
    *,
    profile: Profile | None = None,
    keys: ChannelKeys | None = None,
    format: str = "parquet",  # noqa: A002 - Spark's own name for it
    blooms: bool = False,
    epoch_ms: int = 600_000,
    rate_limit: int | None = None,
    parity_rate: float = ARCHIVE_SEGMENTATION.parity_rate,
    max_channel_bytes: int = MAX_CHANNEL_BYTES,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """Write all tables (`fairway.pipeline.tables`) of some sources into a folder, and return the summary.

    ``sources`` are URIs such as ``sqlite:store.db``; for the options see `RunOptions`. Uses ``spark`` as it is, or the
    session that is active, or one of its own that ends with the run. On a cluster ``out`` must be a path that the
    driver and all executors share. Raises `ConfigurationError` for invalid sources, options or an unusable folder, the
    errors of a source that cannot be read, `StoreFullError` if there is no room for the tables, `StorageError` if they
    cannot be written for another reason, and `PipelineError` for other errors of Spark.
    """
    options = RunOptions(
        profile=profile,
        format=format,
        blooms=blooms,
        epoch_ms=epoch_ms,
        rate_limit=rate_limit,
        parity_rate=parity_rate,
        max_channel_bytes=max_channel_bytes,
    )
    return run_with(options, sources, out, keys=keys, spark=spark, progress=progress)


def run_with(
    options: RunOptions,
    sources: Sequence[str],
    out: str | PathLike[str],
    *,
    keys: ChannelKeys | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """Do what `run` does, with the options as one value."""
    place = local_path(out, "--out")
    parsed = parse_sources(sources)
    described = [source.described() for source in parsed]
    with (
        closing(RunFolder.open_for(place, described, options.as_json(), keys)) as folder,
        session_or_own(spark, "fairway pipeline run", short_job=is_small(parsed)) as session,
        named_failures(folder.path),
    ):
        return _Run(session, folder, parsed, options, keys).work(progress)


def is_small(sources: Sequence[RunSource]) -> bool:
    """Return whether all sources are files, and small ones: a run over them is a short job (`create_session`)."""
    sizes = [source.size_bytes() for source in sources]
    return all(sizes) and sum(sizes) < SHORT_JOB_BYTES


@dataclass(slots=True)
class _Run:
    """One attempt at a run."""

    spark: SparkSession
    folder: RunFolder
    sources: tuple[RunSource, ...]
    options: RunOptions
    keys: ChannelKeys | None

    def work(self, progress: Progress | None) -> RunSummary:
        began_s = time.monotonic()
        planned = {step.name: step for step in steps(self.options)}
        tables = [name for name, step in planned.items() if not step.work]
        resumed = sum(map(self.folder.is_whole, tables))
        taken = Steps(folder=self.folder, names=tuple(planned), progress=progress)
        for step in planned.values():
            if step.work and not self.folder.is_whole(step.name) and self._is_done_with(step):
                continue
            taken.take(step.name, partial(self._write, step), work=step.work)
            self._drop_what_is_done(planned)
        balance = self._balance()
        seconds = round(time.monotonic() - began_s, 3)
        self.folder.finish({"balance": balance_json(balance), "seconds": seconds})
        return RunSummary(
            folder=self.folder.path,
            tables=tuple(self.folder.results[name] for name in tables),
            balance=balance,
            seconds=seconds,
            resumed=resumed,
        )

    def table(self, name: str) -> DataFrame:
        """Return a complete table."""
        result = self.folder.results[name]
        place = str(self.folder.place_of(name, work=result.work))
        if result.work or self.options.format == "parquet":
            known = {step.name: step.schema for step in steps(self.options)}
            return self.spark.read.schema(known[name]).parquet(place)
        return self.spark.read.format(self.options.format).load(place)

    def _write(self, step: TableStep, place: Path) -> int | None:
        """Write a table; return its rows where they do not stand in the footers of its files."""
        kind = "parquet" if step.work else self.options.format
        with lent_settings(self.spark, _SETTINGS | (_PAYLOAD_SETTINGS if step.reads_payloads else {})):
            table = step.make(self)
            if not step.work:
                table = table.select(*table_named(step.name).columns)
            writer = table.write.format(kind).options(**_PARQUET_OPTIONS)
            if not step.work:
                writer = writer.option("compression", "zstd")
            try:
                writer.save(str(place))
                return None if kind == "parquet" else self.spark.read.format(kind).load(str(place)).count()
            except Exception as error:
                if kind != "parquet" and any(sign in str(error) for sign in _WRONG_JARS):
                    raise ConfigurationError(
                        f"this Spark cannot write {kind}: start the session with its jars (spark.jars.packages), those "
                        f"made for Spark {self.spark.version}, or leave --format at parquet"
                    ) from error
                raise

    def _is_done_with(self, step: TableStep) -> bool:
        return all(map(self.folder.is_whole, step.needed_by))

    def _drop_what_is_done(self, planned: Mapping[str, TableStep]) -> None:
        for name, step in planned.items():
            if step.work and self.folder.is_whole(name) and self._is_done_with(step):
                self.folder.drop_work(name)

    def _balance(self) -> Balance:
        results = self.folder.results
        rows_in = self._sum("waku_messages", F.col("copies"))
        sds = self.table("sds_messages")
        kinds = {row.kind: row.messages for row in _counted(sds.where("sighting = 1"))}
        return Balance(
            rows_in=rows_in,
            duplicates=rows_in - results["waku_messages"].rows,
            quarantined=results["quarantine"].rows,
            retransmissions=results["sds_messages"].rows - sum(kinds.values()),
            sync=kinds.get("sync", 0),
            delivered=self._sum("delivered", F.size("sds_ids")),
            incomplete=self._sum("incomplete", F.col("held")),
        )

    def _sum(self, name: str, figure: Any) -> int:
        row = self.table(name).agg(F.coalesce(F.sum(figure), F.lit(0)).alias("total")).first()
        return 0 if row is None else int(row.total)


def _counted(messages: DataFrame) -> list[Any]:
    return messages.groupBy("kind").agg(F.count("*").alias("messages")).collect()
