"""`Router`: decides which messages go to which peers by gossipsub; it has no socket and no clock.

Each call of `Router` reports an event (a peer connected, an RPC arrived, a heartbeat is due) with its time, and returns
effects: `Send` frames to peers, `Deliver` messages to the application, and `Judge` messages whose validation takes
time, such as the verification of a proof. This module, `Mesh` and `Gossip` have the rules of gossipsub 1.0 and 1.1 that
Waku nodes use. Message ids and the signature policy (StrictNoSign) are those of 11/WAKU2-RELAY.

Invariants: a message is delivered and relayed at most once within `_SEEN_TTL_S`, and only if its validator accepts it.
The memory, requests and answers that a peer can cause between two heartbeats are bounded.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import FrameError
from fairway.libp2p.gossipsub.codec import (
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
from fairway.libp2p.gossipsub.gossip import Gossip, MessageCache, seen_key
from fairway.libp2p.gossipsub.mesh import PRUNE_BACKOFF_S, UNSUBSCRIBE_BACKOFF_S, Mesh
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.score import GRAYLIST_THRESHOLD, PeerScores
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.seen_messages import SeenMessages

_SEEN_TTL_S: Final = 120.0
"""Time for which a message counts as seen."""
_MAX_SEEN: Final = 1_000_000
"""Messages that count as seen at a time."""
_MAX_OTHERS: Final = 8
"""Further peers that are noted as senders of a message during its validation."""


class ValidationResult(Enum):
    """The result of validating a message (1.1, "Extended validators")."""

    ACCEPT = "accept"
    """Deliver and relay it."""
    IGNORE = "ignore"
    """Neither deliver nor relay it, without a penalty."""
    REJECT = "reject"
    """Neither deliver nor relay it, and penalise the peer that sent it."""
    LATER = "later"
    """Not known yet: the message waits for `Router.judged`."""
    UNJUDGED = "unjudged"
    """The peer sends too much to validate: the message counts as not received from it, and is validated when another
    peer sends it. Otherwise a peer that floods this node could suppress messages by sending them first."""


Validator = Callable[[Message], ValidationResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a frame, which is an RPC behind its length, to peers."""

    peers: tuple[PeerId, ...]
    frame: bytes
    control: bool
    """Whether it is a control frame, which is not dropped when a peer is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliver:
    """Deliver a message to the application."""

    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Validate a message, and call `Router.judged` with the ticket; until then it is neither delivered nor relayed."""

    ticket: int
    peer: PeerId
    """The peer that sent it."""
    message: Message


Effect = Send | Deliver | Judge


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A message that a peer sent for the first time."""

    peer: PeerId
    encoded: bytes
    message: Message
    message_id: bytes
    seen_as: bytes
    others: list[PeerId] = field(default_factory=list)
    """Further peers that sent it during its validation; at most `_MAX_OTHERS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterStatistics:
    """Counts of a router."""

    peers: int
    interests: int
    """Subscriptions of all peers: pairs of a peer and a topic."""
    topics: int
    mesh_peers: int
    """Members of all meshes."""
    backoffs: int
    """Pairs of a peer and a topic that must not be grafted yet."""
    seen: int
    cached_bytes: int
    undecided: int
    """Messages whose validation has not ended."""
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
    """The gossipsub state of one node."""

    def __init__(self, validator: Validator, options: GossipsubOptions | None = None, *, rng: random.Random) -> None:
        """Make a router without peers; ``validator`` judges the messages of peers."""
        self._validator: Final = validator
        self._options: Final = options or GossipsubOptions()
        self._scores: Final = PeerScores()
        self._mesh: Final = Mesh(self._options, self._scores, rng)
        self._seen: Final = SeenMessages(ttl_s=_SEEN_TTL_S, max_messages=_MAX_SEEN)
        self._unsent: Final = SeenMessages(ttl_s=_SEEN_TTL_S, max_messages=_MAX_SEEN)
        self._cache: Final = MessageCache()
        self._gossip: Final = Gossip(self._scores, self._cache, self._seen, rng)
        self._topics: dict[str, None] = {}
        self._undecided: dict[int, _Arrived] = {}
        self._judged_now: dict[bytes, _Arrived] = {}
        """The same messages by their keys in ``_seen``, without those that this node has published meanwhile."""
        self._tickets = 0
        self._received = self._duplicates = self._invalid = self._published = 0

    def add_peer(self, peer: PeerId, *, dialled: bool) -> list[Effect]:
        """Add a peer that serves the protocol; ``dialled`` says whether this node opened the connection."""
        self._mesh.add_peer(peer, dialled=dialled)
        return self._hello(peer)

    def renew_peer(self, peer: PeerId) -> list[Effect]:
        """Begin again with a peer that has missed frames; its subscriptions stay known."""
        self._mesh.leave_meshes(peer)
        return self._hello(peer) if self._mesh.has(peer) else []

    def remove_peer(self, peer: PeerId) -> None:
        """Remove a peer that has disconnected."""
        self._mesh.remove_peer(peer)

    def peers_of(self, topic: str) -> frozenset[PeerId]:
        """Return the peers that are subscribed to a topic."""
        return self._mesh.subscribers(topic)

    def mesh_of(self, topic: str) -> frozenset[PeerId]:
        """Return the mesh of a topic: the peers that exchange whole messages with this node."""
        return self._mesh.members(topic)

    def score_of(self, peer: PeerId) -> float:
        """Return the score of a peer; bad scores are below 0."""
        return self._scores.score(peer)

    def graylisted(self) -> tuple[PeerId, ...]:
        """Return the peers whose score is so low that their RPCs are ignored."""
        return tuple(peer for peer in self._mesh.peers if self._scores.score(peer) < GRAYLIST_THRESHOLD)

    def subscribe(self, topic: str) -> list[Effect]:
        """Join the mesh of a topic."""
        if not 0 < len(topic) <= MAX_TOPIC_LENGTH:
            raise ConfigurationError(f"a topic has 1 to {MAX_TOPIC_LENGTH} characters, not {len(topic)}")
        if topic in self._topics:
            raise ConfigurationError(f"{topic} is subscribed to already")
        self._topics[topic] = None
        grafted = self._mesh.join(topic)
        change = subscription_frame((SubscriptionChange(topic=topic, subscribed=True),))
        effects = _to(self._mesh.peers, change)
        return effects + _to(grafted, control_frame((Graft(topic=topic),)))

    def unsubscribe(self, topic: str, now_s: float) -> list[Effect]:
        """Leave the mesh of a topic."""
        if topic not in self._topics:
            return []
        del self._topics[topic]
        pruned = self._mesh.leave(topic, now_s)
        effects = _to(self._mesh.peers, subscription_frame((SubscriptionChange(topic=topic, subscribed=False),)))
        return effects + _to(pruned, control_frame((Prune(topic=topic, backoff_s=UNSUBSCRIBE_BACKOFF_S),)))

    def publish(self, message: Message, now_s: float) -> list[Effect]:
        """Publish a message of this node: return one `Send` to all its peers, or nothing if it was seen before.

        A message that was sent to no peer, because there was none, is sent when it is published again.
        """
        if len(message.data) > self._options.max_data_bytes:
            raise ConfigurationError(
                f"a message has at most {self._options.max_data_bytes} bytes, not {len(message.data)}"
            )
        message_id = sha256_of_data(message)
        seen_as = seen_key(message.topic, message_id)
        if self._passed_on(seen_as):
            return []
        overtaken = self._judged_now.pop(seen_as, None) is not None
        self._published += self._seen.add(seen_as, now_s) or overtaken
        frame = self._frame(encode_message(message))
        takers = self._mesh.takers_of_own(message.topic)
        if frame is not None:
            self._cache.put(message_id, message.topic, frame)
        if frame is None or not takers:
            self._unsent.add(seen_as, now_s)
            return []
        self._unsent.discard(seen_as)
        return [Send(peers=takers, frame=frame, control=False)]

    def passed_on(self, message: Message) -> bool:
        """Return whether a message was received or sent to a peer before, so that publishing it has no effect."""
        return self._passed_on(seen_key(message.topic, sha256_of_data(message)))

    def receive(self, peer: PeerId, rpc: bytes, now_s: float) -> list[Effect]:
        """Process an RPC of a peer. Raises `FrameError` if it is invalid."""
        if not self._mesh.has(peer) or self._scores.score(peer) < GRAYLIST_THRESHOLD:
            return []
        parsed = decode_rpc(rpc)
        effects: list[Effect] = []
        for change in parsed.subscriptions:
            self._mesh.interest(peer, change.topic, subscribed=change.subscribed)
        for encoded in parsed.messages:
            effects += self._message(peer, encoded, now_s)
        for control in parsed.control:
            match control:
                case IHave():
                    effects += self._asked(peer, control)
                case IWant():
                    frames = self._gossip.requested(peer, control)
                    effects += (Send(peers=(peer,), frame=frame, control=False) for frame in frames)
                case Graft():
                    refusal = self._mesh.grafted_by(peer, control.topic, now_s)
                    effects += _to((peer,), control_frame((refusal,))) if refusal else []
                case Prune():
                    self._mesh.pruned_by(peer, control.topic, control.backoff_s, now_s)
        return effects

    def judged(self, ticket: int, verdict: ValidationResult) -> list[Effect]:
        """Process the verdict about a message of a `Judge`, given once and not `LATER`.

        The caller bounds the number of messages that wait for a verdict.
        """
        arrived = self._undecided.pop(ticket)
        if self._judged_now.get(arrived.seen_as) is not arrived:
            return []  # this node has published it during the validation
        del self._judged_now[arrived.seen_as]
        if arrived.message.topic not in self._topics:
            return []  # this node has left the topic during the validation
        if verdict is not ValidationResult.UNJUDGED:
            return self._decided(arrived, verdict)
        here = [other for other in arrived.others if self._mesh.has(other)]
        if here:
            return self._to_judge(replace(arrived, peer=here[0], others=here[1:]))
        self._invalid += 1
        self._seen.discard(arrived.seen_as)
        return []

    def heartbeat(self, now_s: float, behind: Collection[PeerId] = ()) -> list[Effect]:
        """Maintain the meshes and announce messages; due every `HEARTBEAT_INTERVAL_S` of the mesh.

        Messages for the peers ``behind`` were dropped because they read slowly. They get IHAVEs also as members of a
        mesh, which otherwise get none; so do those that joined a mesh since the last heartbeat. Such a peer may have
        just lost its other neighbours, and with them the messages before it joined.
        """
        self._scores.decay(now_s)
        self._seen.expire(now_s)
        self._unsent.expire(now_s)
        self._gossip.begin_interval()
        effects: list[Effect] = []
        for topic in self._topics:
            grafted, pruned = self._mesh.maintain(topic, now_s)
            effects += _to(grafted, control_frame((Graft(topic=topic),)))
            effects += _to(pruned, control_frame((Prune(topic=topic, backoff_s=PRUNE_BACKOFF_S),)))
            behind_members = tuple(self._mesh.members(topic).intersection(behind) | self._mesh.take_newcomers(topic))
            for peers, have in self._gossip.announcements(topic, self._mesh.outsiders(topic), behind_members):
                effects += _to(peers, control_frame((have,)))
        self._mesh.expire(now_s)
        self._cache.shift()
        return effects

    def statistics(self) -> RouterStatistics:
        """Return the counts."""
        return RouterStatistics(
            peers=len(self._mesh.peers),
            interests=self._mesh.interests,
            topics=len(self._topics),
            mesh_peers=sum(len(self._mesh.members(topic)) for topic in self._topics),
            backoffs=self._mesh.backoffs,
            seen=len(self._seen),
            cached_bytes=self._cache.size_bytes,
            undecided=len(self._undecided),
            received=self._received,
            duplicates=self._duplicates,
            invalid=self._invalid,
            published=self._published,
            asked_for=self._gossip.asked_for,
            recovered=self._gossip.recovered,
            served=self._gossip.served,
        )

    def _hello(self, peer: PeerId) -> list[Effect]:
        if not self._topics:
            return []
        hello = tuple(SubscriptionChange(topic=topic, subscribed=True) for topic in self._topics)
        return [Send(peers=(peer,), frame=subscription_frame(hello), control=True)]

    def _passed_on(self, seen_as: bytes) -> bool:
        return seen_as in self._seen and seen_as not in self._unsent and seen_as not in self._judged_now

    def _message(self, peer: PeerId, encoded: bytes, now_s: float) -> list[Effect]:
        try:
            message = decode_message(encoded, self._options.max_data_bytes)
        except FrameError as error:
            self._invalid += 1
            # nim-libp2p relays signed messages: the peer that relays one is not at fault.
            if not isinstance(error, ForeignMessageError):
                self._scores.misbehaved(peer)
            return []
        if message.topic not in self._topics:
            return []  # this node is not subscribed, or no longer
        message_id = sha256_of_data(message)
        self._gossip.arrived(message_id, peer)
        seen_as = seen_key(message.topic, message_id)
        if seen_as in self._seen:
            self._duplicates += 1
            first = self._judged_now.get(seen_as)
            if first is not None and peer not in (first.peer, *first.others) and len(first.others) < _MAX_OTHERS:
                first.others.append(peer)
            return []
        verdict = self._validator(message)
        # A message is judged once, even if it is rejected, so that a replay costs one look-up.
        self._seen.add(seen_as, now_s)
        arrived = _Arrived(peer, encoded, message, message_id, seen_as)
        return self._to_judge(arrived) if verdict is ValidationResult.LATER else self._decided(arrived, verdict)

    def _to_judge(self, arrived: _Arrived) -> list[Effect]:
        self._tickets += 1
        self._undecided[self._tickets] = self._judged_now[arrived.seen_as] = arrived
        return [Judge(ticket=self._tickets, peer=arrived.peer, message=arrived.message)]

    def _decided(self, arrived: _Arrived, verdict: ValidationResult) -> list[Effect]:
        peer, message = arrived.peer, arrived.message
        if verdict is not ValidationResult.ACCEPT:
            self._invalid += 1
            if verdict is ValidationResult.REJECT:
                self._scores.delivered_invalid(peer)
            return []
        self._received += 1
        effects: list[Effect] = [Deliver(message=message)]
        frame = self._frame(arrived.encoded)
        if frame is None:
            return effects
        self._cache.put(arrived.message_id, message.topic, frame)
        onward = tuple(member for member in self._mesh.members(message.topic) if member != peer)
        if onward:
            effects.append(Send(peers=onward, frame=frame, control=False))
        return effects

    def _frame(self, encoded: bytes) -> bytes | None:
        """Return an RPC with one encoded message, behind its length; None if it is longer than peers read."""
        frame = publish_frame(encoded)
        return frame if len(frame) <= self._options.max_data_bytes else None

    def _asked(self, peer: PeerId, have: IHave) -> list[Effect]:
        if have.topic not in self._topics:
            return []
        want = self._gossip.request_for(peer, have)
        return _to((peer,), control_frame((want,))) if want else []


def _to(peers: tuple[PeerId, ...], frame: bytes) -> list[Effect]:
    return [Send(peers=peers, frame=frame, control=True)] if peers else []
