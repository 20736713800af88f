"""`MessageRules`: the rules for messages that relay, light push and the REST API share.

Pure; time is an argument. The rules apply to the bytes that would be relayed, as in other nodes. Sources:
64/WAKU2-NETWORK, "Message Attributes" and "Message Size"; 14/WAKU2-MESSAGE; WAKU-LIGHTPUSH for the status codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Self

from fairway.errors import ConfigurationError, DecodeError
from fairway.nodes.node import RoutedMessage
from fairway.rln.validation import ProofFault, ProofRefusal
from fairway.wire.lightpush import StatusCode
from fairway.wire.topics import StaticShard
from fairway.wire.waku_message import WakuMessage, decode_waku_message

MAX_RELAYED_BYTES: Final = 153_600
"""150 KiB: the largest encoded WakuMessage that nodes relay by default."""
MAX_CLOCK_OFFSET_NS: Final = 20_000_000_000
"""64/WAKU2-NETWORK: relayed messages whose timestamp is more than 20 s off are dropped."""
WAKU_NETWORK_CLUSTER: Final = 1
"""Cluster id of The Waku Network, which has these rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The refusal of a message."""

    status: StatusCode
    detail: str
    """For people."""

    @classmethod
    def of_proof(cls, refusal: ProofRefusal) -> Self:
        """Return the refusal of a message for its RLN proof."""
        return cls(status=_STATUS_OF_FAULT.get(refusal.fault, StatusCode.INVALID_MESSAGE), detail=refusal.detail)


_STATUS_OF_FAULT: Final = {
    ProofFault.MISSING: StatusCode.OUT_OF_RLN_PROOF,
    ProofFault.NOT_VERIFIED: StatusCode.TOO_MANY_REQUESTS,
}
"""Status codes of faults, if not that of an invalid message."""

JudgeProof = Callable[[str, RoutedMessage], Awaitable[ProofRefusal | None]]
"""(sender, message) -> why a message is refused for its RLN proof; None if it may pass.

A sender is named by its peer id or address: all senders get equal shares of the time for verification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRules:
    """The rules for messages that a node accepts."""

    pubsub_topics: AbstractSet[str]
    """Pubsub topics that the node serves; the set of a service node changes while it runs."""
    max_message_bytes: int = MAX_RELAYED_BYTES
    """Longest encoded WakuMessage."""
    max_clock_offset_ns: int | None = None
    """Largest difference between a timestamp and now; None: no rule about timestamps."""

    @classmethod
    def of_network(cls, cluster_id: int, pubsub_topics: Collection[str]) -> Self:
        """Return the rules of a cluster; only The Waku Network (cluster 1) has a rule about timestamps.

        Raises `ConfigurationError` without a topic, or for one that is no shard of the cluster.
        """
        if not pubsub_topics:
            raise ConfigurationError("a node serves at least one shard; none was given")
        for topic in pubsub_topics:
            if StaticShard.parse(topic).cluster_id != cluster_id:
                raise ConfigurationError(f"{topic} is no shard of cluster {cluster_id}")
        strict = cluster_id == WAKU_NETWORK_CLUSTER
        return cls(pubsub_topics=frozenset(pubsub_topics), max_clock_offset_ns=MAX_CLOCK_OFFSET_NS if strict else None)

    def judge(self, pubsub_topic: str, encoded: bytes, now_ns: int) -> WakuMessage | Refusal:
        """Return the message in ``encoded``, or why it is refused."""
        if pubsub_topic not in self.pubsub_topics:
            served = ", ".join(sorted(self.pubsub_topics))
            return Refusal(
                status=StatusCode.UNSUPPORTED_PUBSUB_TOPIC,
                detail=f"this node does not serve {pubsub_topic[:200]!r}; it serves {served}",
            )
        if len(encoded) > self.max_message_bytes:
            return Refusal(
                status=StatusCode.PAYLOAD_TOO_LARGE,
                detail=f"message size exceeded: {len(encoded)} bytes, at most {self.max_message_bytes} are relayed",
            )
        try:
            message = decode_waku_message(encoded)
        except DecodeError as error:
            return Refusal(status=StatusCode.BAD_REQUEST, detail=str(error))
        return self._judge_fields(message, now_ns) or message

    def _judge_fields(self, message: WakuMessage, now_ns: int) -> Refusal | None:
        if not message.content_topic:
            return Refusal(status=StatusCode.BAD_REQUEST, detail="the message has no content topic")
        if not message.payload:
            return Refusal(status=StatusCode.BAD_REQUEST, detail="the message has no payload")
        if self.max_clock_offset_ns is None:
            return None
        if not message.timestamp_ns:
            return Refusal(status=StatusCode.INVALID_MESSAGE, detail="the message has no timestamp")
        offset_ns = message.timestamp_ns - now_ns
        if abs(offset_ns) > self.max_clock_offset_ns:
            return Refusal(
                status=StatusCode.INVALID_MESSAGE,
                detail=f"the timestamp is {offset_ns / 1e9:.1f} s off, at most "
                f"{self.max_clock_offset_ns / 1e9:.0f} s are allowed; check the clock",
            )
        return None
