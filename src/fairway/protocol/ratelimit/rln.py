"""The interface to a prover, which proves that a transmission is within the RLN rate limit.

It is that of RLN-API: the quota of an epoch, and a proof for a signal at a time. A provider is called at dispatch,
never when a transmission is queued, because a proof is bound to the message's timestamp and so to an epoch. The
protocol asks for it with a `fairway.protocol.effects.Prove`, and the shell calls the provider in a thread of its own.
The bytes of the proof are sent as they are in WakuMessage field 21 (rate_limit_proof).

Invariant of every provider: a message number (nonce) is used once per epoch, also across a crash; two signals
under one number let anyone compute the membership's secret. A provider that makes proofs must therefore make
the number durable before it returns one.

`fairway.rln.membership.RlnMembership` is a provider with zero-knowledge proofs; an application can bring another one.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from fairway.protocol.ratelimit.quota import EpochQuota


@runtime_checkable
class RlnProofProvider(Protocol):
    """Proves transmissions. Its methods are called in one thread, which is not that of the event loop.

    Both methods raise `fairway.errors.RlnError`; its kind says what to do: NOT_READY and TRANSIENT, put the
    item back and try again later; BUDGET_EXHAUSTED, wait for the next epoch; PERMANENT, give the message up
    (RELIABLE-CHANNEL-API, "Event handling": "RLN proof generation failed").
    """

    def epoch_quota(self, now_ms: int) -> EpochQuota | None:
        """Return the quota of the epoch of ``now_ms``; None = none is known. rate_limit 0 = no membership."""

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes | None:
        """Return the proof for `rln_signal` bytes in the epoch of ``now_ms``; None = no proof is sent."""


def rln_signal(payload: bytes, content_topic: str, timestamp_ns: int) -> bytes:
    """Return what a proof is about: payload, content topic in UTF-8, timestamp as 8 bytes little-endian.

    17/WAKU2-RLN-RELAY names only the first two; every validator in use includes the timestamp, which must
    therefore be fixed before the proof is made. ``timestamp_ns`` is that of the WakuMessage, a signed 64-bit
    number.
    """
    return payload + content_topic.encode() + timestamp_ns.to_bytes(8, "little", signed=True)
