"""The jobs of a run: which tables each writes, which it reads, and its plan for Spark.

A job reads tables of earlier jobs, or the sources, and writes one or more tables. So memory is bounded by the memory of
Spark, and an interrupted run continues with the same job. The result of its plan is notes: the files that tasks wrote,
and facts for later jobs. The folder keeps both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fairway.options import SdsConfig
from fairway.pipeline import stages
from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import BLOBS, Batches, in_tasks, task_number
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.ranges import Place, bounds_of
from fairway.pipeline.run import hearing, ingesting, ordering, reassembling
from fairway.pipeline.run.copies import LEAST_BYTES, repeated_in
from fairway.pipeline.run.folder import RunFolder
from fairway.pipeline.run.hearing import Hearing, split_facts
from fairway.pipeline.run.ingesting import Ingesting
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.ordering import Ordering
from fairway.pipeline.run.reassembling import Reassembling
from fairway.pipeline.run.sources import RunSource
from fairway.pipeline.run.summing import SUMMED, Summing, balance_terms
from fairway.pipeline.run.topics import CountedTopics
from fairway.pipeline.sources.open_source import map_scan
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.pipeline.tables import table_named
from fairway.pipeline.tables.files import TableFiles, schema_of

_FILE_BYTES: Final = 67_108_864
NARROW_ROWS: Final = 16_384
"""Rows without contents in one bucket; with fewer a task takes longer to start than to work."""

Notes = Sequence[Mapping[str, Any]]
"""Notes of tasks, apart from those about files."""
Facts = dict[str, Any]
Again = Callable[["Materials", Notes], "tuple[Notes, DataFrame] | None"]
"""Function that returns the notes to keep, and the plan that rebuilds some of the tables; None if all tables are
right."""


@dataclass(kw_only=True)
class Materials:
    """The inputs of the jobs."""

    spark: SparkSession
    folder: RunFolder
    sources: tuple[RunSource, ...]
    options: RunOptions
    keys: ChannelKeys | None
    buckets: int
    stores: Sequence[str]
    """The names of all stores that were read."""
    bucket_keys: BucketKeys = field(default_factory=BucketKeys.drawn)

    @property
    def files(self) -> TableFiles:
        """Return the files of the tables."""
        return TableFiles(root=self.folder.place.path, filesystem=self.folder.place.filesystem)

    def names(self, table: str) -> tuple[str, ...]:
        """Return the names of the files of a table that an earlier job wrote."""
        return self.folder.results[table].names

    def rows(self, table: str) -> int:
        """Return how many rows a table has that an earlier job wrote."""
        return self.folder.results[table].rows

    def table(self, name: str) -> DataFrame:
        """Return a table that an earlier job wrote."""
        return self.files.frame(self.spark, name, self.names(name), table_named(name).schema)

    def told(self, job: str) -> Facts:
        """Return the facts of an earlier job."""
        return dict(self.folder.facts(job) or {})


def no_facts(_: Materials, __: Notes) -> Facts:
    """Return no facts."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One action of Spark, and the tables that it writes."""

    name: str
    writes: tuple[str, ...]
    reads: tuple[str, ...] = ()
    """Tables of earlier jobs. A work table (`WORK_TABLES`) is removed after the last job that reads it."""
    frame: Callable[[Materials], DataFrame]
    """Function that returns the notes, as rows of `BLOBS`."""
    facts: Callable[[Materials, Notes], Facts] = no_facts
    again: Sequence[Again] = ()
    """Checks that may rebuild tables, in their order."""


def jobs(options: RunOptions) -> Iterator[Job]:
    """Yield the jobs of a run in their order."""
    for job in _JOBS:
        if options.blooms:
            yield job
        elif job.name != _BLOOMS:
            yield replace(job, reads=tuple(name for name in job.reads if name != _BLOOMS))


def written(frame: DataFrame, name: str, files: TableFiles) -> DataFrame:
    """Return the notes of tasks that write the rows of a frame into files of a table, numbered by partition."""

    def write(batches: Batches) -> Batches:
        number = task_number()
        held: list[pa.RecordBatch] = []
        part = 0
        for batch in batches:
            held.append(batch)
            if sum(one.nbytes for one in held) >= _FILE_BYTES:
                yield files.write(name, number, pa.Table.from_batches(held), part)
                held, part = [], part + 1
        if held:
            yield files.write(name, number, pa.Table.from_batches(held), part)

    return in_tasks(frame.select(*schema_of(name).names), write, BLOBS)


def _ingesting(run: Materials) -> Ingesting:
    return Ingesting(
        files=run.files,
        keys=run.bucket_keys,
        buckets=run.buckets,
        profile=run.options.profile,
        channel_keys=run.keys,
        channels=run.options.selection.channels,
        channel_topics=run.options.channel_topics,
    )


def _ingest(run: Materials) -> DataFrame:
    return _ingest_with_copies(run) or _ingest_all(run)


def _ingest_with_copies(run: Materials) -> DataFrame | None:
    """Return the plan over one large table whose few copies are found first; None for other sources."""
    source, *others = run.sources
    if others or not _are_large(run.sources) or run.options.selection.channels:
        return None
    scan = source.scan()
    if not isinstance(scan, ParquetScan) or not scan.gives_each_row_once():
        return None
    parts = scan.plan()
    job = _ingesting(run)
    # Decrypting each message twice may cost more than moving it.
    decoder = job.decoder() if run.keys is None else None
    repeated = repeated_in(run.spark, scan, parts, run.bucket_keys, decoder)
    if repeated is None:
        return None
    if repeated.keys is not None:
        fewer = max(_LEAST_BUCKETS_OF_COPIES, run.buckets // _BUCKETS_FOR_COPIES)
        job = replace(job, buckets=min(run.buckets, fewer))
    return job.frame_with_copies(run.spark, scan.for_tasks(), parts, repeated)


def _are_large(sources: Sequence[RunSource]) -> bool:
    """Return whether sources are so large that a job that only reads ids saves more than it costs."""
    return sum(source.size_bytes() for source in sources) >= LEAST_BYTES


def _ingest_all(run: Materials) -> DataFrame:
    parts = run.options.partitions
    sources = [partial(map_scan, run.spark, source.scan(), partitions=parts) for source in run.sources]
    unique = len(sources) == 1 and run.sources[0].has_unique_hashes
    return _ingesting(run).frame(sources, unique=unique)


def _with_copies_that_differ(run: Materials, notes: Notes) -> tuple[Notes, DataFrame] | None:
    """Rebuild the tables from all rows grouped by hash, if copies of a message differ."""
    return ([], _ingest_all(run)) if any("disagree" in told for told in notes) else None


def _without_other_topics(run: Materials, notes: Notes) -> tuple[Notes, DataFrame] | None:
    """Rebuild the tables without messages on a topic other than that of their channel, if any exist."""
    topics = _counted_topics(notes).decided()
    if not topics:
        return None
    stay = [told for told in notes if told.get("table") == "waku_messages" or _TOPICS in told]
    names = sorted(told["file"] for told in stay if "file" in told)
    job = replace(_ingesting(run), channel_topics={**topics, **run.options.channel_topics}, counts_topics=False)
    return stay, job.frame_again(run.spark, names, run.buckets)


def _counted_topics(notes: Notes) -> CountedTopics:
    return CountedTopics.from_json(told[_TOPICS] for told in notes if _TOPICS in told)


def _facts_of_reading(run: Materials, notes: Notes) -> Facts:
    for source in run.sources:
        source.check_unchanged()
    bounds = bounds_of((told["sample"] for told in notes if "sample" in told), run.buckets)
    return {_BOUNDS: bounds, _TOPICS: _counted_topics(notes).as_json()}


def _reassemble(run: Materials) -> DataFrame:
    job = Reassembling(
        files=run.files,
        keys=run.bucket_keys,
        buckets=run.buckets,
        bounds=_bounds(run),
        profile=run.options.profile,
        config=replace(ARCHIVE_SEGMENTATION, parity_rate=run.options.parity_rate),
        apart_buckets=_narrow_buckets(run) if _are_large(run.sources) else 0,
    )
    return job.frame(run.spark, run.names("sds_messages"), run.buckets)


def _bloom_evidence(run: Materials) -> DataFrame:
    decided = CountedTopics.from_json([run.told(_READ)[_TOPICS]]).decided()
    topics = {**decided, **run.options.channel_topics}
    evidence = stages.bloom_evidence(
        run.table("waku_messages"), run.options.profile, keys=run.keys, channel_topics=topics
    )
    return written(evidence, "bloom_evidence", run.files)


def _hear(run: Materials) -> DataFrame:
    buckets = _narrow_buckets(run)
    job = Hearing(
        files=run.files,
        keys=run.bucket_keys,
        buckets=buckets,
        bounds=_log_bounds(run),
        possible_acks_threshold=SdsConfig().possible_acks_threshold,
    )
    tables = ["sds_messages", "computed_segments", *([_BLOOMS] if run.options.blooms else [])]
    return job.frame(run.spark, {name: run.names(name) for name in tables}, buckets)


def _facts_of_hearing(run: Materials, notes: Notes) -> Facts:
    return {"split": split_facts(notes), _BOUNDS: _log_bounds(run)}


def _order(run: Materials) -> DataFrame:
    heard = run.told(_HEAR)
    job = Ordering(
        files=run.files,
        bounds=_places(heard[_BOUNDS]),
        split=heard["split"],
        max_channel_bytes=run.options.max_channel_bytes,
    )
    tables = ("sds_messages", "computed_segments", "missing_messages")
    return job.frame(run.spark, {name: run.names(name) for name in tables}, _narrow_buckets(run))


def _narrow_buckets(run: Materials) -> int:
    """Return the number of buckets for rows without contents: a large source may have few rows."""
    return max(1, min(run.buckets, -(-run.rows("sds_messages") // NARROW_ROWS)))


def _bounds(run: Materials) -> list[Place]:
    return _places(run.told(_READ)[_BOUNDS])


def _log_bounds(run: Materials) -> list[Place]:
    """Return the ends of the ranges of logs; each joins several ranges of contents."""
    bounds = _bounds(run)
    several = max(1, (len(bounds) + 1) // _narrow_buckets(run))
    return bounds[several - 1 :: several]


def _places(bounds: Sequence[Sequence[Any]]) -> list[Place]:
    return [(channel, clock, message_id) for channel, clock, message_id in bounds]


def _statistics(run: Materials) -> DataFrame:
    buckets = _narrow_buckets(run)
    summing = Summing(
        files=run.files,
        keys=run.bucket_keys,
        buckets=max(1, buckets // _BUCKETS_FOR_SUMS),
        epoch_ms=run.options.epoch_ms,
        rate_limit=run.options.rate_limit,
        stores=run.stores,
    )
    return summing.frame(run.spark, {name: run.names(name) for name in SUMMED}, buckets)


_BUCKETS_FOR_SUMS: Final = 8
"""Divisor of the buckets for sums, which have far fewer rows than they count."""
_BUCKETS_FOR_COPIES: Final = 8
"""Divisor of the buckets if only repeated messages are grouped."""
_LEAST_BUCKETS_OF_COPIES: Final = 16
"""Least number of buckets for copies, so that no core is idle."""


_READ: Final = "read"
_TOPICS: Final = "topics"
"""Name of the topics (`CountedTopics`) in notes and facts."""
_BOUNDS: Final = "bounds"
"""Name of a fact: the ends of ranges."""
_HEAR: Final = "hear"
_BLOOMS: Final = "bloom_evidence"

_JOBS: Final = (
    Job(
        name=_READ,
        writes=ingesting.WRITTEN,
        frame=_ingest,
        facts=_facts_of_reading,
        again=(_with_copies_that_differ, _without_other_topics),
    ),
    Job(name="reassemble", writes=reassembling.WRITTEN, reads=("sds_messages", "contents"), frame=_reassemble),
    Job(name=_BLOOMS, writes=(_BLOOMS,), reads=("waku_messages",), frame=_bloom_evidence),
    Job(
        name=_HEAR,
        writes=hearing.WRITTEN,
        reads=("sds_messages", "computed_segments", _BLOOMS),
        frame=_hear,
        facts=_facts_of_hearing,
    ),
    Job(
        name="order",
        writes=ordering.WRITTEN,
        reads=("sds_messages", "computed_segments", "missing_messages"),
        frame=_order,
    ),
    Job(
        name="statistics",
        writes=("sender_stats", "channel_stats", "bandwidth", "rate_utilisation", "store_completeness"),
        reads=SUMMED,
        frame=_statistics,
        facts=lambda _, notes: balance_terms(notes),
    ),
)
