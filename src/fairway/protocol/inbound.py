"""From SDS to the application: reassemble, and deliver at the causal place (design.md 5.4 and 5.6).

Segments go to the reassembler when they arrive, also while SDS holds them back. That is what makes parity useful under
causal order: a set that completes settles the ids of its own segments that were lost, which lets go of those that
waited for them. The message is then delivered when SDS has released every segment of it that was received.

Which missing ids are a set's own? Its lost segments can be rebuilt, so that with fairway's rule for ids their very ids
are known, and they enter the history as though they had come (`_rebuilt_segments`). For other senders the order of
sending tells: a segment cites the ones before it, newest last (`_cited_siblings`). A wrong guess loses nothing: a
settled id is only not waited for, and processed when it comes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

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


class Rebuilt(NamedTuple):
    """A segment that never came, but is known as if it had."""

    sds_id: str
    lamport: int
    sender_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostSegments:
    """Segments that SDS misses and that are not needed any more."""

    rebuilt: tuple[Rebuilt, ...] = ()
    settled: tuple[str, ...] = ()
    """Ids about which nothing more is known."""


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
        self._rebuilt: OrderedDict[str, Rebuilt] = OrderedDict()
        self._ephemeral: OrderedDict[str, None] = OrderedDict()

    def arrived(
        self, message: SdsMessage, message_hash: bytes, timestamp_ns: int, now_ms: int
    ) -> Iterator[Event | LostSegments]:
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

    def rebuilt_among(self, missing_ids: Iterable[str]) -> tuple[Rebuilt, ...]:
        """Return those of the missing ids that are lost segments of messages that were rebuilt."""
        return tuple(self._rebuilt[message_id] for message_id in missing_ids if message_id in self._rebuilt)

    def expire(self, now_ms: int) -> Iterator[Event]:
        """Give up sets that gained nothing for too long."""
        yield from self._lost(self.reassembler.expire(now_ms))

    def _completed(self, outcome: MessageCompleted) -> Iterator[Event | LostSegments]:
        lost = self._lost_segments(outcome)
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
        if lost.rebuilt or lost.settled:
            yield lost

    def _lost_segments(self, outcome: MessageCompleted) -> LostSegments:
        """Return a set's own lost segments as far as something waits for them."""
        missing = self._sds.dependencies.incoming.missing
        rebuilt = {segment.sds_id: segment for segment in self._rebuilt_segments(outcome)}
        self._rebuilt.update(rebuilt)
        while len(self._rebuilt) > _MAX_REBUILT:
            self._rebuilt.popitem(last=False)
        settled = dict.fromkeys(i for i in self._cited_siblings(outcome) if i in missing and i not in rebuilt)
        return LostSegments(
            rebuilt=tuple(segment for sds_id, segment in rebuilt.items() if sds_id in missing), settled=tuple(settled)
        )

    def _rebuilt_segments(self, outcome: MessageCompleted) -> Iterator[Rebuilt]:
        """Yield the lost segments with the ids that fairway's rule gives them (`IdRule.UNIQUE`).

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
        sender_id = outcome.set_key.sender_id
        for missing in range(len(parts)):
            lamport = arrival.lamport - order + missing
            if missing in outcome.segments.values() or not 0 <= lamport < 1 << 64:
                continue
            message_id = make_message_id(
                IdRule.UNIQUE,
                sender_id=sender_id,
                lamport=lamport,
                content=parts[missing].content,
                now_ms=0,
                sequence=0,
            )
            yield Rebuilt(message_id, lamport, sender_id)

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
