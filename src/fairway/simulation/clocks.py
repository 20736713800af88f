"""`Clocks`: the clocks of a world that are set, or show a wrong time for a moment; and what time each may stamp."""

from __future__ import annotations

from typing import Final

from fairway.simulation.ledger import MISDATED_MS
from fairway.simulation.plan import FAST_DISK_MS, SimulationPlan
from fairway.simulation.world import World
from fairway.units import NS_PER_MS

CLOCK_NOTICED_MS: Final = 120_000
"""A clock that was set is followed within this time."""


class Clocks:
    """Sets the clocks of participants."""

    def __init__(self, world: World, plan: SimulationPlan) -> None:
        self._world, self._plan = world, plan
        self._blips: dict[str, tuple[int, int]] = {}
        """Of clocks that show a wrong time for a moment, the skew before, and the life in which it began."""
        self._blipped: dict[str, int] = {}
        self._set_ms: dict[str, int] = {}
        self._held_back_until_ms: dict[str, int] = {}
        """Until when something may leave that was stamped while a clock was behind for a moment."""

    def set(self, name: str, ahead_ms: int) -> None:
        """Set a clock to be ahead of the world's; channels follow it."""
        self._blips.pop(name, None)
        self._set_ms[name] = self._world.now_ms
        self._world.set_clock(name, ahead_ms)

    def set_right(self, name: str) -> None:
        """Set a clock right if it is further off than clocks may be from the beginning."""
        if abs(self._world.participants[name].machine.skew_ms) > self._plan.clock_skew_ms:
            self.set(name, 0)

    def blip(self, name: str, ahead_ms: int) -> None:
        """Set a clock wrongly, until a call with 0 sets it right; no channel should follow it meanwhile."""
        participant = self._world.participants[name]
        skew_ms = participant.machine.skew_ms
        if ahead_ms and name not in self._blips:
            self._blips[name] = skew_ms, participant.lives
            self._world.set_clock(name, skew_ms + ahead_ms)
        elif not ahead_ms and name in self._blips:
            was_behind = skew_ms < self._blips[name][0]
            skew_ms, lives = self._blips.pop(name)
            self._world.set_clock(name, skew_ms)
            if was_behind and (self._plan.disk_ms > FAST_DISK_MS or self._plan.cipher_delay_ms):
                # What was stamped amid it is still with the disk or the cipher.
                self._held_back_until_ms[name] = self._world.now_ms + MISDATED_MS
            changed_ms = max(self._set_ms.get(name, 0), self._blipped.get(name, 0))
            self._blipped[name] = self._world.now_ms
            if lives != participant.lives or self._world.now_ms - changed_ms < CLOCK_NOTICED_MS:
                # A program that began meanwhile knows no other time, and of several changes it is unknown which one
                # lasts.
                self._set_ms[name] = self._world.now_ms

    def wall_ms(self, name: str) -> int | None:
        """Return what a clock showed a message that is stamped now; None if that cannot be said."""
        participant = self._world.participants.get(name)
        if participant is None or self._world.now_ms - self._set_ms.get(name, 0) < CLOCK_NOTICED_MS:
            return None
        if self._world.now_ms < self._held_back_until_ms.get(name, 0):
            return None
        ahead_ms = 0
        if name in self._blips:
            # No channel that ran before follows a clock that is ahead for a moment; one that is behind it follows.
            skew_ms, lives = self._blips[name]
            ahead_ms = participant.machine.skew_ms - skew_ms
            if lives != participant.lives or ahead_ms < 0:
                return None
        return participant.machine.time_ns() // NS_PER_MS - ahead_ms
