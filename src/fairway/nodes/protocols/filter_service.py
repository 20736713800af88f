"""`FilterService`: the filter subscriptions of peers (12/WAKU2-FILTER).

Pure; time is an argument. It turns requests into responses, and a message into the peers that subscribed to it.
Its memory is bounded. Finding the subscribers of a message takes time proportional to their number. A
subscription outlasts the connection of its peer, because clients reconnect, until a connected peer needs the room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from fairway.errors import DecodeError
from fairway.nodes.listeners import Criterion
from fairway.nodes.protocols.request_limiter import RequestLimiter
from fairway.wire.filter import (
    FilterSubscribeRequest,
    FilterSubscribeResponse,
    FilterSubscribeType,
    decode_filter_subscribe_request,
    encode_filter_subscribe_response,
)

MAX_SUBSCRIBERS: Final = 1_000
"""Peers with a subscription."""
MAX_CRITERIA: Final = 1_000
"""Pairs of pubsub and content topic of one peer."""
MAX_TOTAL_CRITERIA: Final = 100_000
"""Such pairs of all peers together."""
SILENCE_S: Final = 300.0
"""Lifetime of a subscription without a request of its peer; clients ping every minute."""
_MAX_CONTENT_TOPIC_BYTES: Final = 1_024


class FilterStatus(IntEnum):
    """Status codes of filter responses."""

    OK = 200
    BAD_REQUEST = 400
    NOT_FOUND = 404
    TOO_MANY_REQUESTS = 429
    SERVICE_UNAVAILABLE = 503


@dataclass(slots=True)
class _Subscriber:
    last_heard_s: float
    criteria: set[Criterion] = field(default_factory=set)


class FilterService:
    """The subscriptions of all peers at one node."""

    def __init__(self, *, pubsub_topics: AbstractSet[str], limiter: RequestLimiter) -> None:
        """``pubsub_topics`` may change: a subscription needs a topic that it has at that time."""
        self._pubsub_topics: Final = pubsub_topics
        self._limiter: Final = limiter
        self._subscribers: dict[str, _Subscriber] = {}
        self._away: dict[str, None] = {}  # in the order in which they left
        self.answered: Final[Counter[tuple[FilterSubscribeType, FilterStatus]]] = Counter()
        """Answered requests by type and status."""
        self._criteria = 0
        self._by_criterion: dict[Criterion, dict[str, None]] = {}

    def __len__(self) -> int:
        """Return how many peers have a subscription."""
        return len(self._subscribers)

    def respond(self, peer: str, data: bytes, now_s: float) -> bytes:
        """Return the response to the bytes of a request."""
        try:
            request = decode_filter_subscribe_request(data)
        except DecodeError as error:
            response = _answer("", FilterStatus.BAD_REQUEST, str(error))
        else:
            response = self.handle(peer, request, now_s)
        return encode_filter_subscribe_response(response)

    def handle(self, peer: str, request: FilterSubscribeRequest, now_s: float) -> FilterSubscribeResponse:
        """Carry out a request, and return the response."""
        if not self._limiter.admit(peer, now_s):
            status, detail = FilterStatus.TOO_MANY_REQUESTS, "too many requests; wait a second"
        elif (problem := request.problem()) is not None:
            status, detail = FilterStatus.BAD_REQUEST, problem
        else:
            status, detail = self._done(peer, request, now_s)
        self.answered[request.filter_subscribe_type, status] += 1
        return _answer(request.request_id, status, detail)

    def subscribers_of(self, pubsub_topic: str, content_topic: str) -> tuple[str, ...]:
        """Return the peers that want a message, in the order in which they subscribed."""
        return tuple(self._by_criterion.get((pubsub_topic, content_topic), ()))

    def subscribers(self) -> tuple[str, ...]:
        """Return the peers with a subscription, in the order in which they subscribed first."""
        return tuple(self._subscribers)

    def criteria_of(self, peer: str) -> frozenset[Criterion]:
        """Return the topics to which a peer is subscribed."""
        subscriber = self._subscribers.get(peer)
        return frozenset(subscriber.criteria) if subscriber else frozenset()

    def expire(self, now_s: float) -> tuple[str, ...]:
        """Forget and return the peers that have been silent for too long."""
        silent = tuple(
            peer for peer, subscriber in self._subscribers.items() if now_s - subscriber.last_heard_s > SILENCE_S
        )
        for peer in silent:
            self.forget(peer)
        return silent

    def left(self, peer: str) -> None:
        """Note that a peer disconnected: its subscription stays until it is silent for too long, or room is needed."""
        if peer in self._subscribers:
            self._away[peer] = None

    def forget(self, peer: str) -> bool:
        """Remove all subscriptions of a peer, and return whether there were any."""
        subscriber = self._subscribers.get(peer)
        if subscriber is None:
            return False
        self._remove(peer, subscriber, set(subscriber.criteria))
        return True

    def _done(self, peer: str, request: FilterSubscribeRequest, now_s: float) -> tuple[FilterStatus, str]:
        subscriber = self._subscribers.get(peer)
        if subscriber is not None:
            subscriber.last_heard_s = now_s
            self._away.pop(peer, None)
        criteria = {(request.pubsub_topic or "", topic) for topic in request.content_topics}
        match request.filter_subscribe_type:
            case FilterSubscribeType.SUBSCRIBE:
                return self._subscribe(peer, subscriber, criteria, now_s)
            # "SUBSCRIBER_PING", "UNSUBSCRIBE", "UNSUBSCRIBE_ALL": without a subscription there is nothing to be found.
            case _ if subscriber is None:
                return FilterStatus.NOT_FOUND, "this peer has no subscription here"
            case FilterSubscribeType.UNSUBSCRIBE:
                if not criteria & subscriber.criteria:
                    return FilterStatus.NOT_FOUND, "this peer is not subscribed to any of these"
                self._remove(peer, subscriber, criteria)
            case FilterSubscribeType.UNSUBSCRIBE_ALL:
                self._remove(peer, subscriber, set(subscriber.criteria))
            case FilterSubscribeType.SUBSCRIBER_PING:
                return FilterStatus.OK, "OK"
        return FilterStatus.OK, "OK"

    def _subscribe(
        self, peer: str, subscriber: _Subscriber | None, criteria: set[Criterion], now_s: float
    ) -> tuple[FilterStatus, str]:
        if unserved := {pubsub_topic for pubsub_topic, _ in criteria} - self._pubsub_topics:
            return FilterStatus.BAD_REQUEST, f"this node does not serve {min(unserved)[:200]!r}"
        if any(len(topic.encode(errors="replace")) > _MAX_CONTENT_TOPIC_BYTES for _, topic in criteria):
            return FilterStatus.BAD_REQUEST, f"content topics have at most {_MAX_CONTENT_TOPIC_BYTES} bytes"
        new = criteria - subscriber.criteria if subscriber else criteria
        if len(new) + (len(subscriber.criteria) if subscriber else 0) > MAX_CRITERIA:
            return FilterStatus.SERVICE_UNAVAILABLE, f"a peer has at most {MAX_CRITERIA} content topics here"
        while self._away and (
            self._criteria + len(new) > MAX_TOTAL_CRITERIA
            or (subscriber is None and len(self._subscribers) >= MAX_SUBSCRIBERS)
        ):
            self.forget(next(iter(self._away)))
        if self._criteria + len(new) > MAX_TOTAL_CRITERIA:
            return FilterStatus.SERVICE_UNAVAILABLE, "this node has no room for more content topics"
        if subscriber is None:
            if len(self._subscribers) >= MAX_SUBSCRIBERS:
                return FilterStatus.SERVICE_UNAVAILABLE, "this node has no room for another subscriber"
            subscriber = self._subscribers[peer] = _Subscriber(now_s)
        subscriber.criteria |= new
        self._criteria += len(new)
        for criterion in new:
            self._by_criterion.setdefault(criterion, {})[peer] = None
        return FilterStatus.OK, "OK"

    def _remove(self, peer: str, subscriber: _Subscriber, criteria: set[Criterion]) -> None:
        for criterion in criteria & subscriber.criteria:
            self._criteria -= 1
            peers = self._by_criterion[criterion]
            del peers[peer]
            if not peers:
                del self._by_criterion[criterion]
        subscriber.criteria -= criteria
        if not subscriber.criteria:
            del self._subscribers[peer]
            self._away.pop(peer, None)


def _answer(request_id: str, status: FilterStatus, detail: str) -> FilterSubscribeResponse:
    return FilterSubscribeResponse(request_id=request_id, status_code=status, status_desc=detail[:1_000])
