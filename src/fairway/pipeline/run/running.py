"""A run: whole archives through all stages, into a folder of tables.

`run` carries out a few jobs of Spark, one after the other. Each writes several tables, and reads those of earlier jobs
from their files. So memory is bounded by the memory of Spark, whatever the size of the input. A killed run that is
started again continues with its unfinished job. A run with other sources, options or keys begins again. At the end the
tables are committed, and `Balance` accounts for every row of the input. Until then readers find the previous run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from fairway.options import Profile
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.attempt import SETTINGS, Attempt, buckets_for
from fairway.pipeline.run.failures import named_failures
from fairway.pipeline.run.folder import HeldRun, RunFolder, holds_run
from fairway.pipeline.run.growth import WholeRunNeeded
from fairway.pipeline.run.growth.growing import grow, unchanged
from fairway.pipeline.run.growth.held_rows import HeldRows
from fairway.pipeline.run.growth.new_rows import new_rows
from fairway.pipeline.run.ingesting import at_sources
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.progress import Progress
from fairway.pipeline.run.sources import RunSource, parse_sources
from fairway.pipeline.run.summary import RunSummary
from fairway.pipeline.session import cores_of, session_or_own
from fairway.pipeline.sources.open_source import all_footers
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.sources.waku_messages import Selection
from fairway.pipeline.stages.ordered_logs import MAX_CHANNEL_BYTES
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION


def run(
    sources: Sequence[str],
    out: str | PathLike[str],
    *,
    profile: Profile | None = None,
    keys: ChannelKeys | None = None,
    blooms: bool = False,
    epoch_ms: int = 600_000,
    rate_limit: int | None = None,
    parity_rate: float = ARCHIVE_SEGMENTATION.parity_rate,
    max_channel_bytes: int = MAX_CHANNEL_BYTES,
    partitions: int | None = None,
    selection: Selection | None = None,
    channel_topics: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """Write all tables (`fairway.pipeline.tables`) of some sources into a folder, and return the summary.

    ``sources`` are URIs such as ``sqlite:store.db``; for the options see `RunOptions`. Make a ``selection`` with
    `fairway.pipeline.sources.options.selection_of`. It works in a clone of ``spark``, else of the active session, else
    in a session of its own that it stops at the end. ``out`` is a path, or a URI such as ``s3://bucket/run``
    (`Location`). On a cluster the driver and all executors must share the path.

    Raises `ConfigurationError` for invalid sources, options or an unusable folder, and the errors of an unreadable
    source. Raises `StoreFullError` if there is no room for the tables, `StorageError` if writing them fails otherwise,
    and `PipelineError` for other errors of Spark.
    """
    options = RunOptions(
        profile=profile,
        blooms=blooms,
        epoch_ms=epoch_ms,
        rate_limit=rate_limit,
        parity_rate=parity_rate,
        max_channel_bytes=max_channel_bytes,
        partitions=partitions,
        selection=selection or Selection(),
        channel_topics=channel_topics or {},
    )
    return run_with(options, sources, out, keys=keys, spark=spark, progress=progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The rows that a stream recorded, as the source of a run."""

    uri: str
    """The recorded rows, as a source that does not change."""
    described: tuple[dict[str, Any], ...]
    """The archives of the rows."""
    stores: tuple[str, ...]
    """The names of these archives, also of an empty one."""
    through: int
    """The last micro-batch."""
    rows_after: Callable[[int, Sequence[str] | None], pa.Table]
    """Function that returns the rows of the micro-batches after a given one, with some columns or all."""

    def as_sources(self) -> list[dict[str, Any]]:
        """Return the descriptions of the archives, which change with every recorded micro-batch."""
        return [told | {"fingerprint": self.through} for told in self.described]


def run_with(
    options: RunOptions,
    sources: Sequence[str] | Recorded,
    out: str | PathLike[str],
    *,
    keys: ChannelKeys | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
    before_spark: Callable[[], None] | None = None,
) -> RunSummary:
    """Do the same as `run`, with the options as one value.

    ``before_spark`` is called before a session is started; a run that only adds new rows starts none. A stream passes
    the rows that it `Recorded`, and has already locked the folder.
    """
    recorded = sources if isinstance(sources, Recorded) else None
    given = parse_sources([sources.uri] if isinstance(sources, Recorded) else sources)
    wanted = at_sources(options.selection, keys)
    parsed = tuple(source.listed(wanted) for source in given)
    described = [source.described() for source in parsed] if recorded is None else recorded.as_sources()
    labels = recorded.stores if recorded is not None else [source.label for source in parsed if source.label]
    is_new = not holds_run(out)
    if is_new:
        parsed = tuple(source.checked() for source in parsed)
    opened = RunFolder.open_for(out, described, options.as_json(), keys, of_stream=recorded is not None)
    with closing(opened) as folder:
        if folder.held is not None:
            new = partial(rows_since, folder.held, parsed, described, recorded)
            is_known = recorded is not None or all(source.fingerprint() for source in parsed)
            try:
                with named_failures(folder.place):
                    done = (
                        unchanged(folder)
                        if folder.held.has_these_sources and is_known
                        else grow(folder, new, options, keys, stores=labels)
                    )
                    return replace(done, selection=options.selection)
            except WholeRunNeeded as needed:
                parsed = tuple(source.checked() for source in parsed)
                folder.begin_anew(str(needed))
        elif not is_new:
            parsed = tuple(source.checked() for source in parsed)
        if before_spark is not None:
            before_spark()
        with (
            named_failures(folder.place),
            session_or_own(spark, "fairway pipeline run", little_java=True, settings=SETTINGS) as session,
        ):
            parsed = tuple(_with_all_footers(session, source) for source in parsed)
            attempt = Attempt(
                spark=session,
                folder=folder,
                sources=parsed,
                options=options,
                keys=keys,
                buckets=buckets_for(parsed, cores_of(session), options.partitions),
                stores=labels,
            )
            return replace(attempt.work(progress), selection=options.selection)


def _with_all_footers(spark: SparkSession, source: RunSource) -> RunSource:
    scan = source.scan()
    return replace(source, footers=all_footers(spark, scan)) if isinstance(scan, ParquetScan) else source


def rows_since(
    held: HeldRun,
    sources: Sequence[RunSource],
    described: Sequence[Mapping[str, Any]],
    recorded: Recorded | None,
    waku_messages: HeldRows,
    most_rows: int,
    wanted: Callable[[pa.Table], pa.Table],
) -> pa.Table:
    """Return the wanted rows that are new since a finished run; raise `WholeRunNeeded` if they are too many."""
    known = held.manifest["sources"]
    if recorded is None:
        given = list(zip(sources, described, strict=True))
        found = new_rows(known, given, waku_messages, most_rows, wanted)
        for source in sources:
            source.check_unchanged()
        return found
    after = int(known[0]["fingerprint"])
    if recorded.rows_after(after, ["timestamp_ns"]).num_rows > most_rows:
        raise WholeRunNeeded("more came than pays to add")
    return wanted(recorded.rows_after(after, None))
