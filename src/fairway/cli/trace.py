"""``fairway trace``: shows the path of a message, read from the stores of several participants.

Each store records the events of a message at its participant: each transmission of a segment with its hash, each
acknowledgement, the outcome of the send, and each receipt. The command sorts these events by time. Clocks of different
machines may disagree; the order within one store is always right.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

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
from fairway.storage.channel_store import SendOutcome, StoredRequest, TracePoint
from fairway.storage.store_reader import Owner, StoreReader
from fairway.units import counted
from fairway.visible import visible
from fairway.wire.file_message import FileManifest, FileMessage, FilePart, WholeFile, read_file_header

_SHOWN_STEPS: Final = 40
_SHOWN_PARTS: Final = 40
_WIDTH_OF_A_FILE: Final = 160
"""Width of the tables in columns without a terminal."""


def command(
    message_id: Annotated[
        str,
        typer.Argument(metavar="MESSAGE_ID", help="Message id or its beginning, request id, or SDS message id."),
    ],
    store: Annotated[list[Path], typer.Option(metavar="PATH", help="The store of a participant; repeatable.")],
    *,
    channel: Annotated[str | None, typer.Option(metavar="NAME", help="The channel, if a store has several.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Show every step.")] = False,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Show the path of a message: its transmissions, acknowledgements, outcome and receivers.

    For a message of a file, the command also shows the file and the state of its parts.

    The steps of all stores are in one list, ordered by time. Exit code 1 if no store knows the message. The command
    only reads the stores, and they may be in use.

    Example: [bold]fairway trace 2cf24dba --store alice.db --store bob.db[/bold]
    """
    trace = trace_message(message_id, store, channel)
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
        "sends": [{"who": who, **as_json(request)} for who, request in trace.sends],
        "steps": [_step(step) for step in trace.steps],
        "file": as_json(trace.file),
    }


def _step(step: TracedEvent) -> dict[str, Any]:
    told = event_as_json(step.event)
    if isinstance(step.event, MessageReceived):
        # The payload is not recorded; the message id is its hash.
        told |= {"size": step.size_bytes, "sha256": step.event.message_id}
    return {"at_ms": step.at_ms, "who": step.who, **told}


def _print(console: Console, trace: MessageTrace, limit: int | None) -> None:
    console.print(f"[bold]message {trace.message_id}[/bold] in {_plain(trace.channel_id)}", soft_wrap=True)
    if trace.file is not None:
        _print_file(console, trace.message_id, trace.file)
    for who, request in trace.sends:
        size = counted(request.size_bytes, "byte")
        line = f"sent by {_plain(who)}, {size}, request {_plain(request.request_id)}: {_plain(_outcome(request))}"
        console.print(line, soft_wrap=True)
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


def _print_file(console: Console, message_id: str, file: TracedFile) -> None:
    name = f"{_plain(file.name)} ({_plain(file.media_type)})" if file.name else "a file whose manifest no store has"
    size = (
        ""
        if file.size_bytes is None
        else f", {counted(file.size_bytes, 'byte')} in {counted(file.total_parts, 'part')}"
    )
    part = next((each.part for each in file.messages if each.message_id == message_id), None)
    this = f"part {part + 1}" if part is not None else "its manifest" if file.total_parts else "all of it"
    console.print(f"file [bold]{name}[/bold]{size}; this message is {this}", soft_wrap=True)
    if len(file.messages) == 1 and not file.total_parts:
        return
    table = Table(title="Its messages", title_justify="left")
    for heading in ("part", "message", "sent", "received by"):
        table.add_column(heading, justify="right" if heading == "part" else "left")
    for message in file.messages[:_SHOWN_PARTS]:
        table.add_row(
            "manifest" if message.part is None else str(message.part + 1),
            message.message_id[:16],
            "" if message.outcome is None else message.outcome.value,
            _plain(", ".join(message.received_by)),
        )
    if len(file.messages) > _SHOWN_PARTS:
        table.add_row("...", f"{len(file.messages) - _SHOWN_PARTS:,} more, see --json", "", "")
    console.print(table)


def _outcome(request: StoredRequest) -> str:
    match request:
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
class TracedFileMessage:
    """A message of a file: the whole file, its manifest, or a part."""

    message_id: str
    part: int | None
    """From 0; None for the whole file and for the manifest."""
    outcome: SendOutcome | None = None
    """Outcome of its latest send; None if no store has one."""
    received_by: list[str] = field(default_factory=list)
    """Sender ids of the participants that received it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedFile:
    """The file to which the message belongs."""

    name: str
    """Empty if no store has the manifest."""
    media_type: str
    size_bytes: int | None
    """None for a file in one message."""
    total_parts: int
    """0 for a file in one message, and if no store has the manifest."""
    messages: tuple[TracedFileMessage, ...]
    """The manifest and the known parts in order; for a file in one message, that message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTrace:
    """The path of one message."""

    message_id: str
    channel_id: str
    sends: tuple[tuple[str, StoredRequest], ...]
    """Sender and state of each send that a store still has, in the order of acceptance."""
    steps: tuple[TracedEvent, ...]
    """All events in order of time."""
    file: TracedFile | None = None
    """None if the message belongs to no file."""

    @property
    def receipts(self) -> tuple[TracedEvent, ...]:
        """The deliveries of the message."""
        return tuple(step for step in self.steps if isinstance(step.event, MessageReceived))


class _Witness(NamedTuple):
    owner: Owner
    reader: StoreReader


def trace_message(identifier: str, stores: Sequence[Path], channel_id: str | None = None) -> MessageTrace | None:
    """Return the path of a message; None if no store knows it.

    ``identifier`` is a message id or its beginning, a request id, or an SDS id; ``channel_id`` restricts the search to
    one channel. Raises `ConfigurationError` for the beginning of several ids, for a message in several channels and for
    an unknown channel, and a `StorageError` if a store cannot be read.
    """
    if not stores:
        raise ConfigurationError("no store is given; name at least one: --store alice.db")
    witnesses = [
        _Witness(owner, StoreReader(path, owner.channel_id))
        for path in stores
        for owner in StoreReader(path).owners()
        if channel_id in {None, owner.channel_id}
    ]
    if not witnesses:
        raise ConfigurationError(f"{', '.join(map(str, stores))}: no channel {channel_id or ''}".rstrip())
    found = {}
    for channel in dict.fromkeys(each.owner.channel_id for each in witnesses):
        resolved = _resolve(identifier, [each for each in witnesses if each.owner.channel_id == channel])
        if resolved is not None:
            found[channel] = resolved
    if not found:
        return None
    if len(found) > 1:
        raise ConfigurationError(f"{identifier} is in the channels {', '.join(found)}; name one with --channel")
    ((channel, (message_id, request_id)),) = found.items()
    witnesses = [each for each in witnesses if each.owner.channel_id == channel]
    steps: list[TracedEvent] = []
    sends: list[tuple[str, StoredRequest]] = []
    for owner, reader in witnesses:
        who = owner.sender_id
        sends += [(who, request) for request in reader.requests(message_id)]
        steps += [
            TracedEvent(at_ms=point.at_ms, who=who, event=point.event, size_bytes=point.size_bytes)
            for point in reader.trace(message_id)
        ]
    if request_id is not None:
        steps = [step for step in steps if getattr(step.event, "request_id", request_id) == request_id]
        sends = [(who, request) for who, request in sends if request.request_id == request_id]
    file = _file_of(message_id, witnesses)
    # A stable sort: events of one store within a millisecond keep their order.
    steps.sort(key=lambda step: step.at_ms)
    return MessageTrace(
        message_id=message_id,
        channel_id=channel,
        sends=tuple(sorted(sends, key=lambda send: send[1].accepted_at_ms)),
        steps=tuple(steps),
        file=file,
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


def _resolve(identifier: str, witnesses: Iterable[_Witness]) -> tuple[str, str | None] | None:
    """Return the message id, and the request id if the identifier is one."""
    prefixed: set[str] = set()
    for _, reader in witnesses:
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


def _file_of(message_id: str, witnesses: Sequence[_Witness]) -> TracedFile | None:
    """Return the stored data about the file of a message; None if it belongs to no file."""
    messages: dict[str, TracedFileMessage] = {}
    header = _note_file_message(message_id, witnesses, messages)
    manifest_id = header.manifest_id.hex() if isinstance(header, FilePart) else message_id
    first = header if manifest_id == message_id else _note_file_message(manifest_id, witnesses, messages)
    if header is None:
        return None
    if not isinstance(first, WholeFile):
        for owner, reader in witnesses:
            requests, points = reader.parts(bytes.fromhex(manifest_id))
            _note_in(owner, requests, points, messages)
    named = first if isinstance(first, WholeFile | FileManifest) else None
    return TracedFile(
        name="" if named is None else named.name,
        media_type="" if named is None else named.media_type,
        size_bytes=named.size_bytes if isinstance(named, FileManifest) else None,
        total_parts=named.parts if isinstance(named, FileManifest) else 0,
        messages=tuple(sorted(messages.values(), key=lambda each: -1 if each.part is None else each.part)),
    )


def _note_file_message(
    message_id: str, witnesses: Iterable[_Witness], messages: dict[str, TracedFileMessage]
) -> FileMessage | None:
    """Note a message of a file, and return its header; None for another or an unknown message."""
    headers: list[bytes] = []
    for owner, reader in witnesses:
        requests, points = reader.requests(message_id), reader.trace(message_id)
        _note_in(owner, requests, points, messages)
        headers += [request.file_header for request in requests] + [point.file_header for point in points]
    return next((found for found in map(read_file_header, headers) if found is not None), None)


def _note_in(
    owner: Owner,
    requests: Iterable[StoredRequest],
    points: Iterable[TracePoint],
    messages: dict[str, TracedFileMessage],
) -> None:
    """Note the data of one store about messages of a file."""

    def noted(message_id: str, header: bytes) -> TracedFileMessage | None:
        message = read_file_header(header)
        if message is None:
            return None
        part = message.index if isinstance(message, FilePart) else None
        return messages.setdefault(message_id, TracedFileMessage(message_id=message_id, part=part))

    for request in sorted(requests, key=lambda request: request.accepted_at_ms):
        if (sent := noted(request.message_id, request.file_header)) is not None:
            sent.outcome = request.outcome
    for point in points:
        received = noted(getattr(point.event, "message_id", ""), point.file_header)
        if received is not None and owner.sender_id not in received.received_by:
            received.received_by.append(owner.sender_id)
