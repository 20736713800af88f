"""The reader of a stream, as Spark calls it; each kind of source has its own `SourceStream`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, wraps
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from fairway.errors import ConfigurationError, FairwayError
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.schema import types_of
from fairway.pipeline.sources.archive_stream import ArchiveStream
from fairway.pipeline.sources.files_scan import FilesScan
from fairway.pipeline.sources.lip76 import Lip76Scan, Lip76Stream
from fairway.pipeline.sources.options import EARLIEST, LATEST, SourceOptions
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.sources.parquet_stream import ParquetStream
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.source_stream import SourceStream
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES, ArchiveScan
from fairway.pipeline.versions import OneVersion
from fairway.storage.archive import MIN_TIMESTAMP_NS

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def short_errors(work: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Return a function that raises the errors of fairway without traceback and cause."""

    @wraps(work)
    def wrapper(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        try:
            return work(*given, **named)
        except FairwayError as error:
            raise error.with_traceback(None) from None

    return wrapper


class WakuStreamReader(OneVersion, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader: it plans on the driver, reads on the executors, and keeps nothing open between calls."""

    def __init__(
        self,
        options: SourceOptions,
        columns: Sequence[str] = tuple(types_of(WAKU_MESSAGES)),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._columns = columns
        self._options = options
        self._now_ns = now_ns
        self._triggered_ns = MIN_TIMESTAMP_NS
        """Time of the last micro-batch of this start."""
        self._is_held = False

    @cached_property
    def _stream(self) -> SourceStream:
        # Not in `__init__`: Spark hides an error that is raised there behind its own.
        return stream_of(self._options, self._now_ns)

    @short_errors
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return the offset at which a stream without a checkpoint begins."""
        starting = self._options.starting
        if starting == EARLIEST:
            return self._stream.beginning()
        if starting == LATEST:
            return self._stream.present()
        assert not isinstance(starting, str), "other texts are refused when options are parsed"
        return self._stream.place(starting)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - as Spark calls it
        """Return the limit of a micro-batch."""
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    @short_errors
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - as Spark calls it
        """Return the end of the next micro-batch, or ``start`` if there is none."""
        if not isinstance(limit, ReadAllAvailable) and self._waits(start):
            return start
        self._triggered_ns = self._now_ns()
        return self._stream.reached(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - as Spark calls it
        """Return the last offset available now, for the query's progress."""
        return self._stream.newest()

    @short_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - as Spark calls it
        """Fix the end of the stream at what is available now."""
        self._stream.hold()
        self._is_held = True

    def _waits(self, start: dict[str, Any]) -> bool:
        """Return whether the next micro-batch waits for more messages (``minOffsetsPerTrigger``)."""
        least = self._options.min_offsets_per_trigger
        delay_ns = self._options.max_trigger_delay_ns
        if least is None or self._is_held or self._now_ns() - self._triggered_ns >= delay_ns:
            return False
        return self._stream.reached(start, least - 1) == self._stream.reached(start, None)

    @short_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the parts of a micro-batch."""
        return [InputPartition(part) for part in self._stream.parts(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one part."""
        for batch in batches_with_instants(self._stream.read(partition.value), WAKU_MESSAGES):
            yield batch.select(self._columns)


def stream_of(options: SourceOptions, now_ns: Callable[[], int] = time.time_ns) -> SourceStream:
    """Return the stream of a source; raise `ConfigurationError` for an invalid URI, or a missing file."""
    scan = scan_of(options.uri, options.selection, options.label)
    if isinstance(scan, ArchiveScan):
        return ArchiveStream(scan, options, now_ns)
    if isinstance(scan, ParquetScan):
        return ParquetStream(scan, options, now_ns)
    if isinstance(scan, FilesScan):
        raise ConfigurationError(
            f"{scan.source}: is a file that somebody saved, which a stream does not follow: read it as a table, or "
            "backfill it into a sqlite: or parquet: archive"
        )
    assert isinstance(scan, Lip76Scan), "there are no other kinds of reads"
    return Lip76Stream(scan, options)
