"""The gossipsub router: who is told of which message, with no socket and no clock of its own.

`Router` takes what happens (a peer came, an RPC arrived, a second passed) with the time, and returns what is to be
done: `Send` frames to peers, `Deliver` messages to the application. Every rule of gossipsub 1.0 and 1.1 that
Waku nodes use is here, in `Mesh` or in `Gossip`; message ids and the signature policy (StrictNoSign) are those of
11/WAKU2-RELAY.

Invariants: a message is delivered and passed on at most once while it counts as seen, and only after it was judged
valid; what a peer can make the router remember, ask or answer between two heartbeats is bounded.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairway.errors import ConfigurationError
from fairway.waku.libp2p.errors import FrameError
from fairway.waku.libp2p.gossipsub.codec import (
    MAX_TOPIC_LENGTH,
    ForeignMessageError,
    Graft,
    IHave,
    IWant,
    Message,
    Prune,
    SubscriptionChange,
    control_frame,
    decode_message,
    decode_rpc,
    encode_message,
    publish_frame,
    subscription_frame,
)
from fairway.waku.libp2p.gossipsub.gossip import Gossip, seen_key
from fairway.waku.libp2p.gossipsub.mesh import PRUNE_BACKOFF_S, Mesh
from fairway.waku.libp2p.gossipsub.message_cache import MessageCache
from fairway.waku.libp2p.gossipsub.options import GossipsubOptions
from fairway.waku.libp2p.gossipsub.score import GRAYLIST_THRESHOLD, PeerScores
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.seen_messages import SeenMessages

_SEEN_TTL_S: Final = 120.0
"""How long a message counts as seen."""
_MAX_SEEN: Final = 1_000_000
"""Messages that are remembered as seen."""
_EXCESS: Final = 10
"""Behaviour penalty for an RPC that no honest peer sends; with the default scores the fourth disconnects the peer."""


class Verdict(Enum):
    """What a validator says of a message (1.1, "Extended validators")."""

    ACCEPT = "accept"
    """Deliver it and pass it on."""
    IGNORE = "ignore"
    """Neither deliver nor relay, without a penalty."""
    REJECT = "reject"
    """Neither, and who brought it is to blame."""


Validator = Callable[[Message], Verdict]
MessageId = Callable[[Message], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A frame for peers, the length of the RPC included."""

    peers: tuple[PeerId, ...]
    frame: bytes
    control: bool
    """Whether it must not give way to messages when a peer is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """A message for the application."""

    message: Message
    message_id: bytes
    received_from: PeerId


Effect = Send | Deliver


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterStatistics:
    """What a router holds, and has done since it began."""

    peers: int
    interests: int
    """Topics that peers subscribed to, each counted once for each of them."""
    topics: int
    mesh_peers: int
    """Over all topics."""
    backoffs: int
    """Pairs of a peer and a topic that must not be grafted yet."""
    promised: int
    """Messages that were asked for and have not come, each counted once for each peer that was asked."""
    seen: int
    cached_bytes: int
    received: int
    """Valid messages, each once."""
    duplicates: int
    invalid: int
    published: int
    asked_for: int
    """Messages asked for with IWANT."""
    recovered: int
    """Of those, the messages that the requested peer delivered first."""
    served: int
    """Messages that peers asked for with IWANT."""


def sha256_of_data(message: Message) -> bytes:
    """Return the message id of 11/WAKU2-RELAY."""
    return hashlib.sha256(message.data).digest()


class Router:
    """One node's part in the meshes of its topics."""

    def __init__(
        self,
        options: GossipsubOptions | None = None,
        *,
        rng: random.Random,
        message_id: MessageId = sha256_of_data,
    ) -> None:
        self._options: Final = options or GossipsubOptions()
        self._message_id: Final = message_id
        self._scores: Final = PeerScores()
        self._mesh: Final = Mesh(self._options, self._scores, rng)
        self._seen: Final = SeenMessages(ttl_s=_SEEN_TTL_S, max_messages=_MAX_SEEN)
        self._unsent: Final = SeenMessages(ttl_s=_SEEN_TTL_S, max_messages=_MAX_SEEN)
        self._cache: Final = MessageCache()
        self._gossip: Final = Gossip(self._scores, self._cache, self._seen, rng)
        self._validators: dict[str, Validator] = {}
        self._received = self._duplicates = self._invalid = self._published = 0

    @property
    def topics(self) -> frozenset[str]:
        """The topics of this node."""
        return frozenset(self._validators)

    def add_peer(self, peer: PeerId, *, dialled: bool, address: str | None) -> list[Effect]:
        """Take in a peer that speaks the protocol; ``address`` is its IP address."""
        self._scores.add_peer(peer, address)
        self._mesh.add_peer(peer, dialled=dialled)
        return self._hello(peer)

    def renew_peer(self, peer: PeerId) -> list[Effect]:
        """Begin anew with a peer that is still here but missed what was sent: what it told of itself stays known."""
        self._mesh.leave_meshes(peer)
        return self._hello(peer) if self._mesh.has(peer) else []

    def remove_peer(self, peer: PeerId, now_s: float) -> None:
        """Forget a peer that left."""
        self._mesh.remove_peer(peer)
        self._gossip.remove_peer(peer)
        self._scores.remove_peer(peer, now_s)

    def peers_of(self, topic: str) -> frozenset[PeerId]:
        """Return the peers that are subscribed to a topic."""
        return self._mesh.subscribers(topic)

    def mesh_of(self, topic: str) -> frozenset[PeerId]:
        """Return the peers that this node exchanges whole messages of a topic with."""
        return self._mesh.members(topic)

    def score_of(self, peer: PeerId, now_s: float) -> float:
        """Return how good a peer is; what is bad is below zero."""
        return self._scores.score(peer, now_s)

    def graylisted(self, now_s: float) -> tuple[PeerId, ...]:
        """Return the peers that are so bad that nothing they say is heard."""
        return tuple(peer for peer in self._mesh.peers if self._scores.score(peer, now_s) < GRAYLIST_THRESHOLD)

    def subscribe(self, topic: str, validator: Validator, now_s: float) -> list[Effect]:
        """Join the mesh of a topic; ``validator`` judges its messages, also one's own."""
        if not 0 < len(topic) <= MAX_TOPIC_LENGTH:
            raise ConfigurationError(f"a topic has 1 to {MAX_TOPIC_LENGTH} characters, not {len(topic)}")
        if topic in self._validators:
            raise ConfigurationError(f"{topic} is subscribed to already")
        self._validators[topic] = validator
        grafted = self._mesh.join(topic, now_s)
        change = subscription_frame((SubscriptionChange(topic=topic, subscribed=True),))
        effects = _to(self._mesh.peers, change)
        return effects + _to(grafted, control_frame((Graft(topic=topic),)))

    def unsubscribe(self, topic: str, now_s: float) -> list[Effect]:
        """Leave the mesh of a topic."""
        if self._validators.pop(topic, None) is None:
            return []
        backoff_s = round(self._options.unsubscribe_backoff_s)
        pruned = self._mesh.leave(topic, now_s)
        effects = _to(self._mesh.peers, subscription_frame((SubscriptionChange(topic=topic, subscribed=False),)))
        return effects + _to(pruned, control_frame((Prune(topic=topic, backoff_s=backoff_s),)))

    def publish(self, message: Message, now_s: float) -> list[Effect]:
        """Send a message of one's own: one `Send` to all that get it, nothing if it was seen before.

        A message that was sent to no peer is sent when it is published again: there may be peers now.
        """
        if len(message.data) > self._options.max_data_bytes:
            raise ConfigurationError(
                f"a message has at most {self._options.max_data_bytes} bytes, not {len(message.data)}"
            )
        if self.passed_on(message):
            return []
        message_id = self._message_id(message)
        seen_as = seen_key(message.topic, message_id)
        self._published += self._seen.add(seen_as, now_s)
        frame = publish_frame(encode_message(message))
        self._cache.put(message_id, message.topic, frame)
        takers = self._mesh.takers_of_own(message.topic, now_s)
        if not takers:
            self._unsent.add(seen_as, now_s)
            return []
        self._unsent.discard(seen_as)
        return [Send(peers=takers, frame=frame, control=False)]

    def passed_on(self, message: Message) -> bool:
        """Return whether a message came by this protocol or was sent to a peer, so that publishing it has no effect."""
        seen_as = seen_key(message.topic, self._message_id(message))
        return seen_as in self._seen and seen_as not in self._unsent

    def receive(self, peer: PeerId, rpc: bytes, now_s: float) -> list[Effect]:
        """Take an RPC of a peer. Raises `FrameError` for one that cannot be read: the peer is at fault."""
        if not self._mesh.has(peer) or self._scores.score(peer, now_s) < GRAYLIST_THRESHOLD:
            return []
        parsed = decode_rpc(rpc)
        if parsed.is_excessive:
            self._scores.misbehaved(peer, _EXCESS)
        effects: list[Effect] = []
        for change in parsed.subscriptions:
            self._mesh.interest(peer, change.topic, subscribed=change.subscribed)
        for encoded in parsed.messages:
            effects += self._message(peer, encoded, now_s)
        for control in parsed.control:
            match control:
                case IHave():
                    effects += self._asked(peer, control, now_s)
                case IWant():
                    frames = self._gossip.wanted(peer, control, now_s)
                    effects += (Send(peers=(peer,), frame=frame, control=False) for frame in frames)
                case Graft():
                    refusal = self._mesh.grafted_by(peer, control.topic, now_s)
                    effects += _to((peer,), control_frame((refusal,))) if refusal else []
                case Prune():
                    self._mesh.pruned_by(peer, control.topic, control.backoff_s, now_s)
        return effects

    def heartbeat(self, now_s: float, behind: Collection[PeerId] = ()) -> list[Effect]:
        """Do what is due every `GossipsubOptions.heartbeat_interval_s`.

        Those ``behind``, to whom messages were not written because they were slow, hear what there is even from within
        a mesh: whom a message was sent to is not told of it otherwise.
        """
        self._scores.decay(now_s)
        self._seen.expire(now_s)
        self._unsent.expire(now_s)
        self._gossip.begin_interval(now_s)
        effects: list[Effect] = []
        for topic in self._validators:
            grafted, pruned = self._mesh.maintain(topic, now_s)
            effects += _to(grafted, control_frame((Graft(topic=topic),)))
            effects += _to(pruned, control_frame((Prune(topic=topic, backoff_s=PRUNE_BACKOFF_S),)))
            owed = tuple(self._mesh.members(topic).intersection(behind))
            for told, have in self._gossip.news(topic, self._mesh.outsiders(topic), now_s, owed):
                effects += _to(told, control_frame((have,)))
        self._mesh.expire(now_s)
        self._cache.shift()
        return effects

    def statistics(self) -> RouterStatistics:
        """Return what the router holds and has done."""
        return RouterStatistics(
            peers=len(self._mesh.peers),
            interests=self._mesh.interests,
            topics=len(self._validators),
            mesh_peers=sum(len(self._mesh.members(topic)) for topic in self._validators),
            backoffs=self._mesh.backoffs,
            promised=self._gossip.promised,
            seen=len(self._seen),
            cached_bytes=self._cache.size_bytes,
            received=self._received,
            duplicates=self._duplicates,
            invalid=self._invalid,
            published=self._published,
            asked_for=self._gossip.asked_for,
            recovered=self._gossip.recovered,
            served=self._gossip.served,
        )

    def _hello(self, peer: PeerId) -> list[Effect]:
        if not self._validators:
            return []
        hello = tuple(SubscriptionChange(topic=topic, subscribed=True) for topic in self._validators)
        return [Send(peers=(peer,), frame=subscription_frame(hello), control=True)]

    def _message(self, peer: PeerId, encoded: bytes, now_s: float) -> list[Effect]:
        try:
            message = decode_message(encoded, self._options.max_data_bytes)
        except FrameError as error:
            self._invalid += 1
            # nim-libp2p passes signed messages on: who brings them is not to blame for who made them.
            if not isinstance(error, ForeignMessageError):
                self._scores.misbehaved(peer)
            return []
        validator = self._validators.get(message.topic)
        if validator is None:
            return []  # a topic that this node left a moment ago, or never had
        message_id = self._message_id(message)
        self._gossip.arrived(message_id, peer)
        seen_as = seen_key(message.topic, message_id)
        if seen_as in self._seen:
            self._duplicates += 1
            return []
        verdict = validator(message)
        # What was judged once is not judged again, whatever the verdict: replaying it costs us one look-up.
        self._seen.add(seen_as, now_s)
        if verdict is not Verdict.ACCEPT:
            self._invalid += 1
            if verdict is Verdict.REJECT:
                self._scores.delivered_invalid(peer, message.topic)
            return []
        self._received += 1
        self._scores.delivered_first(peer, message.topic)
        frame = publish_frame(encoded)
        self._cache.put(message_id, message.topic, frame)
        onward = tuple(member for member in self._mesh.members(message.topic) if member != peer)
        effects: list[Effect] = [Deliver(message=message, message_id=message_id, received_from=peer)]
        if onward:
            effects.append(Send(peers=onward, frame=frame, control=False))
        return effects

    def _asked(self, peer: PeerId, have: IHave, now_s: float) -> list[Effect]:
        if have.topic not in self._validators:
            return []
        want = self._gossip.told(peer, have, now_s)
        return _to((peer,), control_frame((want,))) if want else []


def _to(peers: tuple[PeerId, ...], frame: bytes) -> list[Effect]:
    return [Send(peers=peers, frame=frame, control=True)] if peers else []
