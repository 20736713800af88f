"""`Watch`: what a light client must do for its program, checked where the two meet.

A channel makes up for much that a light client fails to do: it sends again, it asks others and stores. So the promises
of the light client are checked by themselves:

- It hands on what it was asked for, each message once, and nothing that a store forged.
- What service nodes relay reaches each light client that nothing has befallen for a while.
- Its status is so: it is connected if a service node serves it, and not if none does.
- A send succeeds while a sound service node is connected, at once if another one was slow a moment ago, and is final
  or a matter of pace only if service nodes say so.
- What was accepted a store has, or it is sent again, a few times, and to no node at once, nor while no store answers.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fairway.simulation.light.seat import LightSeat
from fairway.waku.light.options import LightOptions
from fairway.waku.node import RoutedMessage, SendResult, StorePage
from fairway.wire.lightpush import StatusCode

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
    subscriptions: int
    """Number of content topics to which the light client is subscribed there."""


@dataclass(slots=True)
class _Past:
    """What is known of one light client."""

    seat: LightSeat
    calm_since_s: float
    handed_on: dict[bytes, float] = field(default_factory=dict)
    unlinked_since_s: float | None = None
    unsubscribed_since_s: float | None = None
    slow_until_s: float = -_REMEMBERED_S
    """When the last send ended that took long."""
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
        self.stores_all = True
        """Whether stores keep what they get."""
        self._loop, self._sights, self._is_kept = loop, sights, is_kept
        self._pasts: dict[str, _Past] = {}
        self._told: set[tuple[str, str]] = set()
        self._codes: dict[bytes, set[int]] = {}
        self._refused_by_sound: Counter[bytes] = Counter()
        self._pushed_s: dict[bytes, float] = {}
        self._accepted_s: dict[bytes, float] = {}
        self._pushed_to: set[tuple[bytes, int]] = set()
        """Which message came to the service node of which number."""

    # What befalls light clients.

    def began(self, seat: LightSeat) -> None:
        """Note that a light client starts."""
        self._pasts[seat.name] = _Past(seat, self._loop.time() + _AFRESH_S)

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

    def page_came(self, seat: LightSeat, page: StorePage) -> None:
        """Check a page that a light client brings from stores."""
        if not all(message.is_genuine for message in page.messages):
            self._tell(seat, f"{seat.name} was given a message from a store under a hash that is not its own")

    def published(self, sender: str, message: RoutedMessage) -> None:
        """Expect that all light clients hear a message that service nodes now have."""
        now_s = self._loop.time()
        if self.is_loud or self.loses_pushes or self.is_parted:
            return
        for name, past in self._pasts.items():
            if name != sender and past.calm_since_s < now_s and self._is_served(past.seat) and past.seat.criteria:
                self._loop.call_later(_UNHEARD_S, self._must_have_heard, past, past.calm_since_s, message)

    def pushed(self, sender: str, message_hash: bytes, number: int) -> None:
        """Note a push that came to the service node of a number."""
        now_s, past = self._loop.time(), self._pasts.get(sender)
        first_s = self._pushed_s.setdefault(message_hash, now_s)
        has_it = (message_hash, number) in self._pushed_to
        self._pushed_to.add((message_hash, number))
        if past is not None and has_it and past.calm_since_s < first_s and now_s - first_s < _SOON_S:
            self._tell(past.seat, f"{sender} pushed a message to the same service node twice in {_SOON_S:.1f} s")
        accepted_s = self._accepted_s.get(message_hash)
        if past is not None and has_it and accepted_s is not None and past.store_answered_s < accepted_s:
            self._tell(past.seat, f"{sender} pushed a message again, and no store said since that it lacks it")
        is_due = past is not None and past.calm_since_s < first_s and not self.is_loud
        if past is not None and is_due and now_s - first_s > _AGAIN_S:
            self._tell(past.seat, f"{sender} pushed a message again, {now_s - first_s:.0f} s after the first time")

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
        if was_calm and not (self.is_loud or result.accepted or is_refused):
            self._tell(seat, f"a send of {seat.name} failed, though a sound service node serves it: {result.detail}")
        if now_s - began_s >= _SLOW_S:
            if was_calm and self.has_few_bad and not self.is_loud and 0 < began_s - past.slow_until_s < _REMEMBERED_S:
                self._tell(seat, f"a send of {seat.name} waited for a service node that failed a moment ago")
            past.slow_until_s = now_s
        if result.accepted and was_calm and self.stores_all and not message.message.ephemeral:
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
        is_lost = self._is_still(past, calm_since_s) and self.stores_all and not self._is_kept(message.message_hash)
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
            is_due = seat.is_started and past.calm_since_s < now_s and not self.is_loud
            if is_due and self._is_served(seat) and not is_connected:
                self._tell(seat, f"{seat.name} says that it is not connected, and a service node is there to serve it")

    def _tell(self, seat: LightSeat, sentence: str) -> None:
        """Note what is wrong, of each kind and light client once."""
        kind = sentence.replace(seat.name, "").partition(":")[0][:40]
        if (seat.name, kind) not in self._told:
            self._told.add((seat.name, kind))
            self.found.append((self._loop.time(), seat.name, sentence))
