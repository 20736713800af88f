"""`StreamOptions`: the options of a stream: those that are fixed at the first start, and those of each start."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.pipeline import machine
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.sources.options import DEFAULT_SETTLE_MS

MAX_STATE_PARTITIONS: Final = 8
"""Each is a RocksDB instance with files of its own in every micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of a stream. Those of ``tables`` and ``state_partitions`` hold from its first start on."""

    tables: RunOptions = field(default_factory=RunOptions)
    """The options of the tables, as for a run."""
    once: bool = False
    """Whether to end when all messages that are there now have been read."""
    every_s: float = 5.0
    """Time between the beginnings of two micro-batches, unless one takes longer; without effect with ``once``."""
    refresh_s: float = 600.0
    """Time between two refreshes of the tables, if messages came; 0: only at the end. A refresh delays the next one by
    its own duration."""
    rows_per_batch: int = 10_000
    """Largest number of rows of each archive in a micro-batch."""
    files_per_batch: int = 8
    """How many recorded files a micro-batch of the cores takes at most, or one recorded micro-batch that has more; so
    many rows, times the one above, can be in memory. (A limit in bytes is none: what somebody sends may shrink to a
    thousandth of its size.)"""
    join_batches: int = 128
    """A table of micro-batches with so many files is compacted; what was compacted stays until the next time."""
    settle_ms: int = DEFAULT_SETTLE_MS
    """Age by its timestamp at which a message of an archive is read (`fairway.pipeline.sources.archive_stream`)."""
    fail_on_data_loss: bool = True
    """Whether to stop when an archive may have removed messages that were not read."""
    state_partitions: int = field(default_factory=lambda: min(max(2, machine.cores()), MAX_STATE_PARTITIONS))
    """Number of parts of the channels. Fixed at the first start, because Spark cannot split state again."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for invalid values."""
        for name, least in (
            ("every_s", 0),
            ("refresh_s", 0),
            ("settle_ms", 0),
            ("rows_per_batch", 1),
            ("files_per_batch", 1),
            ("join_batches", 2),
            ("state_partitions", 1),
        ):
            if getattr(self, name) < least:
                raise ConfigurationError(f"{name} must be at least {least}, not {getattr(self, name)}")

    def identity(self) -> dict[str, Any]:
        """Return the options that must be the same at each start, as values for JSON."""
        return self.tables.as_json()

    def ending_when_done(self) -> StreamOptions:
        """Return the same for a stream that ends when everything is read."""
        return replace(self, once=True)
