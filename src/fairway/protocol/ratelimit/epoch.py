"""Epochs aligned to RLN's, and the count of what was sent in each of them.

LIP-173, "Rate Limit Manager": "It tracks how many messages have been sent in the current epoch", and the epoch size
MUST match the configured one. 17/WAKU2-RLN-RELAY, "Epoch Length", writes the epoch as ceil(unix / period), but every
validator computes floor(unix / period), as is done here: a counter that began with the first transmission, or that
rounded the other way, would spend two budgets in one epoch of the validators.

Invariant: whatever the clock does, an epoch that was used is never given a second budget.

- Forwards into an epoch without a record: a fresh budget.
- Forwards or backwards into an epoch with a record: the record counts.
- Backwards, record or not: at least as much counts as used as before the step, so that no sequence of steps
  back refills the budget.

A step back does *not* hold the counter at the highest epoch ever seen. Validators judge a message by the
epoch of its own timestamp, so charging it to another epoch would overdraw the one it claims; and a clock that
was wrong by a year for a second would silence the channel for a year.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError

REMEMBERED_EPOCHS: Final = 16
"""Used epochs on record. Validators refuse messages more than 20 s off their own clock. So if a clock comes back to an
epoch after so many others, the network accepted messages of at most one of the two visits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochClock:
    """Which epoch a time belongs to; epoch 0 starts with the Unix epoch."""

    epoch_ms: int
    """Length of an epoch in milliseconds."""

    def __post_init__(self) -> None:
        if self.epoch_ms <= 0:
            raise ConfigurationError(f"epoch_ms must be positive, not {self.epoch_ms}")

    def index(self, now_ms: int) -> int:
        """Return the epoch that holds ``now_ms``."""
        return now_ms // self.epoch_ms

    def start(self, index: int) -> int:
        """Return the first millisecond of epoch ``index``."""
        return index * self.epoch_ms


class EpochCounter:
    """How many transmissions were charged in each of the epochs of one clock."""

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
        """The epoch of the last time that was observed; None before the first."""
        self.others = others
        """Transmissions of the current epoch by others that share the quota, as its keeper last said."""
        self.closed = closed
        """Whether the current epoch was declared spent from outside, whatever the count says."""
        self._used = dict(used or {})
        self._forget()

    @property
    def own(self) -> int:
        """Transmissions charged here in the current epoch."""
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
            # So that coming back to the epoch finds what was known of it.
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
        """Take back one charge made at ``charged_at_ms``; nothing happens if it is no longer on record."""
        index = self.clock.index(charged_at_ms)
        if self._used.get(index, 0) > 1:
            self._used[index] -= 1
        else:
            self._used.pop(index, None)

    def report_used(self, total: int) -> None:
        """Take note that ``total`` transmissions of the current epoch were counted by the quota's keeper.

        What exceeds the own charges is others'. The last report stands: one that came late from a keeper
        whose clock is behind must not stop the channel for a whole epoch. Own charges always count in full.
        """
        self.others = max(0, total - self.own)

    def room_from(self, at_ms: int, allowed: int | None) -> int:
        """Return the first time from ``at_ms`` on with fewer than ``allowed`` charges; None allows any."""
        index = self.clock.index(at_ms)
        while not self._has_room(index, allowed):
            index += 1
        return max(at_ms, self.clock.start(index))

    def merge(self, other: EpochCounter) -> bool:
        """Take over what another counter has on record and this one lacks; return whether that was anything.

        Both count the same transmissions; epochs may differ in length, and then too much counts rather than too little.
        """
        known = other if other.clock == self.clock else other.rebased(self.clock, other.latest_ms)
        more = {index: count for index, count in known.record if count > self._used.get(index, 0)}
        self._used.update(more)
        self._forget()
        return bool(more)

    @property
    def latest_ms(self) -> int:
        """The last millisecond of the current epoch, or of the latest one on record."""
        index = self.current if self.current is not None else max(self._used, default=0)
        return self.clock.start(index + 1) - 1

    def rebased(self, clock: EpochClock, now_ms: int) -> EpochCounter:
        """Return a counter for another epoch length that knows what this one has on record.

        A count goes in full to every new epoch that its old one touches: when inside an epoch its charges
        fell is not on record, and too much is safe where too little is not.
        """
        self.observe(now_ms)
        running = clock.index(now_ms)
        used: dict[int, int] = {}
        for index, count in self._used.items():
            first = clock.index(self.clock.start(index))
            last = clock.index(self.clock.start(index + 1) - 1)
            # Of many short epochs inside a long one only those near the running one are worth recording.
            nearest = max(first, running - REMEMBERED_EPOCHS)
            for touched in range(nearest, min(last, running + REMEMBERED_EPOCHS) + 1):
                used[touched] = used.get(touched, 0) + count
        if self.others:
            used[running] = used.get(running, 0) + self.others
        return EpochCounter(clock, current=running, closed=self.closed, used=used)

    def used_in(self, index: int) -> int:
        """Return what is known to be used of an epoch."""
        return self.used if index == self.current else self._used.get(index, 0)

    def _has_room(self, index: int, allowed: int | None) -> bool:
        if index == self.current and self.closed:
            return False
        return allowed is None or self.used_in(index) < allowed

    def _forget(self) -> None:
        if len(self._used) > REMEMBERED_EPOCHS:
            here = self.current or 0
            # Nearest to the clock: what it may come back to. Of two equally near, the later one.
            kept = sorted(self._used, key=lambda index: (abs(index - here), -index))[:REMEMBERED_EPOCHS]
            self._used = {index: self._used[index] for index in sorted(kept)}
