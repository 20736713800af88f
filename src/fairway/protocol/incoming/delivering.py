"""Reassemble and deliver: what becomes of the content of messages (LIP-173, "Incoming message processing").

`Delivering.reassemble` comes before SDS takes a message in, because SDS acknowledges what it takes in. Content that
cannot be kept is not taken in, and comes again, by a retry or from a store. Segments are reassembled when they arrive,
also while SDS parks them, which is what makes parity useful under causal order: a message that becomes complete ends
the waiting for its own lost segments (`fairway.protocol.incoming.lost_segments`).

A message of one segment is delivered when SDS delivers it. A longer one is delivered when it is complete and SDS has
delivered the first of its segments that came, for that one waits for everything that was sent before. Later segments
may be parked still; what the application says next cites the last of them, so that no reply overtakes the message.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import Final

from fairway.events import Event, IrretrievableMessage, Limit, LossReason, MessageReceived, OrderKey
from fairway.options import Delivery, ReliableChannelOptions
from fairway.protocol.incoming.lost_segments import LostSegments
from fairway.protocol.incoming.message_life import LIFE, MessageState, MessageStep
from fairway.protocol.incoming.undelivered import Arrival, CompleteMessage, Undelivered
from fairway.protocol.limits import LimitWatch
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.segmentation.outcomes import MessageComplete, Outcome, Refused, SegmentKept, SetLost
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.segmentation.segment_set import SegmentSet
from fairway.units import NS_PER_MS
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash

_MAX_EPHEMERAL: Final = 1_000
"""Ephemeral messages remembered, so that a copy is not delivered again."""


class ReceivedWakuMessage:
    """The WakuMessage that an SDS message came in, under its deterministic hash."""

    __slots__ = ("_hash", "_message", "_pubsub_topic", "from_store", "is_ephemeral", "meta", "timestamp_ns")

    def __init__(
        self, pubsub_topic: str, message: WakuMessage, message_hash: bytes | None = None, *, from_store: bool = False
    ) -> None:
        """``message_hash`` is the deterministic hash, if it is at hand."""
        self.from_store = from_store
        """Whether a store brought it, so that it was not heard now."""
        self.timestamp_ns = message.timestamp_ns or 0
        self.meta = message.meta
        self.is_ephemeral = bool(message.ephemeral)
        """Whether it is marked as ephemeral (14/WAKU2-MESSAGE)."""
        self._pubsub_topic = pubsub_topic
        self._message = message
        self._hash = message_hash

    @property
    def sent_ms(self) -> int | None:
        """Return the time with which it is stamped, in Unix milliseconds; None if it is not."""
        return self.timestamp_ns // NS_PER_MS if self.timestamp_ns else None

    @property
    def message_hash(self) -> bytes:
        """Return the deterministic hash, worked out when it is first needed."""
        if self._hash is None:
            self._hash = message_hash(self._pubsub_topic, self._message)
        return self._hash


def logical_message_id(payload: bytes) -> str:
    """Return the id of a logical message: lower-case hex SHA-256 of the payload before segmentation.

    RELIABLE-CHANNEL-API, "Message segmentation"; docs/decisions/specifications.md, "Message ids".
    """
    return hashlib.sha256(payload).hexdigest()


class Delivering:
    """The reassembler, what is not delivered yet, and what is delivered when."""

    def __init__(
        self,
        content_topic: str,
        options: ReliableChannelOptions,
        sds: MessageChannel,
        reassembler: Reassembler,
        undelivered: Undelivered,
        lost_segments: LostSegments,
        limits: LimitWatch,
    ) -> None:
        self.reassembler = reassembler
        self._undelivered = undelivered
        self._lost_segments = lost_segments
        self._content_topic = content_topic
        self._pubsub_topic = autoshard(content_topic, options.cluster_id, options.shard_count)
        self._is_wrapped = sds.profile.ephemeral_is_content
        self._on_arrival = options.delivery is Delivery.ARRIVAL
        self._bounds = {
            Limit.SEGMENT_SETS_OF_SENDER: options.segmentation.max_sets_per_sender,
            Limit.SEGMENT_BYTES_OF_SENDER: options.segmentation.max_buffered_bytes_per_sender,
            Limit.SEGMENT_BYTES: options.segmentation.max_buffered_bytes,
        }
        self._limits = limits
        self._sds = sds
        self._ephemeral: OrderedDict[str, None] = OrderedDict()

    def reassemble(self, message: SdsMessage, now_ms: int) -> tuple[Outcome, list[Event]]:
        """Keep the content of a new message or refuse it; SDS must not take in what is refused."""
        events, waited_ms = self.expire(now_ms), self._sds.waited_ms
        outcome = self.reassembler.accept(
            message.sender_id,
            message.message_id,
            message.lamport_timestamp or 0,
            message.content or b"",
            waited_ms,
            is_next=self._sds.is_placed(message) and not self._sds.waits_for(message),
            waiting_bytes=self._undelivered.awaiting_bytes,
        )
        if not isinstance(outcome, Refused):
            self._limits.relieved(self._bounds)
            self._sds.let_time_pass(now_ms, waits=self.reassembler.next_deadline() is not None)
            return outcome, events
        if outcome.full is not None:
            events += self._limits.note(outcome.full, self._bounds[outcome.full], bites=True)
        if outcome.lost is not None:
            events += self._lost([outcome.lost])
        return outcome, events

    def keep(
        self, message: SdsMessage, kept: MessageComplete | SegmentKept, transmission: ReceivedWakuMessage, now_ms: int
    ) -> list[Event]:
        """Keep how a message that SDS has taken in came; deliver what need not wait for SDS."""
        if isinstance(kept, SegmentKept) and kept.is_late:
            self._undelivered.forget(kept.merged_ids)
            self._undelivered.came_late(kept.segments.sds_ids)
            self._lost_segments.completed(kept.segments)
            return []
        if isinstance(kept, SegmentKept) and kept.is_duplicate:
            return []
        whole = isinstance(kept, MessageComplete) and kept.segments is None
        arrival = Arrival(
            message_hash=transmission.message_hash,
            timestamp_ns=transmission.timestamp_ns,
            meta=transmission.meta,
            lamport=message.lamport_timestamp or 0,
            state=LIFE[MessageState.NEW][MessageStep.KEPT_WHOLE if whole else MessageStep.KEPT_SEGMENT],
        )
        self._undelivered.keep(message.message_id, arrival)
        if isinstance(kept, MessageComplete) and kept.segments is not None:
            return self._completed(kept, kept.segments, message, now_ms)
        return self.deliver(message, now_ms, met=self._sds.is_met(message)) if whole and self._on_arrival else []

    def deliver(self, message: SdsMessage, now_ms: int, *, met: bool) -> list[Event]:
        """Deliver what SDS has delivered: a message of one segment, or one that is complete, with its first segment."""
        message_id = message.message_id
        met = met and self._has_what_is_cited(message)
        arrival = self._undelivered.get(message_id)
        if arrival is None:
            is_piece_of = partial(self.reassembler.is_piece, message.content or b"")
            complete = self._undelivered.release(message_id, is_piece_of, met=met)
            return [] if complete is None else [self._hand_over(complete)]
        if arrival.after(MessageStep.RELEASED) is MessageState.IN_PLACE:
            self._undelivered.mark(message_id, met=met)
            return []
        self._undelivered.forget((message_id,))
        whole = CompleteMessage(
            sender_id=message.sender_id,
            payload=message.content or b"",
            sds_ids=(message_id,),
            message_hashes=(arrival.message_hash,),
            timestamp_ns=arrival.timestamp_ns,
            order_key=self._order_key(message_id, arrival, now_ms),
            meta=arrival.meta,
            recovered=False,
            dependencies_met=met,
        )
        return [self._received(whole)]

    def deliver_ephemeral(self, message: SdsMessage, transmission: ReceivedWakuMessage) -> list[Event]:
        """Deliver an ephemeral message at once (SDS, "Ephemeral Messages"), each copy but the first ignored."""
        known = f"{message.sender_id}\0{message.message_id}"
        payload = message.content or b""
        if self._is_wrapped:
            wrapped = self.reassembler.accept(message.sender_id, message.message_id, 0, payload, 0)
            payload = wrapped.payload if isinstance(wrapped, MessageComplete) else b""
        if known in self._ephemeral or not payload:
            return []
        self._ephemeral[known] = None
        if len(self._ephemeral) > _MAX_EPHEMERAL:
            self._ephemeral.popitem(last=False)
        return [
            MessageReceived(
                message_id=logical_message_id(payload),
                sender_id=message.sender_id,
                channel_id=message.channel_id,
                content_topic=self._content_topic,
                pubsub_topic=self._pubsub_topic,
                payload=payload,
                timestamp_ns=transmission.timestamp_ns,
                meta=transmission.meta,
                message_hashes=(transmission.message_hash,),
                sds_ids=(message.message_id,),
                ephemeral=True,
            )
        ]

    def resume(self) -> None:
        """Note anew, after a restart, of which messages that were delivered segments still wait."""
        waiting = {sds_id for awaiting in self._undelivered.awaiting.values() for sds_id in awaiting.sds_ids}
        for segments in self.reassembler.completed():
            sds_ids = segments.sds_ids
            self._undelivered.came_late(sds_ids)
            self._lost_segments.completed(segments)
            if not self._on_arrival and waiting.isdisjoint(sds_ids):
                self._sds.handed_over(sds_ids)

    def expire(self, now_ms: int) -> list[Event]:
        """Give up sets that gained nothing for too long, by the clock that runs while something can come."""
        self._sds.let_time_pass(now_ms, waits=self.reassembler.next_deadline() is not None)
        return self._lost(self.reassembler.expire(self._sds.waited_ms))

    def next_deadline(self) -> int | None:
        """Return when to look whether `expire` has something to do; None while nothing can come."""
        waited_ms = self.reassembler.next_deadline()
        return None if waited_ms is None else self._sds.reaches_at(waited_ms)

    def given_up(self, entries: Iterable[HistoryEntry], reason: LossReason) -> list[Event]:
        """Return the losses of what SDS has given up, except for lost segments of complete messages."""
        rebuilt = {sds_id for message in self._undelivered.awaiting.values() for sds_id in message.lost}
        return [
            IrretrievableMessage(message_id=message_id, reason=reason, sender_id=sender_id, retrieval_hint=hint)
            for message_id, hint, sender_id in entries
            if message_id not in rebuilt
        ]

    def _has_what_is_cited(self, message: SdsMessage) -> bool:
        """Return whether no cited message is a segment of a message that the application lacks because of a gap.

        A sender may cite a segment before it has the message. If it has the message, what it sends descends from the
        last segment, and so waits for that, but not if something on the way there was gone around.
        """
        cited = self._sds.cited_by(message)
        if self._undelivered.lacks_any(cited):
            return False
        records = map(self._sds.record, self._undelivered.segments_among(cited))
        # Who cites a segment of its own cites the last ones of its message, which are looked up themselves.
        is_of_other = any(record is not None and record.sender_id != message.sender_id for record in records)
        return not (is_of_other and self._sds.is_around_a_gap)

    def _order_key(self, sds_id: str, arrival: Arrival, now_ms: int) -> OrderKey:
        # A forged timestamp must not keep a message at the end for ever.
        return OrderKey(self._sds.believed_lamport(arrival.lamport, now_ms), sds_id)

    def _completed(
        self, outcome: MessageComplete, segments: SegmentSet, latest: SdsMessage, now_ms: int
    ) -> list[Event]:
        arrivals = {sds_id: self._undelivered.get(sds_id) for sds_id in segments.sds_ids}
        # Under the id of a segment a whole message may have come, too.
        came = {sds_id: arrival for sds_id, arrival in arrivals.items() if arrival is not None and arrival.is_segment}
        newest = max(came.values(), key=lambda arrival: arrival.timestamp_ns)
        first_id = next(iter(came))
        complete = CompleteMessage(
            sender_id=segments.key.sender_id,
            payload=outcome.payload,
            sds_ids=segments.sds_ids,
            message_hashes=tuple(arrival.message_hash for arrival in came.values()),
            timestamp_ns=newest.timestamp_ns,
            order_key=self._order_key(first_id, came[first_id], now_ms),
            meta=newest.meta,
            recovered=outcome.recovered,
            dependencies_met=all(arrival.met for arrival in came.values()),
        )
        state = came[first_id].after(MessageStep.COMPLETED)
        self._undelivered.forget(came)
        if self._on_arrival:
            # Of the segment that came just now SDS tells only later whether anything is lacking.
            complete.dependencies_met &= self._sds.is_met(latest) and self._has_what_is_cited(latest)
            complete.dependencies_met &= not self._sds.parked.keys() & came
        if self._on_arrival or state is MessageState.DELIVERED:
            self._lost_segments.completed(segments)
            return [self._hand_over(complete)]
        self._undelivered.wait(first_id, complete)
        self._lost_segments.completed(segments)
        return []

    def _hand_over(self, complete: CompleteMessage) -> MessageReceived:
        self._lost_segments.delivered(complete)
        if not self._on_arrival:
            self._sds.handed_over(complete.sds_ids)
        return self._received(complete)

    def _received(self, complete: CompleteMessage) -> MessageReceived:
        return MessageReceived(
            message_id=logical_message_id(complete.payload),
            sender_id=complete.sender_id,
            channel_id=self._sds.channel_id,
            content_topic=self._content_topic,
            pubsub_topic=self._pubsub_topic,
            payload=complete.payload,
            timestamp_ns=complete.timestamp_ns,
            order_key=complete.order_key,
            meta=complete.meta,
            message_hashes=complete.message_hashes,
            sds_ids=complete.sds_ids,
            dependencies_met=complete.dependencies_met,
            recovered=complete.recovered,
        )

    def _lost(self, sets: Iterable[SetLost]) -> list[Event]:
        events: list[Event] = []
        for lost in sets:
            self._undelivered.forget(lost.sds_ids)
            if lost.reason is not None:
                events.append(
                    IrretrievableMessage(
                        message_id=lost.sds_ids[0],
                        reason=lost.reason,
                        sender_id=lost.key.sender_id,
                        payload_hash=lost.key.payload_hash,
                        sds_ids=lost.sds_ids,
                    )
                )
        return events
