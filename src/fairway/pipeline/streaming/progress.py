"""`StreamProgress`: the progress of a stream after each micro-batch; `StreamSummary`: its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from fairway.pipeline.run.summary import Balance, balance_json

_MEASURABLE_S: Final = 0.05


class Phase(Enum):
    """The step that a progress event reports."""

    RECORDED = "recorded"
    """A micro-batch of the archives was recorded."""
    DELIVERED = "delivered"
    """The cores processed a recorded micro-batch."""
    REFRESHING = "refreshing"
    """A refresh of the tables began."""
    REFRESHED = "refreshed"
    """A refresh of the tables ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """The progress of a stream. All counts except ``rows`` start at its first start."""

    phase: Phase
    batch: int
    """Number of the micro-batch, from 0, or of the refresh, from 1."""
    rows: int
    """Rows of the micro-batch; for a refresh, all recorded rows."""
    seconds: float
    recorded: int
    """Rows read from the archives."""
    delivered: int
    """Messages that were delivered."""
    missing: int
    """Cited messages that have not arrived: an estimate (`Gaps`); the table ``missing_messages`` is exact."""
    mode: str | None = None
    """How the tables were refreshed: ``grown``, ``whole`` or ``unchanged``; None in other steps."""
    behind_s: float | None = None
    """Lag behind the archives in seconds, by the timestamps of messages; None if unknown."""

    @property
    def rows_per_s(self) -> float | None:
        """Return the rows per second; None for a duration near 0, and for a refresh that did not read all rows."""
        is_of_all = self.mode in {None, "whole"}
        return self.rows / self.seconds if is_of_all and self.seconds >= _MEASURABLE_S else None

    def as_json(self) -> dict[str, Any]:
        """Return the progress as values for JSON."""
        return {
            **asdict(self),
            "phase": self.phase.value,
            "seconds": round(self.seconds, 3),
            "rows_per_s": None if self.rows_per_s is None else round(self.rows_per_s, 1),
        }


Listener = Callable[[StreamProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """The result of a stream."""

    folder: Path
    recorded: int
    """Rows read from the archives since the first start."""
    delivered: int
    """Messages delivered since the first start."""
    settled: int
    """Messages that the cores had not delivered, and that were delivered from the tables (`settling`)."""
    missing: int
    """Rows of ``missing_messages``."""
    balance: Balance
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the summary as values for JSON."""
        return {**asdict(self), "folder": str(self.folder), "balance": balance_json(self.balance)}
