"""`Presence`: which participants of a channel are present, derived from the messages that they send anyway.

A participant is present from its first recent message until it says goodbye, or until it is silent through `_CHANCES`
chances to speak. Presence causes no message. So the length of a chance follows from the timer of sync messages
(`fairway.protocol.outgoing.sync_timer`): after each turn of that timer one participant speaks for all.

- After content, a participant that has not acknowledged it keeps a short window. So all participants of a group speak
  one after the other.
- Without content the windows are long, and a turn may fall to any participant.

A chance is n turns for a group of n. In simulated groups of 2 to 100 a present participant missed a chance with a
probability of at most 0.3, also at a loss of 50 %.

Time is an argument. Presence is not persisted: after a restart no participant is present until it is heard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from fairway.events import AwayReason, MemberArrived, MemberAway

_CHANCES: Final = 8
"""Chances to speak that a silent participant misses before it counts as away."""
_RECENT_MS: Final = 1_200_000
"""Largest age of a message that proves presence, by its sender's clock, which may be wrong by minutes."""
_FIRST_SENT_MS: Final = 10_000
"""Largest age of content at its first transmission. Older content may be an answer of another participant (SDS-R)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Another participant of a channel, as far as messages show (`ReliableChannel.members`)."""

    sender_id: str
    is_present: bool
    since_ms: int | None
    """When it became present or away, in Unix milliseconds; None if nothing was heard of it since the start."""
    last_heard_ms: int | None
    """Arrival of its last message that proves presence, in Unix milliseconds; None as above."""


class _Heard(Struct):
    """The messages of one participant that prove presence."""

    since_ms: int
    last_heard_ms: int
    chances: int
    """`Presence._chances` at its last message."""
    lamport: int = 0
    """Its latest Lamport timestamp, in the unit of the profile."""
    is_present: bool = True


class Presence:
    """The participants that are present, and those that went away in this run."""

    def __init__(self, participants: Collection[str], now_ms: int) -> None:
        """Begin without a present participant; ``participants`` has all known ones, and others have no presence."""
        self._participants = participants
        self._turn_ms: Callable[..., int] | None = None
        self._heard: dict[str, _Heard] = {}
        self._present = 0
        self._chances = 0
        """Chances that have passed since the start."""
        self._connected_ms, self._chances_before = now_ms, 0
        """When the node was connected, and the chances before that."""
        self._chance_began_ms: int | None = now_ms
        """None while the node is offline."""
        self._has_news = False
        """Whether the present chance began with content."""
        self.at_ms: int | None = None
        """When the present chance ends; None if its end changes nothing."""
        self._events: list[MemberArrived | MemberAway] = []

    def follow(self, turn_ms: Callable[..., int]) -> None:
        """Learn the turns of the group from the timer of sync messages (`SyncTimer.turn_ms`)."""
        self._turn_ms = turn_ms
        self._plan()

    def members(self) -> tuple[Member, ...]:
        """Return all known participants: the present ones first, each group by sender id."""
        members = [self.member(name) for name in self._participants]
        return tuple(sorted(members, key=lambda member: (not member.is_present, member.sender_id)))

    def member(self, name: str) -> Member:
        """Return a participant, also an unknown one."""
        heard = self._heard.get(name)
        if heard is None:
            return Member(sender_id=name, is_present=False, since_ms=None, last_heard_ms=None)
        return Member(
            sender_id=name, is_present=heard.is_present, since_ms=heard.since_ms, last_heard_ms=heard.last_heard_ms
        )

    def present(self) -> frozenset[str]:
        """Return the sender ids of the participants that are present."""
        return frozenset(name for name, heard in self._heard.items() if heard.is_present)

    def is_present(self, name: str) -> bool:
        """Return whether a participant is present."""
        heard = self._heard.get(name)
        return heard is not None and heard.is_present

    def is_away(self, name: str = "") -> bool:
        """Return whether a participant, without a name every one, is known to be away.

        A participant that was not heard is away once it missed as many chances as one that falls silent. After the
        node was offline the same holds for those that went away before: they may have returned.
        """
        if self._chance_began_ms is None or (self._present and (not name or self.is_present(name))):
            return False
        heard = self._heard.get(name)
        return self._has_listened or (heard is not None and heard.since_ms >= self._connected_ms)

    def content_transmitted(self, now_ms: int) -> None:
        """Note that content was sent or received, also again: every present participant will now speak."""
        if self._chance_began_ms is not None and not self._has_news:
            self._begin_chance(now_ms, has_news=True)

    def set_connected(self, connected: bool, now_ms: int) -> None:
        """Stop while the node is offline and receives nothing; then begin a new chance."""
        if connected is (self._chance_began_ms is None):
            self._connected_ms, self._chances_before = now_ms, self._chances
            self._begin_chance(now_ms if connected else None, has_news=False)

    def plan_anew(self, now_ms: int) -> None:
        """Begin the present chance anew, after the clock was set back."""
        if self._chance_began_ms is not None:
            self._begin_chance(now_ms, has_news=self._has_news)

    def was_sent_now(self, sent_ms: int | None, made_ms: int | None, now_ms: int) -> bool:
        """Return whether the sender of a received message was there when it arrived.

        ``sent_ms`` is the timestamp of its WakuMessage. ``made_ms`` is the Lamport timestamp of content, which is not
        older than the clock of its author was when he made it. Any participant can transmit content again.
        """
        if sent_ms is None:
            sent_ms = now_ms
        return now_ms - sent_ms <= _RECENT_MS and (made_ms is None or sent_ms - made_ms <= _FIRST_SENT_MS)

    def heard(self, name: str, lamport: int, now_ms: int, *, leaves: bool = False) -> None:
        """Note a message that its sender sent just now; ``leaves`` if it says goodbye.

        ``lamport`` is 0 for a message without a timestamp. Messages overtake each other, so the later timestamp of a
        goodbye and another message decides.
        """
        heard = self._heard.get(name)
        if heard is None:
            if name not in self._participants:
                return
            heard = self._heard[name] = _Heard(now_ms, now_ms, self._chances, lamport, is_present=not leaves)
            if not leaves:
                self._arrived(name)
            return
        is_late = lamport <= heard.lamport
        heard.lamport = max(heard.lamport, lamport)
        if is_late and (leaves or not heard.is_present):
            return
        heard.last_heard_ms, heard.chances = now_ms, self._chances
        if leaves and heard.is_present:
            self._went_away(name, heard, AwayReason.GOODBYE, now_ms)
        elif not (leaves or heard.is_present):
            heard.is_present, heard.since_ms = True, now_ms
            self._arrived(name)

    def end_chance(self, now_ms: int) -> None:
        """If the present chance has ended, note the participants that missed too many, and begin the next one."""
        if self.at_ms is None or now_ms < self.at_ms:
            return
        self._chances += 1
        for name, heard in self._heard.items():
            if heard.is_present and self._chances - heard.chances > _CHANCES:
                self._went_away(name, heard, AwayReason.SILENT, now_ms)
        self._begin_chance(now_ms, has_news=False)

    def take_events(self) -> Sequence[MemberArrived | MemberAway]:
        """Return the events so far, each once."""
        if not self._events:
            return ()
        events, self._events = self._events, []
        return events

    def forget_one(self) -> str | None:
        """Forget a participant that is not present, and return its name; None if all are present."""
        name = next((name for name in self._participants if not self.is_present(name)), None)
        if name is not None:
            self._heard.pop(name, None)
        return name

    @property
    def _has_listened(self) -> bool:
        """Whether every participant has had as many chances as one that falls silent."""
        return self._chances - self._chances_before > _CHANCES

    def _begin_chance(self, began_ms: int | None, *, has_news: bool) -> None:
        self._chance_began_ms, self._has_news = began_ms, has_news
        self._plan()

    def _plan(self) -> None:
        """Set the end of the present chance, for the present size of the group."""
        turn_ms = 0 if self._turn_ms is None else self._turn_ms(has_news=self._has_news)
        is_idle = self._has_listened and not self._present
        self.at_ms = None
        if self._chance_began_ms is not None and turn_ms and not is_idle:
            # At least one other participant may be there.
            self.at_ms = self._chance_began_ms + turn_ms * (max(1, self._present) + 1)

    def _arrived(self, name: str) -> None:
        self._present += 1
        self._events.append(MemberArrived(sender_id=name))
        self._plan()

    def _went_away(self, name: str, heard: _Heard, reason: AwayReason, now_ms: int) -> None:
        self._present -= 1
        heard.is_present, heard.since_ms = False, now_ms
        self._events.append(MemberAway(sender_id=name, reason=reason, last_heard_ms=heard.last_heard_ms))
        self._plan()
