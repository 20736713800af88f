"""Epochs aligned to those of RLN, and the number of transmissions in each epoch.

LIP-173, "Rate Limit Manager": "It tracks how many messages have been sent in the current epoch", and the epoch size
MUST match the configured one. 17/WAKU2-RLN-RELAY, "Epoch Length", writes the epoch as ceil(unix / period). Every
validator computes floor(unix / period), and so does this module. Any other alignment would spend two budgets in one
epoch of the validators.

Invariant: a used epoch never gets a second budget, even if the clock jumps.

- A step forwards into an epoch without a record starts a new budget.
- A step forwards or backwards into an epoch with a record continues the record.
- After a step backwards the use is at least as high as before the step, so no sequence of steps refills the budget.

A step backwards does *not* hold the counter at the highest epoch so far. Validators assign a message to the epoch of
its timestamp, so a charge to another epoch would overdraw the epoch of the timestamp. A clock that was one year ahead
for one second would also silence the channel for a year.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError

REMEMBERED_EPOCHS: Final = 16
"""Used epochs on record. Validators refuse messages more than 20 s off their own clock. If a clock returns to an epoch
after this many others, the network accepted the messages of at most one visit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochClock:
    """Conversion between times and epochs; epoch 0 starts with the Unix epoch."""

    epoch_ms: int
    """Length of an epoch in milliseconds."""

    def __post_init__(self) -> None:
        if self.epoch_ms <= 0:
            raise ConfigurationError(f"epoch_ms must be positive, not {self.epoch_ms}")

    def index(self, now_ms: int) -> int:
        """Return the epoch that contains ``now_ms``."""
        return now_ms // self.epoch_ms

    def start(self, index: int) -> int:
        """Return the first millisecond of epoch ``index``."""
        return index * self.epoch_ms


class EpochCounter:
    """Number of transmissions that were charged in each epoch of one clock."""

    __slots__ = ("_used", "clock", "closed", "current", "others")

    def __init__(
        self,
        clock: EpochClock,
        *,
        current: int | None = None,
        others: int = 0,
        closed: bool = False,
        used: dict[int, int] | None = None,
    ) -> None:
        self.clock = clock
        self.current = current
        """The epoch of the last observed time; None before the first observation."""
        self.others = others
        """Transmissions of the current epoch by other users of the quota, from the last report of its keeper."""
        self.closed = closed
        """Whether a caller closed the current epoch; then it has no room, regardless of the count."""
        self._used = dict(used or {})
        self._forget()

    @property
    def own(self) -> int:
        """Transmissions charged to this counter in the current epoch."""
        return 0 if self.current is None else self._used.get(self.current, 0)

    @property
    def used(self) -> int:
        """All transmissions of the current epoch: own and others'."""
        return self.own + self.others

    @property
    def record(self) -> tuple[tuple[int, int], ...]:
        """The used epochs on record, ascending, each with its own charges."""
        return tuple(sorted(self._used.items()))

    def observe(self, now_ms: int) -> None:
        """Move to the epoch of ``now_ms``, forwards or backwards."""
        index = self.clock.index(now_ms)
        if index == self.current:
            return
        left, left_with = self.current, self.used
        if left is not None and self.others:
            # Recorded, so that a return to this epoch also counts the transmissions of others.
            self._used[left] = left_with
        if left is None or index > left:
            self.closed = False
        elif left_with > self._used.get(index, 0):
            self._used[index] = left_with
        self.others = 0
        self.current = index
        self._forget()

    def charge(self) -> None:
        """Count one transmission in the current epoch."""
        if self.current is None:
            raise ValueError("observe a time before charging: a charge belongs to an epoch")
        self._used[self.current] = self._used.get(self.current, 0) + 1
        self._forget()

    def refund(self, charged_at_ms: int) -> None:
        """Remove one charge made at ``charged_at_ms``, if it is still on record."""
        index = self.clock.index(charged_at_ms)
        if self._used.get(index, 0) > 1:
            self._used[index] -= 1
        else:
            self._used.pop(index, None)

    def report_used(self, total: int) -> None:
        """Note that the keeper of the quota counted ``total`` transmissions in the current epoch.

        The excess over the own charges belongs to others. Each report replaces the last one: a late report of a keeper
        with a slow clock must not stop the channel for a whole epoch. Own charges always count in full.
        """
        self.others = max(0, total - self.own)

    def room_from(self, at_ms: int, allowed: int | None) -> int:
        """Return the first time from ``at_ms`` on in an epoch with fewer than ``allowed`` charges; None is no limit."""
        index = self.clock.index(at_ms)
        while not self._has_room(index, allowed):
            index += 1
        return max(at_ms, self.clock.start(index))

    def merge(self, other: EpochCounter) -> bool:
        """Raise each count to that of another counter on the same transmissions; return whether any count changed.

        If the counters differ in epoch length, the result is too high rather than too low.
        """
        known = other if other.clock == self.clock else other.rebased(self.clock, other.latest_ms)
        more = {index: count for index, count in known.record if count > self._used.get(index, 0)}
        self._used.update(more)
        self._forget()
        return bool(more)

    @property
    def latest_ms(self) -> int:
        """The last millisecond of the current epoch; before the first observation, of the latest epoch on record."""
        index = self.current if self.current is not None else max(self._used, default=0)
        return self.clock.start(index + 1) - 1

    def rebased(self, clock: EpochClock, now_ms: int) -> EpochCounter:
        """Return a counter for another epoch length with the record of this one.

        Every new epoch gets the full count of each old epoch that it overlaps. The times of the charges within an epoch
        are not on record. A count that is too high is safe, and a count that is too low is not.
        """
        self.observe(now_ms)
        running = clock.index(now_ms)
        used: dict[int, int] = {}
        for index, count in self._used.items():
            first = clock.index(self.clock.start(index))
            last = clock.index(self.clock.start(index + 1) - 1)
            # A long epoch overlaps many short ones; only those near the running epoch are recorded.
            nearest = max(first, running - REMEMBERED_EPOCHS)
            for touched in range(nearest, min(last, running + REMEMBERED_EPOCHS) + 1):
                used[touched] = used.get(touched, 0) + count
        if self.others:
            used[running] = used.get(running, 0) + self.others
        return EpochCounter(clock, current=running, closed=self.closed, used=used)

    def used_in(self, index: int) -> int:
        """Return the known number of transmissions in an epoch."""
        return self.used if index == self.current else self._used.get(index, 0)

    def _has_room(self, index: int, allowed: int | None) -> bool:
        if index == self.current and self.closed:
            return False
        return allowed is None or self.used_in(index) < allowed

    def _forget(self) -> None:
        if len(self._used) > REMEMBERED_EPOCHS:
            here = self.current or 0
            # The epochs nearest to the clock, which may return to them. Of two equally near, the later one.
            kept = sorted(self._used, key=lambda index: (abs(index - here), -index))[:REMEMBERED_EPOCHS]
            self._used = {index: self._used[index] for index in sorted(kept)}
