"""`FilterClient`: keeps the same filter subscriptions at two service nodes (12/WAKU2-FILTER).

`FilterClient.run` makes the wanted subscriptions at the nodes, pings them, and replaces those that fail. While a node
leaves a ping unanswered, a further node is subscribed, because both nodes may have lost the subscription. Invariants: a
message is delivered once, even if several nodes push it. It is delivered only if it is wanted, and only from a node
that was asked for it. A node that lost the subscription gets it again at the next ping.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from fairway.environment import monotonic_s, new_uuid
from fairway.errors import DecodeError
from fairway.libp2p.errors import Libp2pError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.seen_messages import SeenMessages
from fairway.libp2p.stream import Stream
from fairway.nodes.light.options import LightOptions
from fairway.nodes.light.peer_pool import PeerPool
from fairway.nodes.listeners import Criterion
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.filter_service import MAX_CRITERIA
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.owned_tasks import OwnedTasks
from fairway.wire.filter import (
    FILTER_PUSH_PROTOCOL,
    FILTER_SUBSCRIBE_PROTOCOL,
    MAX_RESPONSE_BYTES,
    FilterSubscribeRequest,
    FilterSubscribeType,
    decode_filter_subscribe_response,
    decode_message_push,
    encode_filter_subscribe_request,
)
from fairway.wire.waku_message import DEFAULT_MAX_ENVELOPE_BYTES

PING_INTERVAL_S: Final = 60.0
"""Interval between filter pings (WAKU-P2P-RELIABILITY, "Filter": "we RECOMMEND 1 minute")."""
MAX_FAILED_PINGS: Final = 2
"""Failed pings in a row after which a filter peer is replaced."""
_TOPICS_PER_REQUEST: Final = 100
_SEEN_TTL_S: Final = 300.0
_MAX_SEEN: Final = 100_000
_TICK_S: Final = 1.0
_PUSHES_PER_TURN: Final = 64
_PUSH_STREAMS: Final = 512
"""Push streams of one node; go-waku opens one for each message of a burst at once."""
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Holder:
    """A node with a subscription request."""

    held: set[Criterion] = field(default_factory=set)
    ping_due_s: float = 0.0
    failed_pings: int = 0
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a request to the node: requests are sent one after the other."""
    is_one_too_many: bool = False
    """Whether it was subscribed because of a silent node that answers again."""


class FilterClient:
    """The filter subscriptions of one light client."""

    def __init__(
        self,
        host: Host,
        requests: PeerRequests,
        pool: PeerPool,
        options: LightOptions,
        *,
        deliver: Callable[[RoutedMessage], object],
        changed: Callable[[], None],
    ) -> None:
        """``deliver`` gets each wanted message once, ``changed`` is called when a node's subscriptions change."""
        self._requests: Final = requests
        self._pool: Final = pool
        self._options: Final = options
        self._deliver: Final = deliver
        self._changed: Final = changed
        self._wanted: Counter[Criterion] = Counter()
        self._unasked: set[Criterion] = set()
        self._holders: dict[PeerId, _Holder] = {}
        self._seen: Final = SeenMessages(ttl_s=_SEEN_TTL_S, max_messages=_MAX_SEEN)
        self._look: Final = asyncio.Event()
        self._tasks: Final = OwnedTasks()
        self.refusal = ""
        """Reason of the last refused subscription; empty if a subscription succeeded since."""
        self.unwanted = 0
        """Pushes without a matching subscription, or that could not be decoded."""
        host.handle(FILTER_PUSH_PROTOCOL, self._pushed, max_streams_per_peer=_PUSH_STREAMS)

    @property
    def holders(self) -> int:
        """Number of nodes that have all wanted subscriptions, apart from new ones not yet requested."""
        wanted = self._wanted.keys() - self._unasked
        return sum(wanted <= holder.held for holder in self._holders.values())

    @property
    def idle(self) -> bool:
        """Whether there is no wanted subscription that was requested."""
        return self._wanted.keys() <= self._unasked

    def has_room(self, criteria: Iterable[Criterion]) -> bool:
        """Return whether nodes keep these criteria, too: they refuse all of a request beyond `MAX_CRITERIA`."""
        return len(self._wanted.keys() | set(criteria)) <= MAX_CRITERIA

    def want(self, criteria: Iterable[Criterion]) -> None:
        """Add criteria; the next `look` subscribes to them."""
        new = set(criteria)
        self._unasked |= new - self._wanted.keys()
        self._wanted.update(new)
        self._look.set()

    def unwant(self, criteria: Iterable[Criterion]) -> None:
        """Remove criteria that `want` added."""
        self._wanted.subtract(criteria)
        self._wanted = +self._wanted
        self._look.set()

    def peers_changed(self) -> None:
        """Check the peers now, because they or their services changed."""
        self._look.set()

    async def run(self) -> None:
        """Keep the subscriptions alive until cancelled."""
        while True:
            self._look.clear()
            self._seen.expire(monotonic_s())
            for peer, holder in self._choose():
                # Each node has its own task: a silent node delays no other one.
                if not holder.asking.locked():
                    self._tasks.spawn(self._bring_up(peer, holder))
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._look.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Subscribe, unsubscribe and ping as far as due."""
        asked = set(self._wanted)
        await asyncio.gather(*(self._bring_up(peer, holder) for peer, holder in self._choose()))
        self._unasked -= asked

    def _choose(self) -> list[tuple[PeerId, _Holder]]:
        """Return the nodes that have subscriptions, or are to have them."""
        serving = self._pool.serving(FILTER_SUBSCRIBE_PROTOCOL)
        for peer in [peer for peer in self._holders if peer not in serving]:
            if self._holders.pop(peer).held:
                self._note(peer, "it is no longer connected")
        kept = [peer for peer in serving if peer in self._holders]
        enough = self._options.peers_to_use
        more = sum(self._holders[peer].failed_pings > 0 for peer in kept)
        for place, peer in enumerate(kept):
            self._holders[peer].is_one_too_many = place >= enough + more
        if self._wanted:
            others = [peer for peer in serving if peer not in self._holders]
            # Beside a silent node only a node without recent failures helps.
            better = self._pool.unfailing(FILTER_SUBSCRIBE_PROTOCOL)
            count = len(self._holders)
            for peer in others:
                if count < enough or (count < enough + more and peer in better):
                    self._holders[peer] = _Holder(ping_due_s=monotonic_s() + PING_INTERVAL_S)
                    count += 1
        return list(self._holders.items())

    async def close(self) -> None:
        """Unsubscribe at all nodes, within a short time."""
        await self._tasks.close()
        peers = [peer for peer, holder in self._holders.items() if holder.held]
        self._wanted.clear()
        self._holders.clear()
        await asyncio.gather(
            *(self._request(peer, FilterSubscribeType.UNSUBSCRIBE_ALL, timeout_s=1.0) for peer in peers)
        )

    async def _bring_up(self, peer: PeerId, holder: _Holder) -> None:
        async with holder.asking:
            wanted = set() if holder.is_one_too_many else set(self._wanted)
            if holder.held and monotonic_s() >= holder.ping_due_s:
                await self._ping(peer, holder)
            if self._holders.get(peer) is not holder:
                return
            await self._change(peer, holder, holder.held - wanted, FilterSubscribeType.UNSUBSCRIBE)
            await self._change(peer, holder, wanted - holder.held, FilterSubscribeType.SUBSCRIBE)
            if not (holder.held or wanted) and self._holders.get(peer) is holder:
                del self._holders[peer]

    async def _change(
        self, peer: PeerId, holder: _Holder, criteria: Collection[Criterion], kind: FilterSubscribeType
    ) -> None:
        made = False
        for pubsub_topic, group in groupby(sorted(criteria), key=lambda criterion: criterion[0]):
            topics = [topic for _, topic in group]
            for first in range(0, len(topics), _TOPICS_PER_REQUEST):
                some = topics[first : first + _TOPICS_PER_REQUEST]
                if self._holders.get(peer) is not holder:
                    return
                fault = await self._request(peer, kind, pubsub_topic, some)
                changed = {(pubsub_topic, topic) for topic in some}
                if kind is FilterSubscribeType.UNSUBSCRIBE:
                    holder.held -= changed  # in any case, because its pushes are no longer wanted
                elif fault is None:
                    holder.held |= changed
                    made = True
                else:
                    self._give_up(peer, fault)
                    return
        if made:
            self.refusal = ""
            self._pool.served(peer, FILTER_SUBSCRIBE_PROTOCOL)
            self._note(peer, "made")

    async def _ping(self, peer: PeerId, holder: _Holder) -> None:
        now_s = monotonic_s()
        fault = await self._request(peer, FilterSubscribeType.SUBSCRIBER_PING)
        holder.ping_due_s = now_s + PING_INTERVAL_S
        if fault is None:
            holder.failed_pings = 0
            return
        if fault.startswith("404"):
            # The node lost the subscription: it is made again right away.
            holder.held.clear()
            self._note(peer, fault)
            return
        holder.failed_pings += 1
        if holder.failed_pings >= MAX_FAILED_PINGS:
            self._give_up(peer, fault)
        else:
            holder.ping_due_s = now_s + min(_TICK_S, PING_INTERVAL_S)
            self._look.set()

    async def _request(
        self,
        peer: PeerId,
        kind: FilterSubscribeType,
        pubsub_topic: str | None = None,
        content_topics: Collection[str] = (),
        *,
        timeout_s: float | None = None,
    ) -> str | None:
        """Return None if a node carried out a request, else the reason."""
        request = FilterSubscribeRequest(
            request_id=new_uuid(),
            filter_subscribe_type=kind,
            pubsub_topic=pubsub_topic,
            content_topics=tuple(content_topics),
        )
        try:
            encoded = await self._requests.ask(
                peer,
                FILTER_SUBSCRIBE_PROTOCOL,
                encode_filter_subscribe_request(request),
                max_response_bytes=MAX_RESPONSE_BYTES,
                timeout_s=timeout_s or self._options.request_timeout_s,
            )
            response = decode_filter_subscribe_response(encoded)
        except (Libp2pError, TimeoutError, DecodeError) as error:
            return str(error) or "no response in time"
        return None if response.is_success else f"{response.status_code} {response.status_desc or ''}".rstrip()

    def _give_up(self, peer: PeerId, fault: str) -> None:
        """Replace a peer that fails by another one."""
        self._pool.failed(peer, FILTER_SUBSCRIBE_PROTOCOL)
        self.refusal = fault
        if self._holders.pop(peer, None) is not None:
            self._note(peer, fault)
        # Without another node, wait for the next tick: the same node would refuse again.
        if any(other not in self._holders for other in self._pool.unfailing(FILTER_SUBSCRIBE_PROTOCOL)):
            self._look.set()

    def _note(self, peer: PeerId, change: str) -> None:
        _LOG.debug("filter subscription at %s: %s", peer, change)
        self._changed()

    async def _pushed(self, stream: Stream) -> None:
        frames = 0
        while (frame := await stream.read_frame(DEFAULT_MAX_ENVELOPE_BYTES)) is not None:
            self._take(stream.peer_id, frame)
            frames += 1
            if frames % _PUSHES_PER_TURN == 0:
                await asyncio.sleep(0)  # reading buffered data does not yield, so let other tasks run
        await stream.close()

    def _take(self, peer: PeerId, frame: bytes) -> None:
        try:
            push = decode_message_push(frame)
            message = push.message()
        except DecodeError:
            self.unwanted += 1
            return
        criterion = (push.pubsub_topic or "", message.content_topic)
        # 12/WAKU2-FILTER: a client should verify that a push matches a subscription. A message of a new subscription
        # may be pushed before the response to the request arrives.
        if criterion not in self._wanted or peer not in self._holders:
            self.unwanted += 1
            return
        routed = RoutedMessage.of(criterion[0], message, push.message_bytes)
        if self._seen.add(routed.message_hash, monotonic_s()):
            self._deliver(routed)
