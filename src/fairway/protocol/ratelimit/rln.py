"""Who proves that a transmission is within the RLN rate limit.

The boundary is that of RLN-API: the quota of an epoch, and a proof for a signal at a time. A
provider is called at dispatch, never when something is queued, because a proof is bound to the message's
timestamp and so to an epoch. Its bytes travel in WakuMessage field 21 (rate_limit_proof) as they are.

Invariant of every provider: a message number (nonce) is used once per epoch, also across a crash; two signals
under one number let anyone compute the membership's secret. A provider that makes proofs must therefore make
the number durable before it returns one.

What ships: `NoProof` for networks without RLN, and `NodeProves` where the service node attaches the proof.
Making proofs in this process takes a zero-knowledge prover, which is for the application to bring.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

from fairway.errors import RlnError, RlnErrorKind
from fairway.protocol.ratelimit.epoch import EpochClock
from fairway.protocol.ratelimit.quota import EpochQuota


@runtime_checkable
class RlnProofProvider(Protocol):
    """Proves transmissions.

    Both methods raise `fairway.errors.RlnError`; its kind says what to do: NOT_READY and TRANSIENT, put the
    item back and try again later; BUDGET_EXHAUSTED, wait for the next epoch; PERMANENT, give the message up
    (RELIABLE-CHANNEL-API, "Event handling": "RLN proof generation failed").
    """

    def epoch_quota(self, now_ms: int) -> EpochQuota | None:
        """Return the quota of the epoch of ``now_ms``; None = none is known. rate_limit 0 = no membership."""

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes | None:
        """Return the proof for `rln_signal` bytes in the epoch of ``now_ms``; None = no proof travels."""


def rln_signal(payload: bytes, content_topic: str, timestamp_ns: int) -> bytes:
    """Return what a proof is about: payload, content topic in UTF-8, timestamp as 8 bytes little-endian.

    17/WAKU2-RLN-RELAY names only the first two; every validator in use includes the timestamp, which must
    therefore be fixed before the proof is made. ``timestamp_ns`` is that of the WakuMessage, a signed 64-bit
    number.
    """
    return payload + content_topic.encode() + timestamp_ns.to_bytes(8, "little", signed=True)


class NoProof:
    """No RLN: no quota is told and no proof travels."""

    __slots__ = ()

    def epoch_quota(self, now_ms: int) -> EpochQuota | None:  # noqa: ARG002  interface
        """Return None: nothing is known of a quota."""
        return None

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes | None:  # noqa: ARG002  interface
        """Return None: no proof travels."""
        return None


class NodeProves:
    """The service node attaches the proof out of its own membership, and may have told its quota."""

    __slots__ = ("_clock", "_default_clock", "_quota")

    def __init__(self, *, default_epoch_ms: int) -> None:
        self._default_clock = self._clock = EpochClock(epoch_ms=default_epoch_ms)
        self._quota: EpochQuota | None = None

    def told(self, limit: int | None, epoch_ms: int | None, remaining: int | None, now_ms: int) -> None:
        """Take the node's word: messages per epoch (None = not told, 0 = no membership), and what is left."""
        if limit is None:
            self._quota = None
            return
        self._clock = self._default_clock if epoch_ms is None else EpochClock(epoch_ms=epoch_ms)
        self._quota = EpochQuota(
            epoch_index=self._clock.index(now_ms),
            rate_limit=limit,
            remaining=remaining,
            epoch_ms=self._clock.epoch_ms,
        )

    def epoch_quota(self, now_ms: int) -> EpochQuota | None:
        """Return the quota as the node told it; in another epoch than then, what is left is not known."""
        index = self._clock.index(now_ms)
        if self._quota is None or self._quota.epoch_index == index:
            return self._quota
        return replace(self._quota, epoch_index=index, remaining=None)

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes | None:  # noqa: ARG002  interface
        """Return None, for the node makes the proof; raises NOT_READY while the node has no membership."""
        if self._quota is not None and self._quota.rate_limit == 0:
            raise RlnError(RlnErrorKind.NOT_READY, "the node has no RLN membership")
        return None
