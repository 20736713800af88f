"""`Target`: the interface of an archive or node into which a backfill writes.

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
    """A message of the source that is missing or damaged in the target."""

    message: RoutedMessage
    timestamp_ns: int
    """Its timestamp; for a message without one, the time at which the source received it."""
    replaces: bool = False
    """Whether it replaces a damaged copy of the target."""


@dataclass(slots=True, kw_only=True)
class Settled:
    """Counts of written and refused messages."""

    written: int = 0
    """Messages that the target keeps now."""
    refused: Counter[str] = field(default_factory=Counter)
    """Messages that the target does not keep, by reason."""

    def add(self, more: Settled) -> None:
        """Add the counts of other messages."""
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
        """Close the target."""
        self.close()

    @property
    def quota(self) -> NodeQuota | None:
        """The rate limit that the target reports; None if unknown."""
        return None

    @abstractmethod
    def known(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes, of at most 100, whose messages the target has."""

    @abstractmethod
    def damaged(self, hashes: Collection[bytes]) -> set[bytes]:
        """Return the hashes, of at most 100, whose contents in the target have another hash."""

    @abstractmethod
    def write(self, messages: Sequence[Offered]) -> None:
        """Accept missing messages for writing; `settle` returns the result."""

    @abstractmethod
    def settle(self, *, last: bool) -> Settled:
        """Return the certain results since the last call; if ``last``, the results of all messages."""

    @abstractmethod
    def close(self) -> None:
        """Close the target; unsettled messages may be lost. Can be called twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOptions:
    """Options for opening a target."""

    oldest_ns: int | None = None
    """The first timestamp that will be written; None if unknown."""
    create: bool = True
    """Whether a missing target is created; if False, the target cannot be written."""
    repair: bool = False
    """Whether damaged messages of the target are replaced."""
    kept_s: float = 10.0
    """Longest wait for a node's store to show a message that the node accepted."""
