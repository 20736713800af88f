"""From SDS to the application: reassemble, and deliver at the causal place (design.md 5.4 and 5.6).

Segments go to the reassembler when they arrive, also while SDS holds them back. That is what makes parity useful under
causal order: a set that completes settles the ids of its own segments that were lost, which lets go of those that
waited for them. The message is then delivered when SDS has released every segment of it that was received.

Which missing ids are a set's own? Its lost segments can be rebuilt, so that with fairway's rule for ids their very ids
are known (`_rebuilt_ids`). For other senders the order of sending tells: a segment cites the ones before it, newest
last (`_cited_siblings`). A wrong guess loses nothing: a settled id is only not waited for, and processed when it comes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fairway.errors import FairwayError
from fairway.events import Event, IrretrievableMessage, MessageReceived
from fairway.options import Delivery, IdRule, ReliableChannelOptions
from fairway.protocol.arrivals import Arrival, Arrivals, Awaiting, key_of
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.message_id import make_message_id
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
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.sds import SdsMessage

_MAX_REBUILT: Final = 10_000
"""Ids of lost segments that were rebuilt, remembered in case somebody cites them."""
_MAX_EPHEMERAL: Final = 1_000
"""Ephemeral messages remembered, so that a copy is not delivered again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    """Ids that SDS need not wait for any more: their content was rebuilt."""

    sds_ids: tuple[str, ...]


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
        segmenter: Segmenter,
        reassembler: Reassembler,
        arrivals: Arrivals,
    ) -> None:
        self.reassembler = reassembler
        self.arrivals = arrivals
        self._content_topic = content_topic
        self._on_arrival = options.delivery is Delivery.ARRIVAL
        self._sds = sds
        self._segmenter = segmenter
        self._rebuilt: OrderedDict[str, None] = OrderedDict()
        self._ephemeral: OrderedDict[str, None] = OrderedDict()

    def arrived(
        self, message: SdsMessage, message_hash: bytes, timestamp_ns: int, now_ms: int
    ) -> Iterator[Event | Settle]:
        """Reassemble a content message that was received for the first time, whatever it depends on."""
        message_id, lamport = message.message_id, message.lamport_timestamp or 0
        outcome = self.reassembler.add(message.sender_id, message_id, lamport, message.content or b"", now_ms)
        yield from self._lost(outcome.lost)
        arrival = Arrival(
            message_hash=message_hash,
            timestamp_ns=timestamp_ns,
            lamport=lamport,
            whole=isinstance(outcome, WholeMessage),
        )
        match outcome:
            case WholeMessage():
                self.arrivals.keep(message_id, arrival)
                if self._on_arrival:
                    yield from self.released(message, met=message_id in self._sds.history)
            case SegmentStored():
                self.arrivals.keep(message_id, arrival)
            case MessageCompleted():
                self.arrivals.keep(message_id, arrival)
                yield from self._completed(outcome)
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
        """Deliver what SDS has released: a whole message now, a segmented one with the last of its segments."""
        message_id = message.message_id
        arrival = self.arrivals.get(message_id)
        if arrival is not None and arrival.whole:
            self.arrivals.forget((message_id,))
            yield self._received(
                Awaiting(
                    sender_id=message.sender_id,
                    payload=message.content or b"",
                    sds_ids=(message_id,),
                    message_hashes=() if arrival.message_hash is None else (arrival.message_hash,),
                    timestamp_ns=arrival.timestamp_ns,
                    recovered=False,
                    waiting_for=set(),
                    dependencies_met=met,
                )
            )
            return
        complete = self.arrivals.release(message_id, met=met)
        if complete is not None:
            yield self._received(complete)

    def ephemeral(self, message: SdsMessage, message_hash: bytes, timestamp_ns: int) -> Iterator[MessageReceived]:
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
            payload=payload,
            timestamp_ns=timestamp_ns,
            message_hashes=(message_hash,),
            sds_ids=(message.message_id,),
            ephemeral=True,
        )

    def rebuilt_among(self, missing_ids: Iterable[str]) -> tuple[str, ...]:
        """Return those of the missing ids that are lost segments of messages that were rebuilt."""
        return tuple(message_id for message_id in missing_ids if message_id in self._rebuilt)

    def expire(self, now_ms: int) -> Iterator[Event]:
        """Give up sets that gained nothing for too long."""
        yield from self._lost(self.reassembler.expire(now_ms))

    def _completed(self, outcome: MessageCompleted) -> Iterator[Event | Settle]:
        lost_siblings = self._lost_siblings(outcome)
        arrivals = [arrival for sds_id in outcome.sds_ids if (arrival := self.arrivals.get(sds_id)) is not None]
        waiting_for = {sds_id for sds_id in outcome.sds_ids if sds_id not in self._sds.history}
        complete = Awaiting(
            sender_id=outcome.set_key.sender_id,
            payload=outcome.payload,
            sds_ids=outcome.sds_ids,
            message_hashes=tuple(a.message_hash for a in arrivals if a.message_hash is not None),
            timestamp_ns=max((arrival.timestamp_ns for arrival in arrivals), default=0),
            recovered=outcome.recovered,
            waiting_for=waiting_for,
            dependencies_met=not (waiting_for and self._on_arrival),
        )
        self.arrivals.forget(outcome.sds_ids)
        if waiting_for and not self._on_arrival:
            self.arrivals.wait(key_of(outcome.set_key), complete)
        else:
            yield self._received(complete)
        if lost_siblings:
            yield Settle(sds_ids=lost_siblings)

    def _lost_siblings(self, outcome: MessageCompleted) -> tuple[str, ...]:
        """Return the ids of a set's own lost segments that something waits for."""
        rebuilt = tuple(self._rebuilt_ids(outcome))
        for sds_id in rebuilt:
            self._rebuilt[sds_id] = None
            if len(self._rebuilt) > _MAX_REBUILT:
                self._rebuilt.popitem(last=False)
        missing = self._sds.dependencies.incoming.missing
        return tuple(dict.fromkeys(i for i in (*rebuilt, *self._cited_siblings(outcome)) if i in missing))

    def _rebuilt_ids(self, outcome: MessageCompleted) -> Iterator[str]:
        """Yield the ids that fairway's rule gives the lost segments (`IdRule.UNIQUE`).

        A sender makes all segments of a message in one go, so that their Lamport timestamps are consecutive.
        """
        sds_id, order = next(iter(outcome.segments.items()))
        arrival = self.arrivals.get(sds_id)
        if not outcome.missing_orders or arrival is None:
            return
        try:
            parts = self._segmenter.split(outcome.payload).parts
        except FairwayError:
            # The sender segments by other rules than this channel's; nothing can be said about its ids.
            return
        for missing in sorted(outcome.missing_orders):
            lamport = arrival.lamport - order + missing
            if missing < len(parts) and 0 <= lamport < 1 << 64:
                yield make_message_id(
                    IdRule.UNIQUE,
                    sender_id=outcome.set_key.sender_id,
                    lamport=lamport,
                    content=parts[missing].content,
                    now_ms=0,
                    sequence=0,
                )

    def _cited_siblings(self, outcome: MessageCompleted) -> Iterator[str]:
        """Yield what parked segments cite where their own siblings must stand: the newest entries."""
        parked = self._sds.dependencies.incoming.parked
        for sds_id, order in outcome.segments.items():
            waiting = parked.get(sds_id)
            if waiting is None or not order:
                continue
            for entry in waiting.message.causal_history[-order:]:
                if entry.sender_id in {None, outcome.set_key.sender_id}:
                    yield entry.message_id

    def _received(self, complete: Awaiting) -> MessageReceived:
        return MessageReceived(
            message_id=logical_message_id(complete.payload),
            sender_id=complete.sender_id,
            channel_id=self._sds.channel_id,
            content_topic=self._content_topic,
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
