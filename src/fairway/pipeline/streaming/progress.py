"""What a stream tells: where it is after each micro-batch, and at its end what came of everything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from fairway.pipeline.run.summary import Balance, balance_json


class Phase(Enum):
    """What a line of progress is about."""

    RECORDED = "recorded"
    """A micro-batch of the archives was taken over."""
    DELIVERED = "delivered"
    """A micro-batch of that went through the cores."""
    REFRESHING = "refreshing"
    """The tables are being made anew."""
    REFRESHED = "refreshed"
    """The tables were made anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """Where a stream is. All counts but ``rows`` are since its first start."""

    phase: Phase
    batch: int
    """Number of the micro-batch, from 0; of the refresh, from 1."""
    rows: int
    """Rows that it took in."""
    seconds: float
    recorded: int
    """Rows that the archives gave."""
    delivered: int
    """Messages that were delivered."""
    missing: int
    """Messages that are cited and have not come, as far as the stream remembers; the table is exact."""
    behind_s: float | None = None
    """By how much of the messages' own time the archives are ahead; None when that cannot be told."""

    @property
    def rows_per_s(self) -> float:
        """Return how fast it was."""
        return self.rows / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the progress as JSON knows it."""
        return {**asdict(self), "phase": self.phase.value, "rows_per_s": round(self.rows_per_s, 1)}


Listener = Callable[[StreamProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """What a stream left when it ended."""

    folder: Path
    recorded: int
    """Rows that the archives gave since the first start."""
    delivered: int
    """Messages that were delivered since then."""
    settled: int
    """Those of them that the cores had given up, and the tables showed to be complete."""
    missing: int
    """Rows of ``missing_messages``."""
    balance: Balance
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON knows it."""
        return {**asdict(self), "folder": str(self.folder), "balance": balance_json(self.balance)}
