"""When sends that failed are sent again, and how many segments at a time: one falling rate for the whole channel.

A participant may be away for days. A copy that it cannot receive is wasted, and a copy for each failed send would cost
the more the longer it is away. So the channel sends one segment at a time, whatever the number of failed sends, after a
pause that doubles from two retry intervals to an hour. It begins with the newest send: each message descends from the
earlier ones, so a participant that receives it asks for those.

If an awaited participant is heard again after a silence, the pause ends: the channel sends one segment soon. If that is
acknowledged, twice as many follow, up to `_LARGEST_ROUND`, the oldest first, until every such send is acknowledged.
A participant that never acknowledges anything thus gets one copy for each of its returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from fairway.protocol.bounded import BoundedDict

_LONGEST_PAUSE_MS: Final = 3_600_000
_FIRST_PAUSE: Final = 2
"""In retry intervals."""
_SOON_SHARE: Final = 0.25
"""Of the retry interval: time for a participant that was heard to acknowledge without a copy."""
_SILENCE_MS: Final = 300_000
"""Silence after which a participant counts as one that returns."""
_MAX_NAMES: Final = 10_000
"""Participants whose last message is remembered; anybody can invent names."""
_LARGEST_ROUND: Final = 20
"""Segments of one round: as many as one sync message acknowledges (`fairway.protocol.sds.pending_citations`)."""


class Round(NamedTuple):
    """What is sent again now."""

    size: int
    """Segments at most."""
    is_answer: bool
    """Whether it is for participants that were heard lately."""


class OverdueRetries:
    """The time and the size of the next round."""

    def __init__(self, interval_ms: int) -> None:
        """``interval_ms`` is the retry interval."""
        self._interval_ms = interval_ms
        self._pause_ms = 0
        self._next_ms: int | None = None
        """When the next round begins at the falling rate; None while no send is overdue."""
        self._answer_ms: int | None = None
        """When a round begins because a participant returned, or acknowledged something."""
        self._size = 1
        self._has_progress = False
        self._heard_ms: BoundedDict[str, int] = BoundedDict(_MAX_NAMES)
        """When the last message of each participant came, in this run."""

    @property
    def at_ms(self) -> int | None:
        """When the next round begins; None while no send is overdue."""
        if self._next_ms is None or self._answer_ms is None:
            return self._next_ms
        return min(self._next_ms, self._answer_ms)

    def begin(self, now_ms: int) -> None:
        """Note that a send is overdue."""
        if self._next_ms is None:
            self._pause_ms = self._first_pause_ms
            self._next_ms = now_ms + self._pause_ms

    def end(self) -> None:
        """Note that no send is overdue any more."""
        self._next_ms = self._answer_ms = None
        self._size, self._has_progress = 1, False

    def heard(self, name: str, now_ms: int) -> None:
        """Note that a message of a participant came; it returns if its last one came `_SILENCE_MS` ago."""
        before_ms = self._heard_ms.get(name)
        self._heard_ms[name] = now_ms
        was_silent = before_ms is None or not 0 <= now_ms - before_ms < _SILENCE_MS
        if was_silent and self._next_ms is not None:
            self._answer_soon(now_ms)

    def heard_since(self, at_ms: int) -> Iterator[str]:
        """Yield the participants of which a message came at a time or later, the last one first."""
        for name, heard_ms in reversed(self._heard_ms.items()):
            if heard_ms < at_ms:
                return
            yield name

    def progressed(self, now_ms: int) -> None:
        """Note that a segment of an overdue send was acknowledged."""
        if self._next_ms is not None:
            self._has_progress = True
            self._answer_soon(now_ms)

    def take_due(self, now_ms: int) -> Round | None:
        """Return the round that begins now, if one does."""
        if self._answer_ms is not None and self._answer_ms <= now_ms:
            self._answer_ms = None
            self._size = min(2 * self._size, _LARGEST_ROUND) if self._has_progress else 1
            self._has_progress = False
            return Round(self._size, is_answer=True)
        if self._next_ms is not None and self._next_ms <= now_ms:
            self._size = 1
            self._pause_ms = min(2 * self._pause_ms, _LONGEST_PAUSE_MS)
            self._next_ms = now_ms + self._pause_ms
            return Round(1, is_answer=False)
        return None

    def answered(self, now_ms: int) -> None:
        """Note that a round for participants that were heard sent something: the pauses begin anew."""
        self._pause_ms = self._first_pause_ms
        self._next_ms = now_ms + self._pause_ms

    @property
    def _first_pause_ms(self) -> int:
        return min(_FIRST_PAUSE * self._interval_ms, _LONGEST_PAUSE_MS)

    def _answer_soon(self, now_ms: int) -> None:
        soon_ms = now_ms + int(self._interval_ms * _SOON_SHARE)
        self._answer_ms = soon_ms if self._answer_ms is None else min(self._answer_ms, soon_ms)
