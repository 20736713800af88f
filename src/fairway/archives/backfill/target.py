"""`Target`: what a backfill writes to.

Invariant: a message that `settle` counts as written is kept by the target, also after a crash.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from fairway.nodes.node import NodeQuota, RoutedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """A message of the source that the target lacks."""

    message: RoutedMessage
    timestamp_ns: int
    """When it was sent; for a message without a timestamp, when the source received it."""
    replaces: bool = False
    """Whether the target has it damaged, and it takes the place of that copy."""


@dataclass(slots=True, kw_only=True)
class Settled:
    """What became of messages."""

    written: int = 0
    """Messages that the target keeps now."""
    refused: Counter[str] = field(default_factory=Counter)
    """Messages that it does not, by the reason that it gives."""

    def add(self, more: Settled) -> None:
        """Add what became of others."""
        self.written += more.written
        self.refused.update(more.refused)


class Target(ABC):
    """A context manager over a place that keeps messages by their hashes."""

    name: str
    """The address without credentials."""
    rows_at_once: int
    """Most messages of one `write`."""

    def __enter__(self) -> Self:
        """Return the target."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()

    @property
    def quota(self) -> NodeQuota | None:
        """The rate limit that the target has of itself, if it is known."""
        return None

    @abstractmethod
    def known(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return those of at most 100 hashes whose messages the target has."""

    @abstractmethod
    def damaged(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return those of at most 100 hashes that the target has with contents of another hash."""

    @abstractmethod
    def write(self, messages: Sequence[Offered]) -> None:
        """Take messages that the target lacks; `settle` says what becomes of them."""

    @abstractmethod
    def settle(self, *, last: bool) -> Settled:
        """Return what became of the messages since the call before, as far as it is certain; of all if ``last``."""

    @abstractmethod
    def close(self) -> None:
        """Close the target; what is not settled may be lost. Can be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """How a target is opened."""

    oldest_ns: int | None = None
    """The first timestamp that will be written, as far as that is known."""
    create: bool = True
    """Whether a target that is not there is made; if not, nothing can be written."""
    repair: bool = False
    """Whether damaged messages of the target will be looked for."""
    kept_s: float = 10.0
    """Longest wait for a node's store to show a message that the node accepted."""
