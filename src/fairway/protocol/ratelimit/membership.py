"""The channels of one node share one count against the rate limit, and one pace.

An RLN membership belongs to the node, so each channel counts the transmissions of all channels. A channel without a
limit knows no membership: its transmissions do not count against the configured limit of another channel.

The pace belongs to the node, too. If the channels want to send more than it allows, the channel with the fewest
transmissions is first. So the channels have equal shares, and the unused share of one is left to the others.

Each channel keeps its own limits (`Quota`) and persists the common count with its own state. A restored channel takes
the highest count that any channel of the node has on record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import ref

from fairway.protocol.ratelimit.pace import Pace

if TYPE_CHECKING:
    from fairway.protocol.ratelimit.quota import Quota


@dataclass(eq=False)
class MembershipUser:
    """One channel of a membership."""

    membership: Membership
    quota: Quota
    changed: Callable[[], None]
    """Callback after each change of the common count."""
    served: int
    """Transmissions so far; a channel that joins starts at the lowest number of the other channels."""
    claimed: tuple[int, int] = (0, 0)
    """Number of waiting transmissions of this channel, and the time until which other channels count them."""

    def owed_first(self, now_ms: int) -> tuple[int, int]:
        """Return how many transmissions of other channels are first, and the latest time until which they are."""
        first, until_ms = 0, now_ms
        for other in self.membership:
            waiting, valid_until_ms = other.claimed
            if other is not self and waiting and now_ms <= valid_until_ms and other.served < self.served:
                first += min(waiting, self.served - other.served)
                until_ms = max(until_ms, valid_until_ms)
        return first, until_ms

    def charge(self, now_ms: int) -> None:
        """Count one transmission of this channel."""
        self.served += 1
        for member in self.membership:
            member.quota.charge(now_ms, configured=self._counts_for(member))
            member.changed()

    def refund(self, charged_at_ms: int) -> None:
        """Remove the charge of a transmission that was not sent."""
        self.served -= 1
        for member in self.membership:
            member.quota.refund(charged_at_ms, configured=self._counts_for(member))
            member.changed()

    def _counts_for(self, member: MembershipUser) -> bool:
        """Return whether the configured limit of a channel counts the transmissions of this channel."""
        return member is self or self.quota.limiting

    def exhaust(self, now_ms: int) -> None:
        """Close the running epoch for all channels, because the provider raised BUDGET_EXHAUSTED."""
        for member in self.membership:
            member.quota.exhaust(now_ms)
            member.changed()

    def learn(self) -> None:
        """Exchange the counts with all other channels, which have exchanged theirs; each takes the highest."""
        others = [member for member in self.membership if member is not self]
        for other in others:
            if other.quota.merge(self.quota):
                other.changed()
        learned = [self.quota.merge(other.quota) for other in others]
        if any(learned):
            self.changed()


class Membership:
    """The channels of one node, in the order in which they joined.

    A channel leaves when its rate limit manager is garbage collected.
    """

    def __init__(self) -> None:
        self.pace = Pace()
        self._members: list[ref[MembershipUser]] = []

    def __iter__(self) -> Iterator[MembershipUser]:
        return iter([member for known in self._members if (member := known()) is not None])

    def join(self, quota: Quota, changed: Callable[[], None]) -> MembershipUser:
        """Add a channel, which counts the transmissions of all channels from now on."""
        served = min((member.served for member in self), default=0)
        member = MembershipUser(self, quota, changed, served)
        # Not removed by a weak reference callback: the garbage collector could call it during a copy of the list.
        self._members = [*(known for known in self._members if known() is not None), ref(member)]
        if len(self._members) > 1:
            member.learn()
        return member
