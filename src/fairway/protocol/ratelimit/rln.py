"""The interface to a prover, which proves that a transmission is within the RLN rate limit.

RLN-API defines the interface: the quota of an epoch, and a proof for a signal at a time. The provider is called at
dispatch, never when a transmission is queued. A proof is bound to the message's timestamp, and so to an epoch. The
protocol requests a proof with `fairway.protocol.effects.Prove`, and the shell calls the provider in a separate thread.
WakuMessage field 21 (rate_limit_proof) carries the bytes of the proof unchanged.

Invariant of every provider: a message number (nonce) is used once per epoch, even across a crash. Two signals under one
number let anyone compute the membership's secret. So a provider makes the number durable before it returns a proof.

`fairway.rln.membership.RlnMembership` is a provider with zero-knowledge proofs; an application can supply another one.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from fairway.protocol.ratelimit.quota import EpochQuota


@runtime_checkable
class RlnProofProvider(Protocol):
    """Proves transmissions. One thread calls its methods; it is not the thread of the event loop.

    Both methods raise `fairway.errors.RlnError`. On NOT_READY and TRANSIENT the protocol queues the transmission again
    and retries later. On BUDGET_EXHAUSTED it waits for the next epoch. On PERMANENT the send of the message fails
    (RELIABLE-CHANNEL-API, "Event handling": "RLN proof generation failed").
    """

    def epoch_quota(self, now_ms: int) -> EpochQuota | None:
        """Return the quota of the epoch of ``now_ms``; None if it is unknown. A rate_limit of 0 means no membership."""

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes | None:
        """Return the proof for `rln_signal` bytes in the epoch of ``now_ms``; with None the message has no proof."""


def rln_signal(payload: bytes, content_topic: str, timestamp_ns: int) -> bytes:
    """Return the signal of a proof: payload, content topic in UTF-8, timestamp as 8 bytes little-endian.

    17/WAKU2-RLN-RELAY names only payload and content topic. Every validator in use includes the timestamp, which must
    therefore be fixed before the proof is made. ``timestamp_ns`` is the timestamp of the WakuMessage, a signed 64-bit
    number.
    """
    return payload + content_topic.encode() + timestamp_ns.to_bytes(8, "little", signed=True)
