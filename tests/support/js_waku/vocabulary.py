"""Messages, outcomes and state in the words in which a record of js-waku tells them.

The same words serve for js-waku's model and for fairway's own channel, so that the two can be compared. What only
fairway can say is written as an event whose type begins with "fairway:", which no record has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import (
    DependenciesLost,
    DependenciesMissing,
    MessageArrived,
    MessageIgnored,
    MessageReady,
    MessageReviewed,
    SdsOutcome,
    SenderIdShared,
)
from fairway.protocol.sds.repair import Scheduled
from fairway.wire.bloom import BloomFilter, BloomParameters
from fairway.wire.sds import WAKU_SDS, HistoryEntry, Kind, SdsMessage
from js_waku.channel import JsWakuChannel

Event = dict[str, Any]
"""``type`` and ``detail``."""

_ARRIVED: Final = {
    Kind.CONTENT: "sds:in:message-received",
    Kind.SYNC: "sds:in:sync-received",
    Kind.EPHEMERAL: "fairway:ephemeral-received",
}
_SENT: Final = {Kind.CONTENT: "sds:out:message-sent", Kind.SYNC: "sds:out:sync-sent"}
_MISSING: Final = "sds:in:message-missing"
_OF_REPAIR_BUFFERS: Final = {"RepairRequestQueued", "RepairResponseQueued", "sds:repair:request-received"}
NOTHING: Final = object()
"""Is no value that a record can have."""


@dataclass(slots=True, kw_only=True)
class Observed:
    """What one step did, as a record tells it."""

    out: list[SdsMessage] = field(default_factory=list)
    """Messages handed to the send callback."""
    events: list[Event] = field(default_factory=list)
    returned: Any = NOTHING
    """What the call returned in plain values; `NOTHING` if no record tells it."""
    resent: list[SdsMessage] | None = None
    """Messages that the call returned, where it returns messages."""


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def entry_in_words(entry: HistoryEntry) -> dict[str, Any]:
    """Return a history entry as a record tells it."""
    return {
        "messageId": entry.message_id,
        "retrievalHint": _hex(entry.retrieval_hint),
        "senderId": entry.sender_id,
    }


def message_in_words(message: SdsMessage, parameters: BloomParameters) -> dict[str, Any]:
    """Return everything that a record may tell about a message that was sent."""
    encoded = WAKU_SDS.encode(message)
    bloom = message.bloom_filter
    lamport = message.lamport_timestamp
    return {
        "kind": message.kind.value,
        "senderId": message.sender_id,
        "messageId": message.message_id,
        "channelId": message.channel_id,
        "lamportTimestamp": None if lamport is None else str(lamport),
        "causalHistory": [entry_in_words(entry) for entry in message.causal_history],
        "repairRequest": [entry_in_words(entry) for entry in message.repair_request],
        "content": _hex(message.content),
        "bloomFilter": _hex(bloom),
        "bloom_bits": None if bloom is None else BloomFilter(parameters, bits=bloom).set_positions(),
        "encoded": encoded.hex(),
        "encoded_len": len(encoded),
        "encoded_sha256": sha256(encoded).hexdigest(),
    }


def sent_event(message: SdsMessage) -> Event:
    """Return the event of a message that was handed to the network."""
    return {"type": _SENT[message.kind], "detail": {"messageId": message.message_id}}


def task_failed(command: str, error: str) -> list[Event]:
    """Return the two events of a task that threw."""
    detail = {"command": command, "error": error}
    return [{"type": name, "detail": detail} for name in ("taskError", "sds:error-task")]


def events_of(outcomes: Iterable[SdsOutcome], channel: MessageChannel) -> list[Event]:
    """Return the events that js-waku has for what happened; it has none for what it ignores.

    Only js-waku has events for what is planned in repair buffers. They follow the arrival of what asks for messages,
    and come before the event that names what is missing.
    """
    told = [_event(outcome) for outcome in outcomes if not isinstance(outcome, MessageIgnored)]
    if isinstance(channel, JsWakuChannel):
        heard, planned = channel.repair.take_events()
        told[1:1] = heard
        at = next((at for at, (name, _) in enumerate(told) if name == _MISSING), len(told))
        told[at:at] = planned
    return [{"type": name, "detail": detail} for name, detail in told]


def told_by_both(events: Iterable[Event]) -> list[Event]:
    """Return the events without those that only js-waku has; the states show what they tell."""
    return [event for event in events if event["type"] not in _OF_REPAIR_BUFFERS]


def _event(outcome: SdsOutcome) -> tuple[str, Any]:
    match outcome:
        case MessageArrived(message=message, kind=kind):
            return _ARRIVED[kind], {"messageId": message.message_id}
        case MessageReady(message=message):
            return "sds:in:message-delivered", message.message_id
        case DependenciesMissing(entries=entries):
            return _MISSING, [entry_in_words(entry) for entry in entries]
        case DependenciesLost(entries=entries):
            return "sds:in:message-irretrievably-lost", [entry_in_words(entry) for entry in entries]
        case MessageReviewed(review=review) if review.evidence is None:
            detail = {"messageId": review.message_id, "count": review.possible_count}
            return "sds:out:message-possibly-acknowledged", detail
        case MessageReviewed(review=review):
            return "sds:out:message-acknowledged", review.message_id
        case SenderIdShared(message_id=message_id):
            return "fairway:sender-id-in-use", message_id
        case MessageIgnored(message_id=message_id):
            return "fairway:ignored", message_id


def _scheduled(scheduled: Scheduled, time_key: str) -> dict[str, Any]:
    return {**entry_in_words(scheduled.entry), time_key: scheduled.at_ms}


def state_in_words(channel: MessageChannel) -> Mapping[str, Any]:
    """Return the state of a channel, js-waku's model or fairway's own, as a record tells it."""
    if isinstance(channel, JsWakuChannel):
        parked = [waiting.message.message_id for waiting in channel.dependencies.waiting]
        possible = dict(channel.outgoing.hits)
    else:
        parked = list(channel.parked)
        possible = {message_id: len(seen) for message_id, seen in channel.outgoing.possible.items()}
    return {
        "lamport": str(channel.lamport),
        "outgoingBuffer": list(channel.outgoing.messages),
        "incomingBuffer": parked,
        "possibleAcks": possible,
        "localHistory": [
            [record.message_id, str(record.lamport), _hex(record.retrieval_hint), record.sender_id]
            for record in channel.history
        ],
        "bloom_bits": channel.bloom.set_positions(),
        "repairOutgoing": [
            {**_scheduled(scheduled, "tReq"), "requested": scheduled.asked > 0} for scheduled in channel.repair.requests
        ],
        "repairIncoming": [_scheduled(scheduled, "tResp") for scheduled in channel.repair.responses],
    }
