"""`Undelivered`: reassembles the content of SDS messages and delivers each message in its turn.

SDS acknowledges each message that it accepts. The stack therefore calls `Undelivered.accept` first: if the content
cannot be kept, SDS does not accept the message, and its sender retransmits it. Segments are reassembled on arrival,
also while SDS parks them. A complete message thus does not wait for its lost segments, which makes parity useful under
causal order (`fairway.protocol.incoming.lost_segments`).

A message of one segment is delivered when SDS delivers it. A longer message is delivered when it is complete and SDS
has delivered the first of its segments that arrived. That segment waits for everything that was sent before the
message. Later segments may still be parked. The application's next message cites the last of them, so that no reply
overtakes the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from fairway.bounded import BoundedDict
from fairway.events import Event, IrretrievableMessage, Limit, LossReason, MessageReceived, OrderKey
from fairway.options import Delivery
from fairway.protocol.incoming.arrivals import ARRIVALS, Arrival, Arrivals
from fairway.protocol.incoming.complete_messages import COMPLETE, CompleteMessage, CompleteMessages
from fairway.protocol.incoming.lost_segments import LostSegments
from fairway.protocol.incoming.opening import ReceivedWakuMessage
from fairway.protocol.journal import Row, RowReader
from fairway.protocol.segmentation.outcomes import MessageComplete, Outcome, Refused, SegmentKept, SetLost
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.segmentation.segment_set import SegmentSet
from fairway.protocol.segmentation.segmenter import logical_message_id
from fairway.protocol.shared import Shared
from fairway.wire.batch import decode_batch, id_in_batch
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.topics import autoshard

REASSEMBLY: Final = "reassembly"
_MAX_EPHEMERAL: Final = 1_000
"""Ephemeral messages remembered, to drop copies."""


class Undelivered:
    """Segments and messages that are not delivered yet."""

    def __init__(self, shared: Shared) -> None:
        options, sds, journal = shared.options, shared.sds, shared.journal
        self.reassembler = Reassembler(
            options.segmentation, options.segment_format, on_change=partial(journal.touch, REASSEMBLY)
        )
        self.complete = CompleteMessages(journal)
        self.lost_segments = LostSegments(options, sds, self.complete)
        self._arrivals = Arrivals(journal)
        self.readers: dict[str, RowReader] = {
            ARRIVALS: self._arrivals.get,
            COMPLETE: self.complete.get,
            REASSEMBLY: self.reassembler.row,
        }
        self._content_topic = shared.content_topic
        self._pubsub_topic = autoshard(shared.content_topic, options.cluster_id, options.shard_count)
        self._on_arrival = options.delivery is Delivery.ARRIVAL
        quotas = self.reassembler.quotas
        self._bounds = {
            Limit.SEGMENT_SETS_OF_SENDER: quotas.sets_per_sender,
            Limit.SEGMENT_BYTES_OF_SENDER: quotas.bytes_per_sender,
            Limit.SEGMENT_BYTES: quotas.all_bytes,
        }
        self._limits = shared.limits
        self._sds = sds
        self._ephemeral: BoundedDict[str, None] = BoundedDict(_MAX_EPHEMERAL)
        self.is_taken: Callable[[MessageReceived], bool] = lambda _: False
        """Returns whether the application does not get a message (`Snapshots.takes`); set by the layer above."""

    def __len__(self) -> int:
        return len(self._arrivals) + len(self.complete)

    def accept(self, message: SdsMessage, now_ms: int) -> tuple[Outcome, list[Event]]:
        """Keep the content of a new message or refuse it; SDS must not accept a refused message."""
        events, dependencies = self.expire(now_ms), self._sds.dependencies
        outcome = self.reassembler.accept(
            message.sender_id,
            message.message_id,
            message.lamport_timestamp or 0,
            message.content or b"",
            dependencies.clock.waited_ms,
            is_next=lambda: self._sds.is_placed(message) and not self._sds.waits_for(message),
            waiting_bytes=self.complete.size_bytes,
        )
        if not isinstance(outcome, Refused):
            self._limits.relieved(self._bounds)
            if isinstance(outcome, SegmentKept):
                dependencies.let_time_pass(now_ms, waits=self.reassembler.next_deadline() is not None)
            return outcome, events
        if outcome.full is not None:
            events += self._limits.note(outcome.full, self._bounds[outcome.full], bites=True)
        if outcome.lost is not None:
            events += self._lost([outcome.lost])
        return outcome, events

    def keep(
        self, message: SdsMessage, kept: MessageComplete | SegmentKept, transmission: ReceivedWakuMessage, now_ms: int
    ) -> list[Event]:
        """Keep the arrival of a message that SDS accepted; deliver it if it does not wait for SDS."""
        events = self._keep(message, kept, transmission, now_ms)
        self.lost_segments.look_at(message)
        return events

    def _keep(
        self, message: SdsMessage, kept: MessageComplete | SegmentKept, transmission: ReceivedWakuMessage, now_ms: int
    ) -> list[Event]:
        if isinstance(kept, SegmentKept) and kept.is_late:
            self._arrivals.forget(kept.merged_ids)
            self.complete.note_late(kept.segments.sds_ids)
            self.lost_segments.completed(kept.segments)
            return []
        if isinstance(kept, SegmentKept) and kept.is_duplicate:
            return []
        whole = isinstance(kept, MessageComplete) and kept.segments is None
        arrival = Arrival(
            message_hash=transmission.message_hash,
            timestamp_ns=transmission.timestamp_ns,
            meta=transmission.meta,
            lamport=message.lamport_timestamp or 0,
            is_segment=not whole,
        )
        self._arrivals.keep(message.message_id, arrival)
        if isinstance(kept, MessageComplete) and kept.segments is not None:
            return self._completed(kept, kept.segments, message, now_ms)
        return self.deliver(message, now_ms, met=self._sds.is_met(message)) if whole and self._on_arrival else []

    def deliver(self, message: SdsMessage, now_ms: int, *, met: bool) -> list[Event]:
        """Deliver a message that SDS delivered, or the complete message whose first segment it is."""
        message_id = message.message_id
        met = met and self._has_what_is_cited(message)
        arrival = self._arrivals.get(message_id)
        if arrival is None:
            is_piece_of = partial(self.reassembler.is_piece, message.content or b"")
            complete = self.complete.release(message_id, is_piece_of, met=met)
            return [] if complete is None else self._hand_over(complete)
        if arrival.is_segment:
            self._arrivals.mark_in_place(message_id, met=met)
            return []
        self._arrivals.forget((message_id,))
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
        return self._received(whole)

    def deliver_ephemeral(self, message: SdsMessage, transmission: ReceivedWakuMessage) -> list[Event]:
        """Deliver an ephemeral message at once (SDS, "Ephemeral Messages"); ignore copies."""
        known = f"{message.sender_id}\0{message.message_id}"
        payload = message.content or b""
        if self._sds.profile.ephemeral_is_content:
            wrapped = self.reassembler.accept(message.sender_id, message.message_id, 0, payload, 0)
            payload = wrapped.payload if isinstance(wrapped, MessageComplete) else b""
        if known in self._ephemeral or not payload:
            return []
        self._ephemeral[known] = None
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

    def waiting(self) -> dict[str, int]:
        """Return the timestamps of the messages that carried undelivered content, in Unix nanoseconds, by SDS id."""
        return self.complete.timestamps() | {sds_id: arrival.timestamp_ns for sds_id, arrival in self._arrivals.items()}

    def expire(self, now_ms: int) -> list[Event]:
        """Expire sets without a new segment for the timeout, measured by the waiting clock."""
        dependencies, has_sets = self._sds.dependencies, self.reassembler.next_deadline() is not None
        dependencies.let_time_pass(now_ms, waits=has_sets)
        return self._lost(self.reassembler.expire(dependencies.clock.waited_ms)) if has_sets else []

    def next_deadline(self) -> int | None:
        """Return when `expire` is due; None without incomplete sets, or while the waiting clock does not run."""
        waited_ms = self.reassembler.next_deadline()
        return None if waited_ms is None else self._sds.dependencies.clock.reaches_at(waited_ms)

    def given_up(self, entries: Iterable[HistoryEntry], reason: LossReason) -> list[Event]:
        """Return the events for messages that SDS declared lost, except for lost segments of complete messages."""
        rebuilt = {sds_id for message in self.complete.values() for sds_id in message.lost}
        return [
            IrretrievableMessage(message_id=message_id, reason=reason, sender_id=sender_id, retrieval_hint=hint)
            for message_id, hint, sender_id in entries
            if message_id not in rebuilt
        ]

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield table, key and row of the whole state."""
        for table, rows in zip(
            self.readers, (self._arrivals.items(), self.complete.items(), self.reassembler.rows()), strict=True
        ):
            for key, row in rows:
                yield table, key, row

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill empty tables with rows of `rows`."""
        segments: list[tuple[str, Row]] = []
        for table, key, row in rows:
            if table == ARRIVALS:
                self._arrivals[key] = Arrival(*row)
            elif table == COMPLETE:
                self.complete.load(key, row)
            else:
                segments.append((key, row))
        self.reassembler.load(segments)

    def resume(self) -> None:
        """Find the delivered messages with parked segments, after a restart."""
        waiting = {sds_id for complete in self.complete.values() for sds_id in complete.sds_ids}
        for segments in self.reassembler.completed():
            sds_ids = segments.sds_ids
            self.complete.note_late(sds_ids)
            self.lost_segments.completed(segments)
            if not self._on_arrival and waiting.isdisjoint(sds_ids):
                self._sds.handed_over(sds_ids)

    def _has_what_is_cited(self, message: SdsMessage) -> bool:
        """Return whether the application has received each message of which a segment is cited.

        A sender may cite a segment before it has the whole message. Once it has, its next message descends from the
        last segment and waits for that one, unless messages between them were delivered around a gap.
        """
        cited = self._sds.cited_by(message)
        segments = self._arrivals.among(cited)
        if self.complete.has_any(cited) or any(arrival.met is False for _, arrival in segments):
            return False
        records = (self._sds.record(sds_id) for sds_id, _ in segments)
        # A sender that cites its own message cites the last segment.
        is_of_other = any(record is not None and record.sender_id != message.sender_id for record in records)
        return not (is_of_other and self._sds.dependencies.is_around_a_gap)

    def _order_key(self, sds_id: str, arrival: Arrival, now_ms: int) -> OrderKey:
        # A forged Lamport timestamp must not place a message at the end forever.
        return OrderKey(self._sds.believed_lamport(arrival.lamport, now_ms), sds_id)

    def _completed(
        self, outcome: MessageComplete, segments: SegmentSet, latest: SdsMessage, now_ms: int
    ) -> list[Event]:
        arrivals = {sds_id: self._arrivals.get(sds_id) for sds_id in segments.sds_ids}
        # A whole message may have arrived with the SDS id of a segment.
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
            dependencies_met=all(arrival.met is not False for arrival in came.values()),
        )
        self._arrivals.forget(came)
        if self._on_arrival:
            # SDS has not reported yet whether the latest segment waits for a message.
            met = complete.dependencies_met and self._sds.is_met(latest) and self._has_what_is_cited(latest)
            complete = complete._replace(dependencies_met=met and not self._sds.parked.keys() & came)
        if self._on_arrival or came[first_id].met is not None:
            self.lost_segments.completed(segments)
            return self._hand_over(complete)
        self.complete.add(first_id, complete)
        self.lost_segments.completed(segments)
        return []

    def _hand_over(self, complete: CompleteMessage) -> list[Event]:
        self.lost_segments.delivered(complete)
        if not self._on_arrival:
            self._sds.handed_over(complete.sds_ids)
        return self._received(complete)

    def _received(self, complete: CompleteMessage) -> list[Event]:
        """Return the event of a message; for a batch, which has only one segment, those of its messages.

        Applications recognise messages by their SDS ids and order keys, so those of a batch have different ones.
        """
        batch = decode_batch(complete.payload) if len(complete.sds_ids) == 1 else None
        lamport, sds_id = complete.order_key
        events = [
            MessageReceived(
                message_id=logical_message_id(payload),
                sender_id=complete.sender_id,
                channel_id=self._sds.channel_id,
                content_topic=self._content_topic,
                pubsub_topic=self._pubsub_topic,
                payload=payload,
                timestamp_ns=complete.timestamp_ns,
                order_key=OrderKey(lamport, id_in_batch(sds_id, index)),
                meta=complete.meta,
                message_hashes=complete.message_hashes,
                sds_ids=(id_in_batch(sds_id, index),) if batch else complete.sds_ids,
                dependencies_met=complete.dependencies_met,
                recovered=complete.recovered,
            )
            for index, payload in enumerate(batch or (complete.payload,))
        ]
        return [event for event in events if not self.is_taken(event)]

    def _lost(self, sets: Iterable[SetLost]) -> list[Event]:
        events: list[Event] = []
        for lost in sets:
            self._arrivals.forget(lost.sds_ids)
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
