"""The operations of a record: what each does to a channel, js-waku's model or fairway's own alike.

An action is read from a step once and then performed on both. `ACTIONS` names every operation that there is; those that
send sync messages are told by the word in their name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Literal

from tests.conformance.cases import Case, MalformedCaseError, shown

from fairway.errors import DecodeError
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import DependenciesMissing, MessageReviewed, SdsOutcome
from fairway.wire.sds import WAKU_SDS, HistoryEntry
from js_waku.channel import JsWakuChannel, ReceiptAbortedError
from js_waku.vocabulary import (
    Observed,
    entry_in_words,
    events_of,
    sent_event,
    task_failed,
)

Messages = Mapping[str, bytes]
"""Bytes of messages that were sent, by the name that a record gives them."""
Action = Callable[[MessageChannel, int], Observed]
"""Performs an operation on a channel at a time."""
_Success = Literal["yes", "no", "throws"]

_SYNC: Final = "sync"
_SYNC_ID: Final = re.compile(r"sync-[0-9a-z]*")
_THROWN: Final = "Error"
"""The class of what a send callback throws."""
_DEFAULT_SYNC_ID: Final = "sync-"


def _success(case: Case) -> _Success:
    """Return what the send callback does: reports success, reports failure, or throws."""
    value = case.value("success") if "success" in case else True
    if value == "throw":
        return "throws"
    if not isinstance(value, bool):
        raise MalformedCaseError(f"the field 'success' should be true, false or 'throw', not {shown(value)}")
    return "yes" if value else "no"


def _payload(case: Case) -> bytes:
    if "payload_hex" in case:
        return case.octets("payload_hex")
    return case.text("payload").encode()


def _send(case: Case, _messages: Messages) -> Action:
    payload, hint, success = _payload(case), case.maybe_octets("hint"), _success(case)

    def perform(channel: MessageChannel, now_ms: int) -> Observed:
        message = channel.send(payload, now_ms)
        seen = Observed(out=[message])
        if success == "yes":
            if isinstance(channel, JsWakuChannel):
                channel.broadcast(message, hint)
            else:
                channel.add_hint(message.message_id, hint)
            seen.events.append(sent_event(message))
        elif isinstance(channel, JsWakuChannel):
            channel.leave_unconfirmed()
        if success == "throws":
            seen.events += task_failed("send", _THROWN)
        return seen

    return perform


def _send_ephemeral(case: Case, _messages: Messages) -> Action:
    payload, success = _payload(case), _success(case)
    case.maybe_octets("hint")  # of no use: nobody cites an ephemeral message

    def perform(channel: MessageChannel, now_ms: int) -> Observed:
        seen = Observed(out=[channel.send_ephemeral(payload, now_ms)])
        if success == "throws":
            seen.events += task_failed("sendEphemeral", _THROWN)
        return seen

    return perform


def _sync_id(case: Case) -> str:
    """Return the id of a sync message, which is random and so an input; it is told by what was sent."""
    out = case.value("out") if "out" in case else None
    sync_id = out.get("messageId") if isinstance(out, Mapping) else _DEFAULT_SYNC_ID
    if not isinstance(sync_id, str) or _SYNC_ID.fullmatch(sync_id) is None:
        raise MalformedCaseError(f"the id of a sync message is 'sync-' and digits of base 36, not {shown(sync_id)}")
    return sync_id


def _send_sync(case: Case, _messages: Messages) -> Action:
    sync_id, success = _sync_id(case), _success(case)
    case.maybe_octets("hint")  # of no use: nobody cites a sync message

    def perform(channel: MessageChannel, now_ms: int) -> Observed:
        made = channel.send_sync(now_ms)
        if made is None:
            return Observed(returned=False)
        message = replace(made, message_id=sync_id)
        if success == "throws":
            return Observed(out=[message], returned=_THROWN)
        seen = Observed(out=[message], events=[sent_event(message)], returned=True)
        if message.repair_request:
            ids = [entry.message_id for entry in message.repair_request]
            detail = {"messageIds": ids, "carrierMessageId": sync_id}
            seen.events.append({"type": "sds:repair:request-sent", "detail": detail})
        return seen

    return perform


def _receive(case: Case, messages: Messages) -> Action:
    hint, encoded = case.maybe_octets("hint"), _received_bytes(case, messages)
    try:
        message = WAKU_SDS.decode(encoded)
    except DecodeError:
        return lambda _channel, _now_ms: Observed()

    def perform(channel: MessageChannel, now_ms: int) -> Observed:
        try:
            outcomes = channel.receive(message, hint, now_ms, encoded)
            _forget_acknowledged(channel, outcomes)
            return Observed(events=events_of(outcomes, channel))
        except ReceiptAbortedError as aborted:
            return Observed(events=[*events_of(aborted.told, channel), *task_failed("receive", aborted.error)])

    return perform


def _forget_acknowledged(channel: MessageChannel, outcomes: list[SdsOutcome]) -> None:
    """Do as js-waku does, for which one acknowledgement is enough."""
    for outcome in outcomes:
        if isinstance(outcome, MessageReviewed) and outcome.review.evidence is not None:
            channel.forget_outgoing(outcome.review.message_id)


def _received_bytes(case: Case, messages: Messages) -> bytes:
    if "hex" in case:
        return case.octets("hex")
    name = case.text("msg")
    if name not in messages:
        raise MalformedCaseError(f"no message was sent as {name!r}; known are {', '.join(messages) or 'none'}")
    return messages[name]


def _sweep_incoming(_case: Case, _messages: Messages) -> Action:
    def perform(channel: MessageChannel, now_ms: int) -> Observed:
        outcomes = channel.sweep_incoming(now_ms)
        missing: tuple[HistoryEntry, ...] = ()
        for outcome in outcomes:
            if isinstance(outcome, DependenciesMissing):
                missing = outcome.entries
        return Observed(events=events_of(outcomes, channel), returned=[entry_in_words(entry) for entry in missing])

    return perform


def sweep_outgoing(channel: MessageChannel) -> dict[str, list[str]]:
    """Return the ids of own messages that wait for acknowledgement: those in no filter, and those in some.

    fairway itself has no such sweep: each segment that was sent has a time at which it is sent again.
    """
    held = channel.outgoing.hits if isinstance(channel, JsWakuChannel) else channel.outgoing.possible
    waiting = list(channel.outgoing.messages)
    return {
        "unacknowledged": [message_id for message_id in waiting if message_id not in held],
        "possiblyAcknowledged": [message_id for message_id in waiting if message_id in held],
    }


def _sweep_outgoing(_case: Case, _messages: Messages) -> Action:
    return lambda channel, _now_ms: Observed(returned=sweep_outgoing(channel))


def _sweep_repair(case: Case, _messages: Messages) -> Action:
    success = _success(case)

    def perform(channel: MessageChannel, now_ms: int) -> Observed:
        due = channel.sweep_repair(now_ms)
        seen = Observed(resent=[WAKU_SDS.decode(encoded) for _, encoded in due])
        if success != "throws":
            sent = [{"messageId": message_id} for message_id, _ in due]
            seen.events = [{"type": "sds:repair:response-sent", "detail": detail} for detail in sent]
        return seen

    return perform


ACTIONS: Final[Mapping[str, Callable[[Case, Messages], Action]]] = {
    "send": _send,
    "send_ephemeral": _send_ephemeral,
    "recv": _receive,
    "sweep_in": _sweep_incoming,
    "sweep_out": _sweep_outgoing,
    "sweep_repair": _sweep_repair,
}
"""Readers of actions, by the name of the operation."""


def sends(operation: str) -> bool:
    """Return whether an operation hands a new message to the network, which may be given a name."""
    return operation in {"send", "send_ephemeral"} or _SYNC in operation


def read_action(operation: str, case: Case, messages: Messages) -> Action:
    """Return what a step does; raises `MalformedCaseError` for an operation that is not known."""
    reader = ACTIONS.get(operation) or (_send_sync if _SYNC in operation else None)
    if reader is None:
        known = ", ".join([*ACTIONS, "clock"])
        raise MalformedCaseError(f"the operation {operation!r} is not known, only {known} and those of sync messages")
    return reader(case, messages)
