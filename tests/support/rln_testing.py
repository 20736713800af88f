"""A strict double of an RLN proof provider, and of the validators that judge its proofs. No cryptography.

For tests and simulations: `StrictRlnProvider` keeps the rules that a real provider must keep, and fails on demand;
`RlnTestValidator` validates as the network does, and detects each broken rule (RFC 17/WAKU2-RLN-RELAY, "Routing";
RLN-API, validate_proof). A proof is as long as a real one and names its maker, epoch, message number and signal in
clear.

Invariant of the provider: each (epoch, message number) is used at most once, even if the clock jumps. ``on_reserve``
returns before the proof with that number is returned.
"""

from __future__ import annotations

import hashlib
import struct
from enum import Enum
from typing import TYPE_CHECKING, Final

from fairway.errors import RlnError, RlnErrorKind
from fairway.protocol.ratelimit.epoch import EpochClock
from fairway.protocol.ratelimit.quota import EpochQuota

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PROOF_BYTES: Final = 335
"""Length of an encoded RateLimitProof as the network's nodes write it."""
MAX_CLOCK_GAP_MS: Final = 20_000
"""Largest distance between a message's timestamp and the validator's clock."""

_LAYOUT: Final = struct.Struct("<32sqQ32s")
_NS_PER_MS: Final = 1_000_000


class ProofVerdict(Enum):
    """The verdict of a validator on a proof."""

    VALID = "valid"
    DUPLICATE = "duplicate"
    """The same signal under the same number: harmless, but not relayed again."""
    INVALID = "invalid"
    """No proof, of another signal, of another epoch than its timestamp, or too old or too new."""
    VIOLATION = "violation"
    """Another signal under a used number: on a real network that reveals the secret."""


class StrictRlnProvider:
    """Makes proofs within one membership's quota, and raises beyond it.

    Each call of `generate_proof` uses one of ``faults``: it raises an error kind, or succeeds for None. ``reserved`` is
    the last argument of ``on_reserve``: the next unused number of each epoch.
    """

    def __init__(
        self,
        *,
        rate_limit: int,
        epoch_ms: int,
        member: str = "member",
        faults: Iterable[RlnErrorKind | None] = (),
        on_reserve: Callable[[Mapping[int, int]], None] | None = None,
        reserved: Mapping[int, int] | None = None,
    ) -> None:
        self.rate_limit = rate_limit
        self._clock = EpochClock(epoch_ms=epoch_ms)
        self._member = hashlib.sha256(member.encode()).digest()
        self._faults = iter(faults)
        self._on_reserve = on_reserve
        self._next_number = dict(reserved or {})

    def epoch_quota(self, now_ms: int) -> EpochQuota:
        """Return the quota of the epoch of ``now_ms``."""
        index = self._clock.index(now_ms)
        return EpochQuota(
            epoch_index=index,
            rate_limit=self.rate_limit,
            remaining=max(0, self.rate_limit - self._next_number.get(index, 0)),
            epoch_ms=self._clock.epoch_ms,
        )

    def generate_proof(self, signal: bytes, now_ms: int) -> bytes:
        """Return a proof under an unused number of this epoch; raises `RlnError` of every kind."""
        fault = next(self._faults, None)
        if fault is not None:
            raise RlnError(fault, "as scripted")
        if self.rate_limit == 0:
            raise RlnError(RlnErrorKind.NOT_READY, "there is no membership")
        epoch = self._clock.index(now_ms)
        number = self._next_number.get(epoch, 0)
        if number >= self.rate_limit:
            raise RlnError(RlnErrorKind.BUDGET_EXHAUSTED, f"epoch {epoch} has no number left")
        self._next_number[epoch] = number + 1
        if self._on_reserve is not None:
            self._on_reserve(dict(self._next_number))
        claim = _LAYOUT.pack(self._member, epoch, number, hashlib.sha256(signal).digest())
        return claim.ljust(PROOF_BYTES, b"\0")


class RlnTestValidator:
    """Judges the proofs of `StrictRlnProvider` as the relays of a network would."""

    def __init__(self, *, rate_limit: int, epoch_ms: int) -> None:
        self._rate_limit = rate_limit
        self._clock = EpochClock(epoch_ms=epoch_ms)
        self._seen: dict[tuple[bytes, int, int], bytes] = {}

    def validate(self, proof: bytes, signal: bytes, now_ms: int) -> ProofVerdict:
        """Judge a proof of `fairway.protocol.ratelimit.rln.rln_signal` bytes received at ``now_ms``."""
        if len(proof) != PROOF_BYTES or len(signal) < 8:
            return ProofVerdict.INVALID
        member, epoch, number, digest = _LAYOUT.unpack_from(proof)
        stamped_ms = int.from_bytes(signal[-8:], "little", signed=True) // _NS_PER_MS
        if (
            digest != hashlib.sha256(signal).digest()
            or epoch != self._clock.index(stamped_ms)
            or number >= self._rate_limit
            or abs(now_ms - stamped_ms) > MAX_CLOCK_GAP_MS
        ):
            return ProofVerdict.INVALID
        used = (member, epoch, number)
        if used not in self._seen:
            self._seen[used] = digest
            return ProofVerdict.VALID
        return ProofVerdict.DUPLICATE if self._seen[used] == digest else ProofVerdict.VIOLATION
