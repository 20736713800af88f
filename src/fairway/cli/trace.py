"""``fairway trace``: shows the path of a message, read from the stores of several participants.

Each store records what happened to a message at its participant. The command sorts these records by time: how often
each segment was sent and under which hash, who acknowledged it, how the send ended, and who received the message.
Clocks of different machines may disagree; the order within one store is always right.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairway.cli._console import PlainConsole
from fairway.cli._event_json import as_json, event_as_json
from fairway.errors import ConfigurationError
from fairway.events import (
    DeliveryError,
    EphemeralMessageDropped,
    Event,
    MessageAcknowledged,
    MessageDelivered,
    MessageEvent,
    MessagePossiblyAcknowledged,
    MessageQueued,
    MessageReceived,
    MessageSendError,
    MessageSending,
    MessageSent,
    MessageSetAside,
)
from fairway.storage.channel_store import SendOutcome, StoredRequest
from fairway.storage.store_reader import StoreReader
from fairway.units import counted
from fairway.visible import visible

_SHOWN_STEPS: Final = 40
_SHOWN_SEGMENTS: Final = 40
_WIDTH_OF_A_FILE: Final = 160
"""Width of the tables in columns without a terminal."""


def command(
    message_id: Annotated[
        str,
        typer.Argument(metavar="MESSAGE_ID", help="Message id or its beginning, request id, or SDS message id."),
    ],
    store: Annotated[list[Path], typer.Option(metavar="PATH", help="The store of a participant; repeatable.")],
    *,
    everything: Annotated[bool, typer.Option("--all", help="Show every step.")] = False,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Show the path of a message: its segments, hashes, attempts and acknowledgements, and its receivers.

    The steps of all stores are in one list, ordered by time. Exit code 1 if no store knows the message. The command
    only reads the stores, and they may be in use.

    Example: [bold]fairway trace 2cf24dba --store alice.db --store bob.db[/bold]
    """
    trace = trace_message(message_id, store)
    if machine:
        typer.echo(json.dumps({"known": trace is not None} | (_told(trace) if trace is not None else {})))
    else:
        console = PlainConsole(highlight=False)
        if not console.is_terminal:
            console.width = _WIDTH_OF_A_FILE
        if trace is None:
            stores = ", ".join(map(str, store))
            console.print(f"{stores}: no record of {message_id}", markup=False, soft_wrap=True)
        else:
            _print(console, trace, None if everything else _SHOWN_STEPS)
    raise typer.Exit(0 if trace is not None else 1)


def _told(trace: MessageTrace) -> dict[str, Any]:
    return {
        "message_id": trace.message_id,
        "channel_id": trace.channel_id,
        "sendings": [
            as_json(
                {
                    "who": sending.who,
                    "request_id": sending.request_id,
                    "request": sending.request,
                    "segments": sending.segments,
                }
            )
            for sending in trace.sendings
        ],
        "steps": [_step(step) for step in trace.steps],
    }


def _step(step: TracedEvent) -> dict[str, Any]:
    told = event_as_json(step.event)
    if isinstance(step.event, MessageReceived):
        # The payload is not recorded; the message id is its hash.
        told |= {"size": step.size_bytes, "sha256": step.event.message_id}
    return {"at_ms": step.at_ms, "who": step.who, **told}


def _print(console: Console, trace: MessageTrace, limit: int | None) -> None:
    console.print(f"[bold]message {trace.message_id}[/bold] in {_plain(trace.channel_id)}", soft_wrap=True)
    for sending in trace.sendings:
        _print_sending(console, sending)
    start_ms = trace.steps[0].at_ms if trace.steps else 0
    table = Table(title="What happened", title_justify="left")
    for heading in ("time", "after", "who", "segment", "what"):
        table.add_column(heading, justify="right" if heading in {"after", "segment"} else "left")
    shown = trace.steps if limit is None or len(trace.steps) <= limit else trace.steps[: limit // 2]
    rest = trace.steps[len(shown) :]
    for step in shown:
        table.add_row(*_row(step, start_ms))
    if rest:
        assert limit is not None, "without a limit everything was shown"
        table.add_row("...", "", "", "", f"{counted(len(rest) - limit // 2, 'more step')}, see --all or --json")
        for step in rest[-(limit // 2) :]:
            table.add_row(*_row(step, start_ms))
    console.print(table)
    receivers = ", ".join(dict.fromkeys(_plain(step.who) for step in trace.receipts))
    if receivers:
        console.print(f"received by {receivers}", style="green")


def _print_sending(console: Console, sending: TracedSending) -> None:
    request = sending.request
    size = f", {counted(request.size_bytes, 'byte')}" if request is not None else ""
    console.print(
        f"sent by {_plain(sending.who)}{size}, request {_plain(sending.request_id)}: {_plain(_outcome(request))}",
        soft_wrap=True,
    )
    table = Table(title="Its segments", title_justify="left")
    for heading in ("segment", "attempts", "hashes", "acknowledged"):
        table.add_column(heading, justify="right" if heading in {"segment", "attempts"} else "left")
    for segment in sending.segments[:_SHOWN_SEGMENTS]:
        if segment.acknowledged:
            state = f"[green]by {_plain(', '.join(segment.acknowledged_by))}[/green]"
        elif segment.possible_ack_count:
            state = f"[yellow]probably, by {segment.possible_ack_count}[/yellow]"
        else:
            state = f"[red]{_plain(segment.error)}[/red]" if segment.error else "parity" if segment.is_parity else "no"
        hashes = " ".join(message_hash.hex()[:16] for message_hash in dict.fromkeys(segment.message_hashes))
        table.add_row(str(segment.chunk_index), str(segment.attempts), hashes, state)
    if len(sending.segments) > _SHOWN_SEGMENTS:
        table.add_row("...", "", f"{len(sending.segments) - _SHOWN_SEGMENTS} more, see --json", "")
    console.print(table)


def _outcome(request: StoredRequest | None) -> str:
    match request:
        case None:
            return "its outcome is unknown"
        case StoredRequest(outcome=SendOutcome.DELIVERED, delivered_to=names, ended_at_ms=int(ended_ms)):
            after_s = (ended_ms - request.accepted_at_ms) / 1000
            return f"delivered to {', '.join(names) or 'several together'} after {after_s:,.1f} s"
        case StoredRequest(failure=DeliveryError(detail=detail)):
            return f"given up ({detail})"
        case _:
            return f"{request.outcome.value} so far"


def _row(step: TracedEvent, start_ms: int) -> tuple[str, ...]:
    chunk = getattr(step.event, "chunk_info", None)
    segment = "" if chunk is None else f"{chunk.chunk_index}{'p' if chunk.is_parity else ''}"
    at = time.strftime("%H:%M:%S", time.localtime(step.at_ms / 1000))
    after = f"{(step.at_ms - start_ms) / 1000:,.3f} s"
    return (f"{at}.{step.at_ms % 1000:03}", after, _plain(step.who), segment, _plain(describe(step.event)))


def _plain(text: str) -> str:
    """Return a text from the network with invisible characters and markup escaped."""
    return escape(visible(text))


SHORTEST_PREFIX: Final = 4
_SHOWN_IDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedEvent:
    """An event of the message."""

    at_ms: int
    who: str
    """Sender id of the store that recorded it."""
    event: Event
    size_bytes: int | None
    """Size of a received payload, which is not recorded itself."""


@dataclass(slots=True, kw_only=True)
class TracedSegment:
    """The state of one segment of a send."""

    chunk_index: int
    is_parity: bool
    attempts: int = 0
    """Started transmissions."""
    message_hashes: list[bytes] = field(default_factory=list)
    """Hashes of the WakuMessages that the network accepted, oldest first."""
    possible_ack_count: int = 0
    acknowledged: bool = False
    acknowledged_by: tuple[str, ...] = ()
    """Sender ids of participants that acknowledged it; later ones may be missing."""
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedSending:
    """One send of the message."""

    who: str
    request_id: str
    request: StoredRequest | None
    """None if the store no longer has it."""
    segments: tuple[TracedSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """The path of one message."""

    message_id: str
    channel_id: str
    sendings: tuple[TracedSending, ...]
    steps: tuple[TracedEvent, ...]
    """Everything, in order of time."""

    @property
    def receipts(self) -> tuple[TracedEvent, ...]:
        """The deliveries of the message."""
        return tuple(step for step in self.steps if isinstance(step.event, MessageReceived))


def trace_message(identifier: str, stores: Sequence[Path]) -> MessageTrace | None:
    """Return the path of a message; None if no store knows it.

    ``identifier`` is a message id or its beginning, a request id, or an SDS id. Raises `ConfigurationError` for the
    beginning of several ids, and a `StorageError` if a store cannot be read.
    """
    if not stores:
        raise ConfigurationError("no store is given; name at least one: --store alice.db")
    readers = [StoreReader(path) for path in stores]
    owners = [reader.owner() for reader in readers]
    found = _resolve(identifier, readers)
    if found is None:
        return None
    message_id, request_id = found
    steps: list[TracedEvent] = []
    requests: dict[tuple[str, str], StoredRequest] = {}
    for owner, reader in zip(owners, readers, strict=True):
        who = owner.sender_id
        requests |= {(who, stored.request_id): stored for stored in reader.requests(message_id)}
        steps += [
            TracedEvent(at_ms=point.at_ms, who=who, event=point.event, size_bytes=point.size_bytes)
            for point in reader.trace(message_id)
        ]
    if request_id is not None:
        steps = [step for step in steps if getattr(step.event, "request_id", request_id) == request_id]
        requests = {key: stored for key, stored in requests.items() if key[1] == request_id}
    # A stable sort: events of one store within a millisecond keep their order.
    steps.sort(key=lambda step: step.at_ms)
    return MessageTrace(
        message_id=message_id,
        channel_id=owners[0].channel_id,
        sendings=_sendings(steps, requests),
        steps=tuple(steps),
    )


def describe(event: Event) -> str:
    """Return a few words about an event of a message, without control characters."""
    return visible(_described(event))


def _described(event: Event) -> str:
    match event:
        case MessageSending(attempt=0):
            return "transmission starts"
        case MessageSending(attempt=attempt):
            return f"retry {attempt} starts"
        case MessageSent(message_hash=message_hash):
            return f"accepted by the network, hash {message_hash.hex()[:16]}"
        case MessageQueued():
            return "held back by the rate limit"
        case MessagePossiblyAcknowledged(participant=name, possible_ack_count=count):
            return f"probably received by {name} ({count} so far)"
        case MessageAcknowledged(acknowledged_by=names, chunks_acknowledged=chunks, total_chunks=total):
            return f"acknowledged by {', '.join(names)}, {len(chunks)} of {counted(total, 'segment')} so far"
        case MessageDelivered(delivered_to=names):
            return f"delivered to {', '.join(names) or 'several together'}"
        case MessageSendError(reason=reason, detail=detail):
            return f"cannot be sent: {reason.value} {detail}".rstrip()
        case DeliveryError(detail=detail):
            return f"given up: {detail}"
        case EphemeralMessageDropped(reason=reason):
            return f"dropped: {reason.value}"
        case MessageSetAside(attempts=attempts, error=error):
            return f"set aside: handlers raised {counted(attempts, 'time')}, {error}"
        case MessageReceived():
            return ", ".join(["received", *_remarks(event)])
        case _:
            return "every segment accepted by the network"


def _remarks(message: MessageReceived) -> list[str]:
    remarks = []
    if message.ephemeral:
        remarks.append("ephemeral")
    if message.recovered:
        remarks.append("recovered by Reed-Solomon")
    if not message.dependencies_met:
        remarks.append("an earlier message is missing")
    return remarks


def _resolve(identifier: str, readers: Iterable[StoreReader]) -> tuple[str, str | None] | None:
    """Return the message id, and the request id if the identifier is one."""
    prefixed: set[str] = set()
    for reader in readers:
        request = reader.request(identifier)
        if request is not None:
            return request.message_id, identifier
        for point in reader.trace(identifier):
            message_id = getattr(point.event, "message_id", "")
            # The trace may have a request that the store no longer has.
            by_request = isinstance(point.event, MessageEvent) and point.event.request_id == identifier
            return message_id, identifier if by_request else None
        if len(identifier) >= SHORTEST_PREFIX:
            prefixed |= reader.message_ids(identifier.lower())
    if len(prefixed) > 1:
        some = ", ".join(sorted(prefixed)[:_SHOWN_IDS])
        raise ConfigurationError(
            f"{identifier} is the beginning of {len(prefixed)} message ids; give a longer one of: {some}"
        )
    return (prefixed.pop(), None) if prefixed else None


def _sendings(
    steps: Iterable[TracedEvent], requests: dict[tuple[str, str], StoredRequest]
) -> tuple[TracedSending, ...]:
    """Return every send of the message, in order of acceptance."""
    stories: dict[tuple[str, str], list[Event]] = {}
    for key in sorted(requests, key=lambda key: requests[key].accepted_at_ms):
        stories[key] = []
    for step in steps:
        if isinstance(step.event, MessageEvent):
            stories.setdefault((step.who, step.event.request_id), []).append(step.event)
    return tuple(
        TracedSending(
            who=who,
            request_id=request_id,
            request=requests.get((who, request_id)),
            segments=_segments(events),
        )
        for (who, request_id), events in stories.items()
    )


def _segments(events: Iterable[Event]) -> tuple[TracedSegment, ...]:
    segments: dict[int, TracedSegment] = {}
    known: frozenset[int] = frozenset()
    for event in events:
        match event:
            case MessageSending(chunk_info=chunk):
                _segment(segments, chunk.chunk_index, is_parity=chunk.is_parity).attempts += 1
            case MessageSent(chunk_info=chunk, message_hash=message_hash):
                _segment(segments, chunk.chunk_index, is_parity=chunk.is_parity).message_hashes.append(message_hash)
            case MessagePossiblyAcknowledged(chunk_info=chunk, possible_ack_count=count):
                segment = _segment(segments, chunk.chunk_index, is_parity=chunk.is_parity)
                segment.possible_ack_count = max(segment.possible_ack_count, count)
            case MessageSendError(chunk_info=chunk, reason=reason):
                _segment(segments, chunk.chunk_index, is_parity=chunk.is_parity).error = reason.value
            case MessageAcknowledged(chunks_acknowledged=chunks, acknowledged_by=names):
                # The event is about the segments that the previous one did not have.
                for index in frozenset(chunks) - known:
                    segment = _segment(segments, index, is_parity=False)
                    segment.acknowledged, segment.acknowledged_by = True, names
                known = frozenset(chunks)
    return tuple(segments[index] for index in sorted(segments))


def _segment(segments: dict[int, TracedSegment], index: int, *, is_parity: bool) -> TracedSegment:
    return segments.setdefault(index, TracedSegment(chunk_index=index, is_parity=is_parity))
