"""The last two steps out: rate limit, then dispatch (design.md 5.3, 5.8).

What arrives here is sealed already. It waits in the rate limit manager until it may leave; then it is stamped, proven,
encoded once, and those very bytes are hashed and handed out. A WakuMessage is stamped no earlier than that, because
relays refuse old timestamps and an RLN proof is bound to the timestamp (facts, RLN).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from fairway.errors import RlnError, RlnErrorKind
from fairway.events import SendErrorReason
from fairway.options import Profile, ReliableChannelOptions
from fairway.protocol.effects import Publish, Purpose
from fairway.protocol.journal import Journal, Row
from fairway.protocol.ratelimit import Admission, Priority, RateLimitManager, RlnProofProvider, rln_signal
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, encode_waku_message, message_hash

RATE_LIMIT: Final = "rate_limit"
STAMP: Final = "stamp"
LOGOS_MARKER: Final = b"RELIABLE-CHANNEL-API/1"
"""WakuMessage.meta of a channel that speaks the Logos profile (LIP-173)."""

_NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
_PROOF_RETRY_MS: Final = 1_000
_MAX_IN_FLIGHT: Final = 100_000
"""Transmissions whose outcome the node has not told; the oldest are forgotten beyond it."""

_PRIORITY: Final = {
    Purpose.CONTENT: Priority.CONTENT,
    Purpose.REPAIR: Priority.REPAIR,
    Purpose.RETRY: Priority.RETRY,
    Purpose.SYNC: Priority.SYNC,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transmission:
    """A sealed SDS message on its way out."""

    purpose: Purpose
    sds_id: str
    payload: bytes
    first_segment: bool = True
    """Whether it begins a message; seed 002 would charge only that."""
    ephemeral: tuple[str, str] | None = None
    """Request id and message id of an ephemeral message, which nothing else remembers."""


class InFlight(NamedTuple):
    """What was handed to the network and not answered yet."""

    purpose: Purpose
    sds_id: str
    message_hash: bytes
    ephemeral: tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A transmission that will never leave, and why."""

    transmission: Transmission
    reason: SendErrorReason
    detail: str


class Outbound:
    """Queue, stamp and hand out transmissions of one channel."""

    def __init__(
        self,
        content_topic: str,
        options: ReliableChannelOptions,
        waku_version: int,
        rln: RlnProofProvider,
        journal: Journal,
    ) -> None:
        self.limiter: RateLimitManager[Transmission] = RateLimitManager(
            options.rate_limit, on_change=lambda _: journal.touch(RATE_LIMIT, "")
        )
        self.pubsub_topic = autoshard(content_topic, options.cluster_id, options.shard_count)
        self.connected = True
        """Whether the node can send; nothing is dispatched while it cannot."""
        self._content_topic = content_topic
        self._max_bytes = options.max_wire_message_bytes
        self._meta = LOGOS_MARKER if options.profile is Profile.LOGOS else None
        self.waku_version = waku_version
        self._rln = rln
        self._journal = journal
        self._last_stamp_ns = 0
        self._not_before_ms = 0
        self._token = 0
        self._in_flight: dict[int, InFlight] = {}
        self._least_overhead = len(encode_waku_message(self._message(b"", stamp=1)))

    def enqueue(self, transmission: Transmission) -> tuple[bool, Transmission | None]:
        """Let a transmission wait for its turn; return (accepted, one that had to give way)."""
        is_repair = transmission.purpose is Purpose.REPAIR
        placement = self.limiter.enqueue(
            transmission,
            _PRIORITY[transmission.purpose],
            first_segment=transmission.first_segment,
            key=(transmission.sds_id, is_repair),
        )
        return placement.accepted, placement.displaced

    def waits(self, sds_id: str) -> bool:
        """Return whether a message waits for its turn, for the first time or again."""
        return self.limiter.is_queued((sds_id, False))

    def waits_for_others(self, sds_id: str) -> bool:
        """Return whether a message waits that somebody else asked for."""
        return self.limiter.is_queued((sds_id, True))

    def discard(self, sds_id: str) -> None:
        """Let go of a message that need not be sent again; whoever asked for it gets it nevertheless."""
        self.limiter.discard_key((sds_id, False))

    def is_too_large(self, sealed: bytes) -> bool:
        """Return whether the network can never take this payload, whatever the rest of the WakuMessage is."""
        return self._least_overhead + len(sealed) > self._max_bytes

    def dispatch(self, now_ms: int) -> list[Publish | Refused]:
        """Return everything that may leave now, in order, and what can never leave."""
        leaving: list[Publish | Refused] = []
        if not self.connected or now_ms < self._not_before_ms:
            return leaving
        self._learn_quota(now_ms)
        while (admission := self.limiter.admit(now_ms)) is not None:
            outcome = self._stamp(admission.item, now_ms)
            if isinstance(outcome, RlnError):
                if outcome.kind is not RlnErrorKind.PERMANENT:
                    self._wait_for_proofs(admission, outcome.kind, now_ms)
                    break
                outcome = Refused(
                    transmission=admission.item, reason=SendErrorReason.RLN_PROOF_FAILED, detail=str(outcome)
                )
            leaving.append(outcome)
        return leaving

    def dispatch_ephemeral(self, transmission: Transmission, now_ms: int) -> Publish | Refused | RlnError:
        """Return an ephemeral message for sending at once; it was admitted, and never waits."""
        return self._stamp(transmission, now_ms)

    def answered(self, token: int) -> InFlight | None:
        """Return what was handed out under a token, and forget it."""
        return self._in_flight.pop(token, None)

    def next_send_at(self, now_ms: int) -> int | None:
        """Return when something that waits can leave."""
        if not self.connected:
            return None
        at_ms = self.limiter.next_send_at(now_ms)
        return None if at_ms is None else max(at_ms, self._not_before_ms)

    def clock_went_back(self, now_ms: int) -> None:
        """Wait no longer for proofs than from now on."""
        self._not_before_ms = min(self._not_before_ms, now_ms + _PROOF_RETRY_MS)

    def row(self, table: str) -> Row:
        """Return the state of the rate limit, or of the clock that stamps messages."""
        return tuple(self.limiter.state()) if table == RATE_LIMIT else (self._last_stamp_ns, self._token)

    def load(self, table: str, row: Row) -> None:
        """Restore what `row` returned."""
        if table == RATE_LIMIT:
            self.limiter.restore(row)
        else:
            self._last_stamp_ns, self._token = row

    def _learn_quota(self, now_ms: int) -> None:
        try:
            quota = self._rln.epoch_quota(now_ms)
        except Exception:  # noqa: BLE001 - a provider may fail in any way, and then what it told before stays in force
            return
        self.limiter.set_provider_quota(quota, now_ms)

    def _prove(self, payload: bytes, stamp: int, now_ms: int) -> bytes | None:
        try:
            return self._rln.generate_proof(rln_signal(payload, self._content_topic, stamp), now_ms)
        except RlnError:
            raise
        except Exception as cause:
            # Whatever ails a provider, the message was accepted and must not get lost with it.
            raise RlnError(RlnErrorKind.TRANSIENT, f"the provider raised {type(cause).__name__}") from cause

    def _message(
        self, payload: bytes, stamp: int, proof: bytes | None = None, *, ephemeral: bool = False
    ) -> WakuMessage:
        return WakuMessage(
            payload=payload,
            content_topic=self._content_topic,
            version=self.waku_version,
            timestamp_ns=stamp,
            meta=self._meta,
            rate_limit_proof=proof,
            ephemeral=ephemeral,
        )

    def _stamp(self, transmission: Transmission, now_ms: int) -> Publish | Refused | RlnError:
        stamp = now_ms * _NANOSECONDS_PER_MILLISECOND
        if self._last_stamp_ns // _NANOSECONDS_PER_MILLISECOND == now_ms:
            # Two messages never share a timestamp: relays take equal messages for one.
            stamp = self._last_stamp_ns + 1
        try:
            proof = self._prove(transmission.payload, stamp, now_ms)
        except RlnError as error:
            return error
        is_ephemeral = transmission.purpose is Purpose.EPHEMERAL
        message = self._message(transmission.payload, stamp, proof, ephemeral=is_ephemeral)
        encoded = encode_waku_message(message)
        if len(encoded) > self._max_bytes:
            detail = f"{len(encoded)} bytes encoded, the network takes at most {self._max_bytes}"
            return Refused(transmission=transmission, reason=SendErrorReason.MESSAGE_TOO_LARGE, detail=detail)
        digest = message_hash(self.pubsub_topic, message)
        self._last_stamp_ns = stamp
        self._token += 1
        self._journal.touch(STAMP, "")
        self._in_flight[self._token] = InFlight(
            transmission.purpose, transmission.sds_id, digest, transmission.ephemeral
        )
        if len(self._in_flight) > _MAX_IN_FLIGHT:
            del self._in_flight[next(iter(self._in_flight))]
        return Publish(
            token=self._token,
            purpose=transmission.purpose,
            pubsub_topic=self.pubsub_topic,
            message=message,
            encoded=encoded,
            message_hash=digest,
            sds_id=transmission.sds_id,
        )

    def _wait_for_proofs(self, admission: Admission[Transmission], kind: RlnErrorKind, now_ms: int) -> None:
        self.limiter.put_back(admission)
        if kind is RlnErrorKind.BUDGET_EXHAUSTED:
            self.limiter.exhaust(now_ms)
        else:
            self._not_before_ms = now_ms + _PROOF_RETRY_MS
