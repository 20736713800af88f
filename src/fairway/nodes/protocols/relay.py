"""`Relay`: relays the messages of a node's shards over gossipsub (11/WAKU2-RELAY).

A message that breaks the network's `MessageRules` is neither delivered nor relayed. It lowers the score of its sending
peer only if no implementation can decode it: nwaku, for instance, relays messages without payload and topics that are
not UTF-8, and an attacker could otherwise make us disconnect honest peers.

In a network with RLN the proof of a message is judged next. Verification takes time, so another thread does it.
`_PEERS_FAULT` are the faults that every node detects, even if its clock and group differ a little. A peer that relays a
message with such a fault is penalised.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError as ProtobufDecodeError

from fairway.environment import time_ns
from fairway.libp2p.gossipsub.codec import Message
from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.libp2p.gossipsub.pubsub import PubSub
from fairway.libp2p.gossipsub.router import ValidationResult
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.node import RoutedMessage
from fairway.nodes.protocols.rules import JudgeProof, MessageRules, Refusal
from fairway.rln.validation import ProofFault
from fairway.wire.lightpush import StatusCode

RELAY_PROTOCOL: Final = "/vac/waku/relay/2.0.0"
"""Protocol identifier."""

_PEERS_FAULT: Final = frozenset(
    {ProofFault.MISSING, ProofFault.MALFORMED, ProofFault.OTHER_NETWORK, ProofFault.INVALID}
)


class Relay(PubSub):
    """A node's part in the meshes of its shards."""

    def __init__(
        self,
        host: Host,
        rules: MessageRules,
        *,
        rng: random.Random,
        judge_proof: JudgeProof | None = None,
    ) -> None:
        """``judge_proof`` judges RLN proofs, and refuses at once if too many wait; None: without RLN."""
        super().__init__(
            host,
            RELAY_PROTOCOL,
            validator=self.judge,
            judging=self._judge_by_proof,
            options=GossipsubOptions(max_data_bytes=rules.max_message_bytes),
            rng=rng,
        )
        self._rules: Final = rules
        self._judge_proof: Final = judge_proof
        self.refused: Final[Counter[StatusCode]] = Counter()
        """Messages of peers that break a rule, by the status code that light push has for it."""

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
