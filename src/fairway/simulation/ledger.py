"""What in fact happened in a world, written down by somebody who sees everything.

The ledger watches all effects of all participants. What the channel says (events) and what is so (who received what,
and when) are kept apart, so that `fairway.simulation.invariants` can hold the one against the other.

Messages are numbered in the order of sending. A set of messages is an integer whose bit ``n`` stands for message ``n``:
what a sender knew when it spoke is one such set, which makes causal order cheap to check.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fairway.events import (
    DeliveryError,
    Event,
    IrretrievableMessage,
    LossReason,
    MessageAcknowledged,
    MessageDelivered,
    MessageReceived,
)
from fairway.protocol.effects import Effect, Emit, Persist, Publish, Purpose
from fairway.protocol.requests import SEGMENTS
from fairway.protocol.stack import Accepted
from fairway.wire.sds import SdsCodec

Holds = Callable[[str, str], bool]
"""Whether a participant has an SDS message at this moment; called with (participant, SDS id)."""


@dataclass(slots=True, kw_only=True)
class Sent:
    """One accepted send, and what became of it."""

    number: int
    request_id: str
    sender: str
    payload_id: str
    """Its logical message id, SHA-256 of the payload."""
    size_bytes: int
    at_ms: int
    present: frozenset[str]
    """Who else was there, online or not, and so shall have it."""
    asked: frozenset[str]
    """Whose acknowledgement the sender asked for by name."""
    known: int
    """Messages that the sender had sent or been delivered before."""
    sds_ids: dict[str, bool] = field(default_factory=dict)
    """Ids of its segments so far, with whether each is parity."""
    deliveries: dict[str, list[int]] = field(default_factory=dict)
    """When each participant was delivered it; more than one time is a fault."""
    first_acknowledged_ms: int | None = None
    claimed: set[str] = field(default_factory=set)
    """Who was said to have a segment of it."""
    ends: list[tuple[int, MessageDelivered | DeliveryError]] = field(default_factory=list)
    """Terminal events, of all lives of the sender; exactly one is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A participant said that it will never have something."""

    at_ms: int
    participant: str
    reason: LossReason
    what: str
    sender: str | None
    number: int | None
    """The message that it belongs to, where that is known."""
    place: int
    """How many messages had been delivered to the participant before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Somebody was told that a participant has a message, or a part of it."""

    at_ms: int
    number: int
    participant: str
    whole: bool
    """Whether the claim is about all of it (MessageDelivered) or about a segment (MessageAcknowledged)."""
    true: bool


@dataclass(slots=True)
class Presence:
    """When a participant was there, and in what order it was delivered what."""

    joined_ms: int
    left_ms: int | None = None
    known: int = 0
    """Messages that it sent or was delivered so far."""
    order: list[int] = field(default_factory=list)
    """Deliveries, first ones only."""


class Ledger:
    """Everything that happened, and the trace of it."""

    def __init__(self, holds: Holds, codec: SdsCodec) -> None:
        """Begin a ledger; ``holds`` asks the world for the truth, ``codec`` opens what is published."""
        self.sent: list[Sent] = []
        self.presences: dict[str, Presence] = {}
        self.losses: list[Loss] = []
        self.claims: list[Claim] = []
        self.unexplained: list[tuple[int, str, str, str]] = []
        """Deliveries of what nobody sent: (when, to whom, from whom, message id)."""
        self.ephemeral_sent = 0
        self.ephemeral_deliveries: Counter[tuple[str, str, str]] = Counter()
        """How often each was delivered to whom in which life: (participant and life, sender, SDS id)."""
        self.ephemeral_ids: set[str] = set()
        """SDS ids of ephemeral messages. The Logos wire cannot say that a message is one; then receivers log it."""
        self.events: Counter[str] = Counter()
        self.deeds: Counter[str] = Counter()
        self.transmissions: Counter[Purpose] = Counter()
        self.bytes: dict[Purpose, Counter[str]] = {purpose: Counter() for purpose in Purpose}
        """Bytes transmitted for each purpose, by part of the message: "content", "bloom" and "rest"."""
        self._holds = holds
        self._codec = codec
        self._lives: Counter[str] = Counter()
        self._by_request: dict[str, Sent] = {}
        self._owner: dict[str, str] = {}
        self._segments: dict[str, list[tuple[str, bool]]] = {}
        self._alike: dict[tuple[str, str], list[Sent]] = {}
        self._ends: dict[str, list[tuple[int, MessageDelivered | DeliveryError]]] = {}
        self._trace = hashlib.sha256()

    def note(self, at_ms: int, name: str, deed: str) -> None:
        """Write down what somebody did."""
        self.deeds[deed] += 1
        self._trace.update(f"{at_ms} {name} does {deed}\n".encode())

    def joined(self, at_ms: int, name: str) -> None:
        """Write down that somebody came."""
        self.presences[name] = Presence(at_ms)

    def left(self, at_ms: int, name: str) -> None:
        """Write down that somebody went for good."""
        self.presences[name].left_ms = at_ms

    def restarted(self, name: str) -> None:
        """Write down that a new life of somebody began."""
        self._lives[name] += 1

    def accepted(self, at_ms: int, name: str, accepted: Accepted, size_bytes: int, asked: frozenset[str]) -> None:
        """Write down a send; its segments are known by then, and whether it failed at once."""
        presence = self.presences[name]
        sent = Sent(
            number=len(self.sent),
            request_id=accepted.request_id,
            sender=name,
            payload_id=accepted.message_id,
            size_bytes=size_bytes,
            at_ms=at_ms,
            asked=asked,
            present=frozenset(n for n, other in self.presences.items() if other.left_ms is None and n != name),
            known=presence.known,
            sds_ids=dict(self._segments.pop(accepted.request_id, ())),
            ends=self._ends.setdefault(accepted.request_id, []),
        )
        self.sent.append(sent)
        self._by_request[sent.request_id] = sent
        self._alike.setdefault((name, sent.payload_id), []).append(sent)
        presence.known |= 1 << sent.number

    def message_of(self, sds_id: str) -> Sent | None:
        """Return the message that a segment belongs to."""
        return self._by_request.get(self._owner.get(sds_id, ""))

    def trace_hash(self) -> str:
        """Return the SHA-256, in hex, over every deed, event and publication so far, in order."""
        return self._trace.hexdigest()

    def observe(self, at_ms: int, name: str, effect: Effect) -> None:
        """Write down an effect; to be told of every one, before it is carried out."""
        match effect:
            case Persist(changes=changes):
                for change in changes:
                    if change.table == SEGMENTS and change.row is not None and change.key not in self._owner:
                        request_id, _, is_parity = change.row[:3]
                        self._segment(change.key, str(request_id), bool(is_parity))
            case Publish(purpose=purpose, message=message, encoded=encoded, message_hash=message_hash, sds_id=sds_id):
                self.transmissions[purpose] += 1
                if purpose is Purpose.EPHEMERAL:
                    self.ephemeral_ids.add(sds_id)
                opened = self._codec.decode(message.payload)
                content, bloom = len(opened.content or b""), len(opened.bloom_filter or b"")
                self.bytes[purpose].update(content=content, bloom=bloom, rest=len(encoded) - content - bloom)
                self._trace.update(f"{at_ms} {name} publishes {purpose.value} {message_hash.hex()}\n".encode())
            case Emit(event=event):
                self._event(at_ms, name, event)

    def _segment(self, sds_id: str, request_id: str, is_parity: bool) -> None:
        self._owner[sds_id] = request_id
        sent = self._by_request.get(request_id)
        if sent is None:
            self._segments.setdefault(request_id, []).append((sds_id, is_parity))
        else:
            sent.sds_ids[sds_id] = is_parity

    def _event(self, at_ms: int, name: str, event: Event) -> None:
        kind = type(event).__name__
        self.events[kind] += 1
        # A payload is named by its id, which is its hash.
        told = replace(event, payload=b"") if isinstance(event, MessageReceived) else event
        self._trace.update(f"{at_ms} {name} is told {told!r}\n".encode())
        match event:
            case MessageReceived(sender_id=sender, sds_ids=sds_ids) if (
                event.ephemeral or sds_ids[0] in self.ephemeral_ids
            ):
                self.ephemeral_deliveries[f"{name}/{self._lives[name]}", sender, sds_ids[0]] += 1
            case MessageReceived():
                self._received(at_ms, name, event)
            case IrretrievableMessage(message_id=message_id, reason=reason, sender_id=sender):
                sent = self.message_of(message_id)
                self.losses.append(
                    Loss(
                        at_ms=at_ms,
                        participant=name,
                        reason=reason,
                        what=message_id,
                        sender=sender,
                        number=None if sent is None else sent.number,
                        place=len(self.presences[name].order),
                    )
                )
            case MessageAcknowledged(request_id=request_id, acknowledged_by=names):
                sent = self._by_request[request_id]
                if sent.first_acknowledged_ms is None:
                    sent.first_acknowledged_ms = at_ms
                self._claim_segment(at_ms, sent, names)
            case MessageDelivered(request_id=request_id, delivered_to=names):
                self._ends.setdefault(request_id, []).append((at_ms, event))
                sent = self._by_request[request_id]
                for participant in names:
                    true = participant in sent.deliveries or self._has_whole(participant, sent)
                    self.claims.append(
                        Claim(at_ms=at_ms, number=sent.number, participant=participant, whole=True, true=true)
                    )
            case DeliveryError(request_id=request_id):
                self._ends.setdefault(request_id, []).append((at_ms, event))

    def _received(self, at_ms: int, name: str, event: MessageReceived) -> None:
        sent = self._meant(name, event)
        if sent is None:
            self.unexplained.append((at_ms, name, event.sender_id, event.message_id))
            return
        times = sent.deliveries.setdefault(name, [])
        times.append(at_ms)
        if len(times) == 1:
            presence = self.presences[name]
            presence.known |= 1 << sent.number
            presence.order.append(sent.number)

    def _meant(self, name: str, event: MessageReceived) -> Sent | None:
        """Return which send a delivery is of: the one that its segments belong to.

        The same payload sent twice by one participant is two messages that nobody can tell apart, and parity may
        rebuild one with segments of the other; then the one that is still lacking is meant.
        """
        named = [sent for sds_id in event.sds_ids if (sent := self.message_of(sds_id)) is not None]
        alike = self._alike.get((event.sender_id, event.message_id), [])
        fitting = [sent for sent in (*named, *alike) if sent.payload_id == event.message_id]
        lacking = (sent for sent in fitting if name not in sent.deliveries)
        return next(lacking, fitting[0] if fitting else None)

    def _has_whole(self, name: str, sent: Sent) -> bool:
        """Return whether a participant received enough of a message, delivered or still waiting for its place."""
        data = sum(not is_parity for is_parity in sent.sds_ids.values())
        return sum(self._holds(name, sds_id) for sds_id in sent.sds_ids) >= data

    def _claim_segment(self, at_ms: int, sent: Sent, names: tuple[str, ...]) -> None:
        """Note who is newly said to have a segment; the event does not say which, so that any of them makes it true."""
        for name in names:
            if name not in sent.claimed:
                sent.claimed.add(name)
                true = name in sent.deliveries or any(self._holds(name, sds_id) for sds_id in sent.sds_ids)
                self.claims.append(Claim(at_ms=at_ms, number=sent.number, participant=name, whole=False, true=true))
