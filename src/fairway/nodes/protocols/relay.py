"""`Relay`: relays the messages of a node's shards over gossipsub (11/WAKU2-RELAY).

A message that breaks the network's `MessageRules` is neither delivered nor relayed. It lowers the score of its sending
peer only if no implementation can decode it: nwaku, for instance, relays messages without payload and topics that are
not UTF-8, and an attacker could otherwise make us disconnect honest peers.

In a network with RLN the proof of a message is judged next. Verifying takes time, so it is done elsewhere meanwhile.
`_PEERS_FAULT` are the faults that every node sees, whose clock and group are a little different too: a peer that relays
such a message is penalised.
"""

from __future__ import annotations

import random
from collections import Counter
from types import TracebackType
from typing import Final, Self

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError as ProtobufDecodeError

from fairway.environment import time_ns
from fairway.libp2p.gossipsub.codec import Message
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.pubsub import PubSub, PubSubStatistics
from fairway.libp2p.gossipsub.router import Deliver, Router, RouterStatistics, ValidationResult
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.rules import JudgeProof, MessageRules, Refusal
from fairway.rln.validation import ProofFault
from fairway.subscription import Subscription
from fairway.wire.lightpush import StatusCode

RELAY_PROTOCOL: Final = "/vac/waku/relay/2.0.0"
"""Protocol identifier."""

_PEERS_FAULT: Final = frozenset(
    {ProofFault.MISSING, ProofFault.MALFORMED, ProofFault.OTHER_NETWORK, ProofFault.INVALID}
)


class Relay:
    """A node's part in the meshes of its shards. An async context manager."""

    def __init__(
        self,
        host: Host,
        rules: MessageRules,
        *,
        rng: random.Random,
        judge_proof: JudgeProof | None = None,
    ) -> None:
        """``judge_proof`` judges RLN proofs, and answers soon that it has too many to judge; None: without RLN."""
        self._rules: Final = rules
        self.refused: Final[Counter[StatusCode]] = Counter()
        """Messages of peers that break a rule, by the status code that light push has for it."""
        self._judge_proof: Final = judge_proof
        options = GossipsubOptions(max_data_bytes=rules.max_message_bytes)
        self._pubsub: Final = PubSub(host, RELAY_PROTOCOL, Router(options, rng=rng), options=options)

    def subscribe(self, pubsub_topic: str) -> Subscription[Deliver]:
        """Join a shard; return the messages of others on it."""
        return self._pubsub.subscribe(pubsub_topic, self.judge, self._judge_by_proof)

    async def publish(self, pubsub_topic: str, encoded: bytes) -> int:
        """Send a message that passed the rules; return the number of peers that it was sent to."""
        return await self._pubsub.publish(Message(topic=pubsub_topic, data=encoded))

    def passed_on(self, pubsub_topic: str, encoded: bytes) -> bool:
        """Return whether a message came by relay or was sent to a peer, so that publishing it has no effect."""
        return self._pubsub.passed_on(Message(topic=pubsub_topic, data=encoded))

    def peers_of(self, pubsub_topic: str) -> frozenset[PeerId]:
        """Return the peers that are subscribed to a shard."""
        return self._pubsub.peers_of(pubsub_topic)

    def peer_count(self, pubsub_topic: str) -> int:
        """Return how many peers are subscribed to a shard."""
        return len(self._pubsub.peers_of(pubsub_topic))

    def mesh_of(self, pubsub_topic: str) -> frozenset[PeerId]:
        """Return the peers in the mesh of a shard."""
        return self._pubsub.mesh_of(pubsub_topic)

    def score_of(self, peer: PeerId) -> float:
        """Return the score of a peer; bad scores are below 0."""
        return self._pubsub.score_of(peer)

    def mesh_size(self, pubsub_topic: str) -> int:
        """Return how many peers are in the mesh of a shard."""
        return len(self._pubsub.mesh_of(pubsub_topic))

    def statistics(self) -> RouterStatistics:
        """Return the counts and sizes of the router."""
        return self._pubsub.statistics()

    def outbox_statistics(self) -> PubSubStatistics:
        """Return counts of messages that wait for slow peers."""
        return self._pubsub.outbox_statistics()

    async def __aenter__(self) -> Self:
        """Start."""
        self._pubsub.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self._pubsub.close()

    def judge(self, message: Message) -> ValidationResult:
        """Return whether a message is accepted, ignored or rejected; `LATER` if its proof decides."""
        judged = self._rules.judge(message.topic, message.data, time_ns())
        if not isinstance(judged, Refusal):
            return ValidationResult.ACCEPT if self._judge_proof is None else ValidationResult.LATER
        self.refused[judged.status] += 1
        return ValidationResult.IGNORE if _is_protobuf(message.data) else ValidationResult.REJECT

    async def _judge_by_proof(self, message: Message, peer: PeerId) -> ValidationResult:
        judged = self._rules.judge(message.topic, message.data, time_ns())
        if isinstance(judged, Refusal) or self._judge_proof is None:
            return ValidationResult.IGNORE
        routed = RoutedMessage.of(message.topic, judged, message.data)
        refusal = await self._judge_proof(str(peer), routed)
        if refusal is None:
            return ValidationResult.ACCEPT
        self.refused[Refusal.of_proof(refusal).status] += 1
        if refusal.fault is ProofFault.NOT_VERIFIED:
            return ValidationResult.UNJUDGED
        return ValidationResult.REJECT if refusal.fault in _PEERS_FAULT else ValidationResult.IGNORE


def _is_protobuf(data: bytes) -> bool:
    """Return whether bytes are protobuf fields of any kind: all are unknown to an empty message, which reads them."""
    try:
        Empty.FromString(data)
    except ProtobufDecodeError:
        return False
    return True
