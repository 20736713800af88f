"""The last two outgoing stages: rate limit, then dispatch.

The queue receives encrypted transmissions. A transmission waits in the rate limit manager until it may leave. Then the
queue stamps it, requests an RLN proof if the network requires one, encodes it once, hashes those bytes, and hands them
out. The timestamp is made this late because relays refuse old timestamps, and a proof is bound to the timestamp
(17/WAKU2-RLN-RELAY). So at most ``max_concurrent_publishes`` transmissions are being proven or wait for the node's
answer. The queue retransmits nothing: `Sending.answered` decides about a transmission that the node refused.

A proof takes time and a durable count of message ids. So a `Prove` effect requests it, and the transmission waits for
`Stack.proven`. Meanwhile other transmissions are proven and sent. Without a proof a transmission returns to its
position in the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple

from msgspec import Struct

from fairway.errors import FairwayError, RlnError, RlnErrorKind
from fairway.events import OrderKey, SendErrorReason
from fairway.protocol.effects import Prove, Publish, Purpose
from fairway.protocol.journal import Row, RowReader
from fairway.protocol.ratelimit import (
    Admission,
    Membership,
    Priority,
    RateLimitManager,
    Upstream,
    rln_signal,
)
from fairway.protocol.shared import Shared
from fairway.units import NS_PER_MS
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, encode_waku_message, message_hash

RATE_LIMIT: Final = "rate_limit"
STAMP: Final = "stamp"

_PROOF_RETRY_MS: Final = 1_000
_ANSWERED_WITHIN_MS: Final = 60_000
"""Time after which a transmission without an answer counts as refused, or as not proven."""
_PRIORITY: Final = {
    Purpose.CONTENT: Priority.CONTENT,
    Purpose.REPAIR: Priority.REPAIR,
    Purpose.RETRY: Priority.RETRY,
    Purpose.SYNC: Priority.SYNC,
}


class Transmission(Struct, frozen=True, kw_only=True):
    """An outgoing SDS message."""

    purpose: Purpose
    sds_id: str
    payload: bytes
    """The encoded SDS message; the queue holds it encrypted."""
    is_new: bool = False
    """Whether it is a segment that passes the encryption for the first time."""
    order_key: OrderKey | None = None
    """Position of its send in the channel, if it is the first transmission of the first segment; otherwise None."""
    sequence: int | None = None
    """Position within its priority; None appends it."""
    yields: bool = False
    """Whether it has the priority of a retry because the node refused it repeatedly."""
    ephemeral: tuple[str, str] | None = None
    """Request id and message id of an ephemeral message; no other object keeps them."""
    admitted_ms: int = 0
    """When the rate limit charged an ephemeral message."""

    @property
    def carries_segment(self) -> bool:
        """Whether it carries a segment of an own send."""
        return self.purpose in (Purpose.CONTENT, Purpose.RETRY)


class HandedOut(NamedTuple):
    """A transmission that waits for its proof, or for the node's answer."""

    transmission: Transmission
    stamp_ns: int
    admission: Admission[Transmission] | None
    """None for an ephemeral message, which never returns to the queue."""
    mark: int
    """Mark of `Pace.spend`, for the report of the node's answer."""
    since_ms: int
    message_hash: bytes = b""
    """Empty until it has its proof."""


class Unsendable(Struct, frozen=True, kw_only=True):
    """A transmission that will never leave, and why."""

    transmission: Transmission
    reason: SendErrorReason
    detail: str


class TransmissionQueue:
    """Queue, stamp and hand out transmissions of one channel."""

    def __init__(
        self, shared: Shared, membership: Membership | None, upstream: Callable[[], Upstream], *, proves: bool
    ) -> None:
        """``membership`` is shared by the channels of a node; ``upstream`` returns the content that waits for SDS."""
        options = shared.options
        self.limiter: RateLimitManager[Transmission] = RateLimitManager(
            options.rate_limit,
            on_change=partial(shared.journal.touch, RATE_LIMIT, ""),
            membership=membership,
            upstream=upstream,
        )
        self._max_in_flight = options.advanced.max_concurrent_publishes
        self.pubsub_topic = autoshard(shared.content_topic, options.cluster_id, options.shard_count)
        self.connected = True
        """Whether the node can send; nothing is dispatched while it cannot."""
        self.encrypting: dict[str, bool] = {}
        """Own segments that are being encrypted, by SDS id; True if it is the first time."""
        self._content_topic = shared.content_topic
        self._max_bytes = options.advanced.max_wire_message_bytes
        self._meta = options.profile.marker
        self.waku_version = shared.waku_version
        self._proves = proves
        self._journal = shared.journal
        self._last_stamp_ns = 0
        self._not_before_ms = 0
        self._token = 0
        self.readers: dict[str, RowReader] = {
            RATE_LIMIT: lambda _: self.limiter.state(),
            STAMP: lambda _: (self._last_stamp_ns, self._token),
        }
        self._handed_out: dict[int, HandedOut] = {}
        """Transmissions that wait for a proof or for the node's answer, by token."""
        self._node_has_room = True
        """Whether fewer transmissions than ``max_concurrent_publishes`` wait there."""
        self._tokens: dict[tuple[str, bool], int] = {}
        """Tokens of these transmissions, by SDS id and whether the transmission answers a repair request."""
        self._retries_handed_out = 0
        self.done = 0
        """Number of transmissions that the node took or refused permanently."""
        self._least_overhead = len(encode_waku_message(self._message(b"", stamp=1)))

    def enqueue(self, transmission: Transmission) -> None:
        """Add an encrypted transmission to the queue."""
        if transmission.carries_segment:
            self.encrypting.pop(transmission.sds_id, None)
        priority = Priority.RETRY if transmission.yields else _PRIORITY[transmission.purpose]
        self.limiter.enqueue(transmission, priority, _key_of(transmission), transmission.sequence)

    def is_under_way(self, sds_id: str) -> bool:
        """Return whether a segment is being encrypted, is queued, or waits for its proof or the node's answer."""
        return sds_id in self.encrypting or self.is_queued(sds_id) or self.is_handed_out(sds_id)

    def repair_is_under_way(self, sds_id: str) -> bool:
        """Return whether an answer to a repair request is queued, or waits for its proof or the node's answer."""
        return self.is_queued(sds_id, repair=True) or self.is_handed_out(sds_id, repair=True)

    def is_queued(self, sds_id: str, *, repair: bool = False) -> bool:
        """Return whether a message is queued; ``repair`` selects the answer to a repair request."""
        return self.limiter.is_queued((sds_id, repair))

    def is_handed_out(self, sds_id: str, *, repair: bool = False) -> bool:
        """Return whether a message waits for its proof or for the node's answer."""
        return (sds_id, repair) in self._tokens

    @property
    def active_retries(self) -> int:
        """Number of segments that are being encrypted, and of retransmissions that are queued or handed out."""
        return len(self.encrypting) + self.limiter.queued(Priority.RETRY) + self._retries_handed_out

    def discard(self, sds_id: str) -> bool:
        """Remove a message from the queue, and return whether it was queued; an answer to a repair request stays."""
        return self.limiter.discard((sds_id, False))

    def is_too_large(self, encrypted: bytes) -> bool:
        """Return whether the smallest WakuMessage with this payload exceeds the size limit of the network."""
        return self._least_overhead + len(encrypted) > self._max_bytes

    def dispatch(self, now_ms: int) -> list[Prove | Publish | Unsendable]:
        """Return the transmissions that may leave now, in order; an `Unsendable` can never leave."""
        outcomes: list[Prove | Publish | Unsendable] = []
        if not self.connected or now_ms < self._not_before_ms:
            return outcomes
        while self._node_has_room and (admission := self.limiter.admit(now_ms)) is not None:
            outcomes.append(self.stamp(admission.item, now_ms, admission))
        return outcomes

    def take(self, token: int, *, is_proven: bool) -> HandedOut | None:
        """Remove and return the transmission with a token; None if it does not wait.

        If ``is_proven``, it must wait for the node's answer, otherwise for its proof.
        """
        sent = self._handed_out.get(token)
        if sent is None or bool(sent.message_hash) is not is_proven:
            return None
        del self._handed_out[token]
        self._node_has_room = True
        key = _key_of(sent.transmission)
        if self._tokens.get(key) == token:
            del self._tokens[key]
        self._retries_handed_out -= sent.transmission.purpose is Purpose.RETRY
        return sent

    def not_proven(self, stamped: HandedOut, error: RlnError, now_ms: int) -> Unsendable | None:
        """Return a transmission without a proof to the queue; return `Unsendable` if the error is permanent.

        An ephemeral message does not return to the queue.
        """
        if error.kind is RlnErrorKind.PERMANENT:
            return Unsendable(
                transmission=stamped.transmission, reason=SendErrorReason.RLN_PROOF_FAILED, detail=str(error)
            )
        if stamped.admission is not None:
            self.limiter.put_back(stamped.admission)
        if error.kind is RlnErrorKind.BUDGET_EXHAUSTED:
            self.limiter.exhaust(stamped.since_ms)  # the epoch of the timestamp, which may have ended
        elif stamped.admission is not None:
            self._not_before_ms = now_ms + _PROOF_RETRY_MS
        return None

    def has_room_for_content(self, now_ms: int) -> bool:
        """Return whether content from the outbox would leave at once."""
        return (
            self.connected
            and now_ms >= self._not_before_ms
            and self._node_has_room
            and self.limiter.has_room_for_content(now_ms)
        )

    def holds_back(self, now_ms: int) -> bool:
        """Return whether the rate limit, the pace, a proof or an offline node delays the next transmission.

        A wait for the node's next answer does not count.
        """
        ready_at = self._ready_at(now_ms)
        return ready_at is None or ready_at > now_ms

    def claim(self, now_ms: int) -> None:
        """Announce the waiting transmissions to the other channels of the node; none if they cannot leave now."""
        if self.connected and self._node_has_room:
            self.limiter.claim(now_ms)
        else:
            self.limiter.claim_nothing()

    @property
    def is_busy(self) -> bool:
        """Whether a transmission waits for its proof or for the node's answer."""
        return bool(self._handed_out)

    def answered_for_good(self, in_flight: HandedOut, now_ms: int) -> None:
        """Note that the node took a transmission or refused it permanently."""
        self.done += 1
        self.limiter.pace.taken(in_flight.mark, now_ms)

    def refused(self, in_flight: HandedOut, now_ms: int, *, too_many: bool) -> None:
        """Slow the pace, because the node refused a transmission; ``too_many`` if it asks for fewer."""
        self.limiter.pace.refused(in_flight.mark, now_ms, too_many=too_many)

    def late(self, now_ms: int) -> list[tuple[int, bool]]:
        """Return the tokens without an answer for `_ANSWERED_WITHIN_MS`, and whether each has its proof."""
        return [
            (token, bool(sent.message_hash))
            for token, sent in self._handed_out.items()
            if not 0 <= now_ms - sent.since_ms < _ANSWERED_WITHIN_MS
        ]

    def next_send_at(self, now_ms: int) -> int | None:
        """Return when the next transmission can leave or an answer is overdue; None if neither is planned."""
        if not self.connected:
            return None
        ready_at = self._ready_at(now_ms) if self._node_has_room else None
        if not self._handed_out:
            return ready_at
        oldest = next(iter(self._handed_out.values()))
        overdue_at = oldest.since_ms + _ANSWERED_WITHIN_MS
        return overdue_at if ready_at is None else min(overdue_at, ready_at)

    def plan_anew(self, now_ms: int) -> None:
        """Limit the pause before the next proof to `_PROOF_RETRY_MS` from now."""
        self._not_before_ms = min(self._not_before_ms, now_ms + _PROOF_RETRY_MS)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield both rows."""
        yield RATE_LIMIT, "", self.limiter.state()
        yield STAMP, "", (self._last_stamp_ns, self._token)

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Restore what `rows` yielded."""
        for table, _, row in rows:
            if table == RATE_LIMIT:
                self.limiter.restore(row)
            else:
                self._last_stamp_ns, self._token = row

    def _ready_at(self, now_ms: int) -> int | None:
        """Return when the first waiting transmission may leave, regardless of the number in flight.

        Returns None if time alone lets none leave.
        """
        if not self.connected:
            return None
        first_ms = self.limiter.next_send_at(now_ms)
        return None if first_ms is None else max(first_ms, self._not_before_ms)

    def _track(self, token: int, sent: HandedOut) -> None:
        self._handed_out[token] = sent
        self._node_has_room = len(self._handed_out) < self._max_in_flight
        self._tokens[_key_of(sent.transmission)] = token
        self._retries_handed_out += sent.transmission.purpose is Purpose.RETRY

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

    def stamp(
        self, transmission: Transmission, now_ms: int, admission: Admission[Transmission] | None = None
    ) -> Prove | Publish | Unsendable:
        """Stamp a transmission, then request its proof or hand it out; an ephemeral message has no admission."""
        stamp = now_ms * NS_PER_MS
        if self._last_stamp_ns // NS_PER_MS == now_ms:
            # Consecutive messages never share a timestamp, because relays drop a message that equals another.
            stamp = self._last_stamp_ns + 1
        try:
            signal = rln_signal(transmission.payload, self._content_topic, stamp)
        except OverflowError:
            detail = f"no message holds the timestamp {stamp} ns: is the clock in milliseconds?"
            return Unsendable(transmission=transmission, reason=SendErrorReason.ENCODING_FAILED, detail=detail)
        self._last_stamp_ns = stamp
        self._token += 1
        self._journal.touch(STAMP, "")
        mark = self.limiter.pace.spend(now_ms)
        stamped = HandedOut(transmission, stamp, admission, mark, now_ms)
        if not self._proves:
            return self.hand_out(self._token, stamped, None, now_ms)
        self._track(self._token, stamped)
        return Prove(token=self._token, signal=signal, at_ms=now_ms)

    def hand_out(self, token: int, stamped: HandedOut, proof: bytes | None, now_ms: int) -> Publish | Unsendable:
        """Encode a stamped transmission and hand it out; without a proof if ``proof`` is None."""
        transmission = stamped.transmission
        is_ephemeral = transmission.purpose is Purpose.EPHEMERAL
        message = self._message(transmission.payload, stamped.stamp_ns, proof, ephemeral=is_ephemeral)
        try:
            encoded = encode_waku_message(message)
            digest = message_hash(self.pubsub_topic, message)
        except FairwayError as error:
            return Unsendable(transmission=transmission, reason=SendErrorReason.ENCODING_FAILED, detail=str(error))
        if len(encoded) > self._max_bytes:
            detail = f"{len(encoded)} bytes encoded, the network takes at most {self._max_bytes}"
            return Unsendable(transmission=transmission, reason=SendErrorReason.MESSAGE_TOO_LARGE, detail=detail)
        self._track(token, stamped._replace(since_ms=now_ms, message_hash=digest))
        return Publish(
            token=token,
            purpose=transmission.purpose,
            pubsub_topic=self.pubsub_topic,
            message=message,
            encoded=encoded,
            message_hash=digest,
            sds_id=transmission.sds_id,
        )


def _key_of(transmission: Transmission) -> tuple[str, bool]:
    return transmission.sds_id, transmission.purpose is Purpose.REPAIR
