"""What a replay of known answers yields: checks, gathered by group and by file.

A checker takes one group of a known-answer file and yields one `Check` for each thing that the file claims. It never
raises for a claim that does not hold or a case that is malformed: that is a check that is not ok, named after the case.
Nothing here knows a format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """One claim of a known-answer file, and whether the replay agrees."""

    name: str
    """Names the case within its group, for a person who looks for it in the file."""
    ok: bool
    """Whether the replay's answer equals the file's."""
    detail: str = ""
    """If not ok: what was expected and what came out."""
    differs_on_purpose: str | None = None
    """Why fairway itself behaves otherwise here (docs/decisions/specifications.md, "Faults of other implementations").
    With ok, the record was reproduced by a model of the other implementation and counts as a match; without, it was not
    replayed further and does not count at all."""


Checker = Callable[[Any], Iterator[Check]]
"""Takes the value of a group and yields checks."""


class ReplayOutcome(IntEnum):
    """How a replay ended; the values are the exit codes of ``python -m tests.conformance``."""

    MATCHES = 0
    """Every claim of every file holds."""
    MISMATCH = 1
    """Some claim does not hold."""
    UNREADABLE = 2
    """Some file, or some part of one, could not be replayed at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport:
    """The checks of one group of one file."""

    name: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> int:
        """Number of claims that hold."""
        return sum(check.ok for check in self.checks)

    @property
    def counted(self) -> int:
        """Number of claims that must hold."""
        return sum(check.ok or check.differs_on_purpose is None for check in self.checks)

    @property
    def failures(self) -> tuple[Check, ...]:
        """Claims that do not hold, departures on purpose left out."""
        return tuple(check for check in self.checks if not check.ok and check.differs_on_purpose is None)

    @property
    def departures(self) -> tuple[Check, ...]:
        """Claims where fairway itself behaves otherwise on purpose, each with its reason."""
        return tuple(check for check in self.checks if check.differs_on_purpose is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The groups of one known-answer file, or why it could not be replayed."""

    path: str
    kind: str | None
    """Name of the format that was recognised; None if none was."""
    groups: tuple[GroupReport, ...] = ()
    errors: tuple[str, ...] = ()
    """What kept (part of) the file from being replayed: unreadable, unknown format, unknown group."""

    @property
    def outcome(self) -> ReplayOutcome:
        """How the replay of this file ended."""
        if self.errors:
            return ReplayOutcome.UNREADABLE
        return ReplayOutcome.MISMATCH if any(group.failures for group in self.groups) else ReplayOutcome.MATCHES


def outcome_of(reports: Iterable[FileReport]) -> ReplayOutcome:
    """Return the worst outcome among files; a replay of nothing matches nothing."""
    return max((report.outcome for report in reports), default=ReplayOutcome.UNREADABLE)
