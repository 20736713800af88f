"""`StreamOptions`: the options of a stream. Some are fixed at the first start, the others can change at each start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.pipeline import machine
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.sources.options import DEFAULT_SETTLE_MS

MAX_STATE_PARTITIONS: Final = 8
"""Largest default of `StreamOptions.state_partitions`; each is a RocksDB instance that writes files every time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of a stream. ``tables`` and ``state_partitions`` are fixed at its first start."""

    tables: RunOptions = field(default_factory=RunOptions)
    """The options of the tables, as for a run."""
    once: bool = False
    """Whether to end after all messages that the archives have now."""
    every_s: float = 5.0
    """Time between the beginnings of two micro-batches, unless one takes longer; without effect with ``once``."""
    refresh_s: float = 600.0
    """Time between two refreshes of the tables; 0: only at the end. A refresh that takes longer than this delays the
    next one to its own duration."""
    rows_per_batch: int = 10_000
    """Largest number of rows of each archive in a micro-batch."""
    files_per_batch: int = 8
    """Largest number of recorded files in a micro-batch of the cores; a recorded micro-batch with more files is read
    whole. Memory holds up to this number times ``rows_per_batch`` rows. There is no limit in bytes, because a payload
    may compress to a thousandth of its size."""
    join_batches: int = 128
    """Number of files from which a table of micro-batches is compacted. The replaced files are deleted at the next
    compaction."""
    settle_ms: int = DEFAULT_SETTLE_MS
    """Age, by its timestamp, at which a message of an archive is read (`fairway.pipeline.sources.archive_stream`)."""
    late_ms: int | None = None
    """Age, relative to the last message read, up to which a refresh looks for late messages; 0: none. None: any age in
    a database; an hour in a node, or if topics or channels are selected (`fairway.pipeline.streaming.late`)."""
    fail_on_data_loss: bool = True
    """Whether to stop if an archive may have removed unread messages."""
    state_partitions: int = field(default_factory=lambda: min(max(2, machine.cores()), MAX_STATE_PARTITIONS))
    """Number of partitions of the state. Fixed at the first start, because Spark cannot repartition state."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for invalid values."""
        for name, least in (
            ("every_s", 0),
            ("refresh_s", 0),
            ("settle_ms", 0),
            ("late_ms", 0),
            ("rows_per_batch", 1),
            ("files_per_batch", 1),
            ("join_batches", 2),
            ("state_partitions", 1),
        ):
            given = getattr(self, name)
            if given is not None and given < least:
                raise ConfigurationError(f"{name} must be at least {least}, not {given}")

    def identity(self) -> dict[str, Any]:
        """Return the options that must be the same at each start, as values for JSON."""
        return self.tables.as_json()
