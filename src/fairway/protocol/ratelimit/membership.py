"""What the channels of one node share: one count against the rate limit, and one pace at which the node takes messages.

An RLN membership is the node's, so that each channel counts what all of them send. A channel without a limit knows of
no membership: what it sends does not count against a limit that another channel only has in its configuration.

A node's requests a second are granted to the node, too. Where several channels want more than there is, the one that
was served least goes first: so each gets an equal share, and what one does not want is left to the others.

Each channel keeps its own limits (`Quota`) and makes the common count durable with its own state. A channel that comes
back takes the highest count that any of them has on record.
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
class Member:
    """One channel of a membership."""

    membership: Membership
    quota: Quota
    changed: Callable[[], None]
    """Called when the common count changed."""
    served: int
    """Transmissions so far; a channel that joined later begins where the least served one stands."""
    claimed: tuple[int, int] = (0, 0)
    """How many transmissions of this channel wait, and until when other channels take account of them."""

    def owed_first(self, now_ms: int) -> tuple[int, int]:
        """Return how many transmissions of others go before the next one of this channel, and until when at most."""
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
        """Take back a charge for a transmission that was not sent."""
        self.served -= 1
        for member in self.membership:
            member.quota.refund(charged_at_ms, configured=self._counts_for(member))
            member.changed()

    def _counts_for(self, member: Member) -> bool:
        """Return whether the configured limit of a channel counts what this channel sends."""
        return member is self or self.quota.limiting

    def exhaust(self, now_ms: int) -> None:
        """Note that the network or the provider said that nothing is left in the running epoch."""
        for member in self.membership:
            member.quota.exhaust(now_ms)
            member.changed()

    def learn(self) -> None:
        """Give each channel the highest count that any channel has on record, after a restart."""
        members = list(self.membership)
        for member in members:
            learned = [member.quota.merge(other.quota) for other in members if other is not member]
            if any(learned):
                member.changed()


class Membership:
    """The channels of one node, in the order in which they joined.

    A channel is forgotten when its rate limit manager is no longer in use.
    """

    def __init__(self) -> None:
        self.pace = Pace()
        self._members: list[ref[Member]] = []

    def __iter__(self) -> Iterator[Member]:
        return iter([member for known in self._members if (member := known()) is not None])

    def join(self, quota: Quota, changed: Callable[[], None]) -> Member:
        """Add a channel, which counts from now on what all of them send."""
        served = min((member.served for member in self), default=0)
        member = Member(self, quota, changed, served)
        # No callback takes a member out: it would change the list while the collector runs amid a copy of it.
        self._members = [*(known for known in self._members if known() is not None), ref(member)]
        if len(self._members) > 1:
            member.learn()
        return member
