"""A run: whole archives through all stages, into a folder of tables.

`run` takes a few jobs of Spark, one after the other; each writes several tables and reads those of earlier jobs from
their files. So memory is bounded by what Spark is given, whatever the size of the input, and a killed run, started
again, continues with the job that it was in. A run with other sources, options or keys begins again. At the end
`Balance` accounts for every row of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from os import PathLike

from pyspark.sql import SparkSession

from fairway.options import Profile
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.attempt import Attempt
from fairway.pipeline.run.failures import named_failures
from fairway.pipeline.run.folder import RunFolder, holds_run
from fairway.pipeline.run.growth.growing import grow, unchanged
from fairway.pipeline.run.growth.whole_run import WholeRunNeeded
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.progress import Progress
from fairway.pipeline.run.sources import RunSource, check_readable, parse_sources
from fairway.pipeline.run.summary import RunSummary
from fairway.pipeline.session import session_or_own
from fairway.pipeline.sources.open_source import scan_for_arrow
from fairway.pipeline.sources.waku_messages import Selection
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.pipeline.stages.sds_ordered import MAX_CHANNEL_BYTES


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
    selection: Selection | None = None,
    channel_topics: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """Write all tables (`fairway.pipeline.tables`) of some sources into a folder, and return the summary.

    ``sources`` are URIs such as ``sqlite:store.db``; for the options see `RunOptions`. A ``selection`` is best made by
    `fairway.pipeline.sources.options.selection_of`. Uses ``spark`` as it is, or the
    session that is active, or one of its own that ends with the run. ``out`` is a path, on a
    cluster one that the driver and all executors share, or a URI such as ``s3://bucket/run`` (`Location`). Raises
    `ConfigurationError` for invalid sources, options or an unusable folder, the errors of a source that cannot be read,
    `StoreFullError` if there is no room for the tables, `StorageError` if they cannot be written for another reason,
    and `PipelineError` for other errors of Spark.
    """
    options = RunOptions(
        profile=profile,
        format=format,
        blooms=blooms,
        epoch_ms=epoch_ms,
        rate_limit=rate_limit,
        parity_rate=parity_rate,
        max_channel_bytes=max_channel_bytes,
        selection=selection or Selection(),
        channel_topics=channel_topics or {},
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
    before_spark: Callable[[], None] | None = None,
) -> RunSummary:
    """Do what `run` does, with the options as one value.

    ``before_spark`` is called before a session is started: a run that only takes in what is new needs none.
    """
    parsed = parse_sources(sources)
    described = [source.described() for source in parsed]
    if not holds_run(out):
        check_readable(parsed)
    opened = RunFolder.open_for(out, described, options.as_json(), keys, holds_finished=True)
    with closing(opened) as folder:
        if folder.held is not None:
            try:
                with named_failures(folder.place):
                    return replace(_kept(folder, parsed, options, keys), selection=options.selection)
            except WholeRunNeeded as needed:
                folder.begin_anew(str(needed))
        if before_spark is not None:
            before_spark()
        with (
            session_or_own(spark, "fairway pipeline run", little_java=True) as session,
            named_failures(folder.place),
        ):
            summary = Attempt(session, folder, parsed, options, keys).work(progress)
            return replace(summary, selection=options.selection)


def _kept(folder: RunFolder, sources: Sequence[RunSource], options: RunOptions, keys: ChannelKeys | None) -> RunSummary:
    """Return the finished run in a folder with what is new in its sources, or raise `WholeRunNeeded`."""
    assert folder.held is not None, "called with a finished run"
    is_known = all(source.fingerprint() or scan_for_arrow(source.uri, source.label) is None for source in sources)
    if folder.held.has_these_sources and is_known:
        return unchanged(folder)
    return grow(folder, sources, options, keys)
