"""From SDS to the application: reassemble, and deliver at the causal place (design.md 5.4 and 5.6).

Segments go to the reassembler when they arrive, also while SDS holds them back. That is what makes parity useful under
causal order: a set that completes ends the waiting for its own lost segments (`fairway.protocol.siblings`). The message
is delivered when SDS has released the first of its segments that came, for that one waits for whatever was sent before;
whoever has read the message cites one that comes later, so that no reply can overtake it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from fairway.events import Event, IrretrievableMessage, LossReason, MessageReceived
from fairway.options import Delivery, ReliableChannelOptions
from fairway.protocol.arrivals import Arrival, Arrivals, Awaiting
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.segmentation.outcomes import (
    MessageCompleted,
    SegmentDiscarded,
    SegmentDuplicate,
    SegmentStored,
    SegmentSurplus,
    SetLost,
    SetRejected,
    WholeMessage,
)
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.siblings import LostSiblings
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.topics import autoshard

_MAX_EPHEMERAL: Final = 1_000
"""Ephemeral messages remembered, so that a copy is not delivered again."""


class Carrier(NamedTuple):
    """The WakuMessage that an SDS message came in."""

    message_hash: bytes
    timestamp_ns: int


def logical_message_id(payload: bytes) -> str:
    """Return the id of a logical message: lower-case hex SHA-256 of the payload (seeds 000, 001; design.md 5.2)."""
    return hashlib.sha256(payload).hexdigest()


class Inbound:
    """What was received and not yet delivered."""

    def __init__(
        self,
        content_topic: str,
        options: ReliableChannelOptions,
        sds: MessageChannel,
        reassembler: Reassembler,
        arrivals: Arrivals,
        siblings: LostSiblings,
    ) -> None:
        self.reassembler = reassembler
        self.arrivals = arrivals
        self.siblings = siblings
        self._content_topic = content_topic
        self._pubsub_topic = autoshard(content_topic, options.cluster_id, options.shard_count)
        self._on_arrival = options.delivery is Delivery.ARRIVAL
        self._max_awaiting_bytes = options.sds.max_incoming_buffer_bytes
        self._sds = sds
        self._ephemeral: OrderedDict[str, None] = OrderedDict()

    def arrived(self, message: SdsMessage, carrier: Carrier, now_ms: int) -> Iterator[Event]:
        """Reassemble a content message that was received for the first time, whatever it depends on."""
        message_id, lamport = message.message_id, message.lamport_timestamp or 0
        outcome = self.reassembler.add(message.sender_id, message_id, lamport, message.content or b"", now_ms)
        yield from self._lost(outcome.lost)
        whole = isinstance(outcome, WholeMessage)
        match outcome:
            case WholeMessage() | SegmentStored() | MessageCompleted():
                arrival = Arrival(
                    message_hash=carrier.message_hash, timestamp_ns=carrier.timestamp_ns, lamport=lamport, whole=whole
                )
                self.arrivals.keep(message_id, arrival)
                if isinstance(outcome, MessageCompleted):
                    yield from self._completed(outcome)
                elif whole and self._on_arrival:
                    yield from self.released(message, met=self._is_met(message))
            case SetRejected():
                self.arrivals.forget(outcome.sds_ids)
                yield IrretrievableMessage(
                    message_id=outcome.set_key.payload_hash.hex(),
                    reason=outcome.reason,
                    sender_id=outcome.set_key.sender_id,
                )
            case SegmentSurplus() | SegmentDuplicate() | SegmentDiscarded():
                return

    def released(self, message: SdsMessage, *, met: bool) -> Iterator[Event]:
        """Deliver what SDS has released: a message that is whole, with the first of its segments that came."""
        message_id = message.message_id
        arrival = self.arrivals.get(message_id)
        if arrival is None:
            complete = self.arrivals.release(message_id, met=met)
            if complete is not None:
                yield from self._deliver(complete)
        elif not arrival.whole:
            self.arrivals.mark(message_id, met=met)
        else:
            self.arrivals.forget((message_id,))
            yield self._received(
                Awaiting(
                    sender_id=message.sender_id,
                    payload=message.content or b"",
                    sds_ids=(message_id,),
                    message_hashes=(arrival.message_hash,),
                    timestamp_ns=arrival.timestamp_ns,
                    recovered=False,
                    dependencies_met=met,
                    lost={},
                )
            )

    def ephemeral(self, message: SdsMessage, carrier: Carrier) -> Iterator[MessageReceived]:
        """Deliver an ephemeral message at once (SDS spec, "Ephemeral Messages"), each copy but the first ignored."""
        known = f"{message.sender_id}\0{message.message_id}"
        if known in self._ephemeral:
            return
        self._ephemeral[known] = None
        if len(self._ephemeral) > _MAX_EPHEMERAL:
            self._ephemeral.popitem(last=False)
        payload = message.content or b""
        yield MessageReceived(
            message_id=logical_message_id(payload),
            sender_id=message.sender_id,
            channel_id=message.channel_id,
            content_topic=self._content_topic,
            pubsub_topic=self._pubsub_topic,
            payload=payload,
            timestamp_ns=carrier.timestamp_ns,
            message_hashes=(carrier.message_hash,),
            sds_ids=(message.message_id,),
            ephemeral=True,
        )

    def expire(self, now_ms: int) -> Iterator[Event]:
        """Give up sets that gained nothing for too long."""
        yield from self._lost(self.reassembler.expire(now_ms))

    def given_up(self, entries: Iterable[HistoryEntry], reason: LossReason) -> Iterator[IrretrievableMessage]:
        """Tell what SDS waits for no longer, unless its content came otherwise."""
        for message_id, hint, sender_id in entries:
            if not self.siblings.is_rebuilt(message_id):
                yield IrretrievableMessage(
                    message_id=message_id, reason=reason, sender_id=sender_id, retrieval_hint=hint
                )

    def _completed(self, outcome: MessageCompleted) -> Iterator[Event]:
        arrivals = {sds_id: self.arrivals.get(sds_id) for sds_id in outcome.sds_ids}
        came = {sds_id: arrival for sds_id, arrival in arrivals.items() if arrival is not None}
        complete = Awaiting(
            sender_id=outcome.set_key.sender_id,
            payload=outcome.payload,
            sds_ids=outcome.sds_ids,
            message_hashes=tuple(arrival.message_hash for arrival in came.values()),
            timestamp_ns=max(arrival.timestamp_ns for arrival in came.values()),
            recovered=outcome.recovered,
            dependencies_met=all(arrival.met is not False for arrival in came.values()),
            lost=self.siblings.of(outcome, {sds_id: arrival.lamport for sds_id, arrival in came.items()}),
        )
        first_id = next(iter(came))
        self.arrivals.forget(came)
        if self._on_arrival:
            complete.dependencies_met &= not self._sds.dependencies.incoming.parked.keys() & came
        if self._on_arrival or came[first_id].met is not None:
            yield from self._deliver(complete)
            return
        self.arrivals.wait(first_id, complete)
        while (excess := self.arrivals.excess(self._max_awaiting_bytes)) is not None:
            yield from self._deliver(excess)

    def _deliver(self, complete: Awaiting) -> Iterator[Event]:
        self.siblings.delivered(complete)
        yield self._received(complete)

    def _is_met(self, message: SdsMessage) -> bool:
        dependencies = self._sds.dependencies
        lost = dependencies.has_lost(dependencies.cited(message))
        return message.message_id in self._sds.history and not lost

    def _received(self, complete: Awaiting) -> MessageReceived:
        return MessageReceived(
            message_id=logical_message_id(complete.payload),
            sender_id=complete.sender_id,
            channel_id=self._sds.channel_id,
            content_topic=self._content_topic,
            pubsub_topic=self._pubsub_topic,
            payload=complete.payload,
            timestamp_ns=complete.timestamp_ns,
            message_hashes=complete.message_hashes,
            sds_ids=complete.sds_ids,
            dependencies_met=complete.dependencies_met,
            recovered=complete.recovered,
        )

    def _lost(self, sets: Iterable[SetLost]) -> Iterator[Event]:
        for lost in sets:
            self.arrivals.forget(lost.sds_ids)
            yield IrretrievableMessage(message_id=lost.payload_hash.hex(), reason=lost.reason, sender_id=lost.sender_id)
