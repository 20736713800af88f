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
    """A recorded micro-batch went through the cores."""
    REFRESHING = "refreshing"
    """A refresh of the tables began."""
    REFRESHED = "refreshed"
    """A refresh of the tables ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProgress:
    """The progress of a stream. All counts except ``rows`` are since its first start."""

    phase: Phase
    batch: int
    """Number of the micro-batch, from 0; of the refresh, from 1."""
    rows: int
    """Rows that it took in; of a refresh, all rows that the tables rest on."""
    seconds: float
    recorded: int
    """Rows that the archives gave."""
    delivered: int
    """Messages that were delivered."""
    missing: int
    """Messages that are cited and have not come, as far as the stream remembers; the table is exact."""
    mode: str | None = None
    """How the tables were refreshed: ``grown``, ``whole`` or ``unchanged``; None in other steps."""
    behind_s: float | None = None
    """How far the stream is behind the archives, by the timestamps of messages; None if unknown."""

    @property
    def rows_per_s(self) -> float | None:
        """Return how fast it was; None of what took no time, and of a refresh that did not read all rows anew."""
        is_of_all = self.mode in {None, "whole"}
        return self.rows / self.seconds if is_of_all and self.seconds >= _MEASURABLE_S else None

    def as_json(self) -> dict[str, Any]:
        """Return the progress as JSON knows it."""
        return {
            **asdict(self),
            "phase": self.phase.value,
            "rows_per_s": None if self.rows_per_s is None else round(self.rows_per_s, 1),
        }


Listener = Callable[[StreamProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """The result of a stream."""

    folder: Path
    recorded: int
    """Rows that the archives gave since the first start."""
    delivered: int
    """Messages that were delivered since then."""
    settled: int
    """Delivered messages that the cores had dropped as incomplete, and the tables showed as complete."""
    missing: int
    """Rows of ``missing_messages``."""
    balance: Balance
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON knows it."""
        return {**asdict(self), "folder": str(self.folder), "balance": balance_json(self.balance)}
