"""`Watch`: what a light client must do for its program, checked where the two meet.

A channel makes up for much that a light client fails to do: it sends again, it asks others and stores. So the promises
of the light client are checked by themselves:

- It hands on what it was asked for, each message once, and nothing that a store forged.
- What service nodes relay reaches each light client that nothing has befallen for a while.
- Its status is so: it is connected if a service node serves it, and not if none does.
- A send succeeds while a sound service node is connected, at once if another one was slow a moment ago, and is final
  or a matter of pace only if service nodes say so.
- It says that a message was sent only if a service node says that it relayed it, if any sound one could.
- A service node that lets requests run out of time is not asked again while others do better, and its subscription
  goes to another one.
- A store query brings what any sound store has, and does not fail while one answers.
- What was accepted a store has, or it is sent again, a few times, and to no node at once, nor while no store answers.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairway.simulation.light.archive import TroubledArchive
from fairway.simulation.light.seat import LightSeat
from fairway.simulation.light.troubles import Vice
from fairway.waku.light.options import LightOptions
from fairway.waku.node import RoutedMessage, SendResult, StorePage, StoreQuery
from fairway.wire.lightpush import StatusCode
from fairway.wire.store import STORE_QUERY_PROTOCOL

_OPTIONS: Final = LightOptions()
_LOOK_S: Final = 2.0
_AFRESH_S: Final = 30.0
"""So long after its links changed a light client is as it should be."""
_AFTER_DEAF_S: Final = _OPTIONS.ping_interval_s + 30.0
"""So long after service nodes forgot its subscriptions."""
_CUT_OFF_S: Final = 8.0
"""After so long without any link it knows that."""
_UNHEARD_S: Final = 25.0
"""Within this time a message that was published is heard."""
_REPLACED_S: Final = _OPTIONS.ping_interval_s + _OPTIONS.max_failed_pings * (_OPTIONS.request_timeout_s + 1.0) + 5.0
"""Within this time a service node that does not answer pings is replaced by another one."""
_AVOIDED_S: Final = 110.0
"""For so long a service node that failed is asked only if others fail, too."""
_TIMED_OUT_S: Final = 2 * _OPTIONS.request_timeout_s + 2.0
"""After so long a client knows that a request has no answer, and so what came after it in the same moment."""
_STORES_ASKED: Final = 3
"""So many stores are asked at once."""
_UNSUBSCRIBED_S: Final = 2 * _AFTER_DEAF_S
_ONCE_S: Final = 290.0
"""For so long a light client remembers what it handed on."""
_SLOW_S: Final = 9.0
_REMEMBERED_S: Final = 8.0
"""So soon after it failed a bad service node is as bad as it was: it has answered nothing meanwhile."""
_SOUGHT_S: Final = 60.0
"""Within this time a light client has asked for a message, and sent it again, as often as it does."""
_SOON_S: Final = _OPTIONS.presence_first_s
"""So soon after the first time no message is pushed again: only then a store is asked whether it has it."""
_AGAIN_S: Final = 85.0
"""So long after the first time a light client has given up to push a message again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A service node that a light client could reach now."""

    is_sound: bool
    """Whether it does what service nodes do."""
    archive: TroubledArchive | None
    """What it keeps, if it answers queries as it should."""
    subscriptions: int
    """Number of content topics to which the light client is subscribed there."""


@dataclass(slots=True)
class _Past:
    """What is known of one light client."""

    seat: LightSeat
    calm_since_s: float
    began_s: float
    """When its present life began."""
    handed_on: dict[bytes, float] = field(default_factory=dict)
    unlinked_since_s: float | None = None
    unsubscribed_since_s: float | None = None
    slow_until_s: float = -_REMEMBERED_S
    """When the last send ended that took long."""
    unserved_since_s: float | None = None
    """Since when no sound service node has its subscription, though one is there."""
    failed_s: dict[tuple[int, str], float] = field(default_factory=dict)
    """When a service node first let a request run out of time, by its number and the protocol."""
    found: dict[StoreQuery, set[bytes]] = field(default_factory=dict)
    """What pages of a query brought that goes on."""
    expected: dict[StoreQuery, set[bytes]] = field(default_factory=dict)
    """What sound stores had of it when it began."""
    store_answered_s: float = -math.inf
    """When a store last answered it, in whatever way."""


class Watch:
    """Watches all light clients of a network."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        sights: Callable[[LightSeat], Sequence[Sight]],
        is_kept: Callable[[bytes], bool],
    ) -> None:
        """``sights`` returns the service nodes that a light client reaches, ``is_kept`` whether any store has it."""
        self.found: list[tuple[float, str, str]] = []
        """What was wrong: when in seconds of the loop, of whom, and a sentence."""
        self.is_loud = False
        """Whether answers of sound service nodes get lost or go wrong, too, so that less can be expected."""
        self.loses_pushes = False
        """Whether service nodes lose what they should push."""
        self.is_parted = False
        """Whether service nodes do not reach each other."""
        self.has_few_bad = True
        """Whether so many service nodes are sound that each send can do with them."""
        self.vice: Vice | None = None
        """What all bad service nodes do, if that is always the same."""
        self.lies = False
        """Whether stores lie, or do not say all."""
        self.loses_answers = False
        """Whether answers of stores get lost."""
        self.store_all_since_s = -math.inf
        """Since when stores keep all that they get."""
        self._loop, self._sights, self._is_kept = loop, sights, is_kept
        self._pasts: dict[str, _Past] = {}
        self._told: set[tuple[str, str]] = set()
        self._codes: dict[bytes, set[int]] = {}
        self._refused_by_sound: Counter[bytes] = Counter()
        self._pushed_s: dict[bytes, float] = {}
        self._accepted_s: dict[bytes, float] = {}
        self._claimed: set[bytes] = set()
        """What a service node relayed, or says that it did."""
        self._pushed_to: set[tuple[bytes, int]] = set()
        self._dropped_s: dict[int, float] = {}
        """When a service node ended the stream of a push without an answer last, by its number."""
        """Which message came to the service node of which number."""

    # What befalls light clients.

    def began(self, seat: LightSeat) -> None:
        """Note that a light client starts."""
        self._pasts[seat.name] = _Past(seat, self._loop.time() + _AFRESH_S, self._loop.time())

    def ended(self, seat: LightSeat) -> None:
        """Note that it is gone."""
        past = self._pasts.get(seat.name)
        if past is not None and past.seat is seat:
            del self._pasts[seat.name]

    def disturb(self, name: str | None = None, *, is_deaf: bool = False) -> None:
        """Note that something befalls the links of a light client, or of all, or that it was forgotten."""
        until_s = self._loop.time() + (_AFTER_DEAF_S if is_deaf else _AFRESH_S)
        for who, past in self._pasts.items():
            if name in {None, who}:
                past.calm_since_s = max(past.calm_since_s, until_s)

    def start(self) -> None:
        """Look at all of them now and then."""
        self._look()

    # What they do.

    def handed_on(self, seat: LightSeat, message: RoutedMessage) -> None:
        """Check a message that a light client hands to its program."""
        past = self._past_of(seat)
        if past is None:
            return
        now_s = self._loop.time()
        if (message.pubsub_topic, message.message.content_topic) not in seat.criteria:
            self._tell(seat, f"{seat.name} was handed a message of {message.message.content_topic!r}, unasked")
        if now_s - past.handed_on.get(message.message_hash, -_ONCE_S) < _ONCE_S:
            self._tell(seat, f"{seat.name} was handed the same message twice")
        past.handed_on[message.message_hash] = now_s

    def queried(self, seat: LightSeat, query: StoreQuery, cursor: bytes | None) -> None:
        """Note what sound stores have of a query that begins."""
        past, sights = self._past_of(seat), self._sights(seat)
        if past is not None and cursor is None and len(sights) <= _STORES_ASKED and not self.lies:
            archives = [sight.archive for sight in sights if sight.archive is not None]
            past.expected[query] = {each.message_hash for archive in archives for each in archive.matching(query)}

    def page_came(
        self, seat: LightSeat, query: StoreQuery, cursor: bytes | None, page: StorePage | None, began_s: float
    ) -> None:
        """Check a page that a light client brings from stores, or that it brings none."""
        past = self._past_of(seat)
        is_calm = past is not None and past.calm_since_s < began_s and not (self.is_loud or self.loses_answers)
        if past is not None:
            self._check_page(past, query, cursor, page, is_calm=is_calm and self._is_served(seat))
        if page is not None and not all(message.is_genuine for message in page.messages):
            self._tell(seat, f"{seat.name} was given a message from a store under a hash that is not its own")

    def _check_page(
        self, past: _Past, query: StoreQuery, cursor: bytes | None, page: StorePage | None, *, is_calm: bool
    ) -> None:
        seat = past.seat
        found = past.found.pop(query, set()) if cursor is not None else set[bytes]()
        expected = past.expected.pop(query, None)
        if page is None:
            # Who goes on where one store stopped depends on that one.
            if is_calm and cursor is None:
                self._tell(seat, f"{seat.name} was told that no store answers, though a sound one is there")
            return
        found.update(message.message_hash for message in page.messages)
        if not is_calm or self.lies or expected is None:
            return
        if page.cursor is not None:
            past.found[query], past.expected[query] = found, expected
            return
        if expected - found:
            self._tell(seat, f"{seat.name} was not given {len(expected - found)} messages that a sound store had")

    def published(self, sender: str, message: RoutedMessage) -> None:
        """Expect that all light clients hear a message that service nodes now have."""
        now_s = self._loop.time()
        if self.is_loud or self.loses_pushes or self.is_parted:
            return
        for name, past in self._pasts.items():
            if name != sender and past.calm_since_s < now_s and self._is_served(past.seat) and past.seat.criteria:
                self._loop.call_later(_UNHEARD_S, self._must_have_heard, past, past.calm_since_s, message)

    def dropped(self, number: int) -> None:
        """Note that the service node of a number ended the stream of a push without an answer."""
        self._dropped_s[number] = self._loop.time()

    def pushed(self, sender: str, message_hash: bytes, number: int) -> None:
        """Note a push that came to the service node of a number."""
        now_s, past = self._loop.time(), self._pasts.get(sender)
        first_s = self._pushed_s.setdefault(message_hash, now_s)
        # A request whose stream ended without an answer is repeated where it was, too.
        has_it = (message_hash, number) in self._pushed_to and now_s - self._dropped_s.get(number, -math.inf) > _SOON_S
        self._pushed_to.add((message_hash, number))
        if past is not None and has_it and past.calm_since_s < first_s and now_s - first_s < _SOON_S:
            self._tell(past.seat, f"{sender} pushed a message to the same service node twice in {_SOON_S:.1f} s")
        accepted_s = self._accepted_s.get(message_hash)
        # What an earlier life sent may still arrive.
        is_its_own = past is not None and accepted_s is not None and accepted_s >= past.began_s
        if past is not None and has_it and is_its_own and past.store_answered_s < (accepted_s or 0.0):
            self._tell(past.seat, f"{sender} pushed a message again, and no store said since that it lacks it")
        is_due = past is not None and past.calm_since_s < first_s and not self.is_loud
        if past is not None and is_due and now_s - first_s > _AGAIN_S:
            self._tell(past.seat, f"{sender} pushed a message again, {now_s - first_s:.0f} s after the first time")

    def claimed(self, message_hash: bytes) -> None:
        """Note a message that a service node relayed, or says that it did."""
        self._claimed.add(message_hash)

    def failed(self, seat: LightSeat, number: int, protocol: str) -> None:
        """Check a request that a service node lets run out of time: for a while others are asked that do better."""
        past, now_s = self._past_of(seat), self._loop.time()
        if past is None or self.vice is None or self.is_loud or protocol == STORE_QUERY_PROTOCOL:
            return
        first_s = past.failed_s.get((number, protocol), -math.inf)
        if now_s - first_s > _AVOIDED_S:
            past.failed_s[number, protocol] = now_s
        elif now_s - first_s > _TIMED_OUT_S and past.calm_since_s < first_s and self._has_enough_sound(seat):
            # What was made before a service node was known to fail is sent there all the same.
            self._tell(seat, f"{seat.name} asked a service node again that had not answered {protocol} a moment ago")

    def _has_enough_sound(self, seat: LightSeat) -> bool:
        return sum(sight.is_sound for sight in self._sights(seat)) >= _OPTIONS.peers_to_use

    def answered(self, message_hash: bytes, code: int, *, is_sound: bool) -> None:
        """Note a refusal that a service node sent for a push."""
        self._codes.setdefault(message_hash, set()).add(code)
        if is_sound:
            self._refused_by_sound[message_hash] += 1

    def store_answered(self, seat: LightSeat) -> None:
        """Note that an answer of a store leaves for a light client."""
        past = self._past_of(seat)
        if past is not None:
            past.store_answered_s = self._loop.time()

    def sent(self, seat: LightSeat, message: RoutedMessage, result: SendResult, began_s: float) -> None:
        """Check what a light client says of a send."""
        past, now_s = self._past_of(seat), self._loop.time()
        if past is None:
            return
        codes = self._codes.pop(message.message_hash, set())
        if result.accepted:
            self._accepted_s[message.message_hash] = now_s
        if result.too_many and codes and StatusCode.TOO_MANY_REQUESTS not in codes:
            self._tell(seat, f"{seat.name} was told to slow down, and service nodes said {sorted(codes)}")
        was_calm = past.calm_since_s < began_s and self._is_served(seat)
        if was_calm and not result.accepted and StatusCode.TOO_MANY_REQUESTS in codes and not result.too_many:
            self._tell(seat, f"{seat.name} was not told to slow down, though a service node said 429")
        is_refused = message.message_hash in self._refused_by_sound
        if was_calm and result.accepted and not (self.is_loud or is_refused or message.message_hash in self._claimed):
            self._tell(seat, f"a send of {seat.name} counts as sent, and a service node was there that relays, unasked")
        if was_calm and not (self.is_loud or result.accepted or is_refused):
            self._tell(seat, f"a send of {seat.name} failed, though a sound service node serves it: {result.detail}")
        if now_s - began_s >= _SLOW_S:
            if was_calm and self.has_few_bad and not self.is_loud and 0 < began_s - past.slow_until_s < _REMEMBERED_S:
                self._tell(seat, f"a send of {seat.name} waited for a service node that failed a moment ago")
            past.slow_until_s = now_s
        is_stored = self.store_all_since_s < began_s
        if result.accepted and was_calm and is_stored and not message.message.ephemeral:
            self._loop.call_later(_SOUGHT_S, self._must_be_kept, past, past.calm_since_s, message)

    # Inside.

    def _past_of(self, seat: LightSeat) -> _Past | None:
        past = self._pasts.get(seat.name)
        return past if past is not None and past.seat is seat else None

    def _is_served(self, seat: LightSeat) -> bool:
        return any(sight.is_sound for sight in self._sights(seat))

    def _is_still(self, past: _Past, calm_since_s: float) -> bool:
        """Return whether nothing has befallen a light client since."""
        return self._pasts.get(past.seat.name) is past and past.calm_since_s == calm_since_s

    def _must_have_heard(self, past: _Past, calm_since_s: float, message: RoutedMessage) -> None:
        if self._is_still(past, calm_since_s) and message.message_hash not in past.handed_on and not self.is_loud:
            self._tell(past.seat, f"{past.seat.name} heard nothing of a message that service nodes relayed")

    def _must_be_kept(self, past: _Past, calm_since_s: float, message: RoutedMessage) -> None:
        is_stored = self.store_all_since_s < math.inf
        is_lost = self._is_still(past, calm_since_s) and is_stored and not self._is_kept(message.message_hash)
        # Who pushes it again and again may be refused each time.
        if is_lost and self._refused_by_sound[message.message_hash] <= 1:
            self._tell(past.seat, f"a message of {past.seat.name} was accepted and no store ever had it")

    def _look(self) -> None:
        self._loop.call_later(_LOOK_S, self._look)
        now_s = self._loop.time()
        for past in self._pasts.values():
            seat, sights = past.seat, self._sights(past.seat)
            is_connected = seat.status.connected
            past.unlinked_since_s = None if sights else past.unlinked_since_s or now_s
            if is_connected and past.unlinked_since_s is not None and now_s - past.unlinked_since_s > _CUT_OFF_S:
                self._tell(seat, f"{seat.name} says that it is connected, and reaches no service node")
            is_subscribed = not seat.criteria or any(sight.subscriptions for sight in sights)
            past.unsubscribed_since_s = None if is_subscribed or not sights else past.unsubscribed_since_s or now_s
            since_s = past.unsubscribed_since_s
            if is_connected and since_s is not None and now_s - since_s > _UNSUBSCRIBED_S:
                self._tell(seat, f"{seat.name} says that it is connected, and no service node has its subscription")
            self._look_who_serves(past, sights)
            is_due = seat.is_started and past.calm_since_s < now_s and not self.is_loud
            if is_due and self._is_served(seat) and not is_connected:
                self._tell(seat, f"{seat.name} says that it is not connected, and a service node is there to serve it")

    def _look_who_serves(self, past: _Past, sights: Sequence[Sight]) -> None:
        """See that a sound service node has the subscription before long, where others have not and it can be known."""
        seat, now_s = past.seat, self._loop.time()
        is_wanted = self.vice is Vice.MUTES and not self.is_loud and seat.is_started and bool(seat.criteria)
        sound = [sight for sight in sights if sight.is_sound]
        if not is_wanted or not sound or past.calm_since_s > now_s or any(sight.subscriptions for sight in sound):
            past.unserved_since_s = None
            return
        past.unserved_since_s = since_s = past.unserved_since_s or now_s
        if now_s - since_s > _REPLACED_S and not any(sight.subscriptions for sight in sights):
            self._tell(seat, f"{seat.name} keeps its subscription at service nodes that have lost it and do not answer")

    def _tell(self, seat: LightSeat, sentence: str) -> None:
        """Note what is wrong, of each kind and light client once."""
        kind = sentence.replace(seat.name, "").partition(":")[0][:40]
        if (seat.name, kind) not in self._told:
            self._told.add((seat.name, kind))
            self.found.append((self._loop.time(), seat.name, sentence))
