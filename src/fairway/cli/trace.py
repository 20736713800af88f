"""``fairway trace``: prints what `fairway.apps.tracing` found out."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairway.apps.event_json import as_json, event_as_json
from fairway.apps.tracing import MessageTrace, TracedEvent, TracedFile, TracedSending, describe, trace_message
from fairway.cli._console import PlainConsole
from fairway.events import DeliveryError, MessageDelivered, MessageReceived
from fairway.units import counted
from fairway.visible import visible

_SHOWN_STEPS: Final = 40
_SHOWN_SEGMENTS: Final = 40
_WIDTH_OF_A_FILE: Final = 160
"""Columns of the tables where no terminal says how many there are."""


def command(
    message_id: Annotated[
        str,
        typer.Argument(metavar="MESSAGE_ID", help="Message id or its beginning, request id, or SDS message id."),
    ],
    store: Annotated[list[Path], typer.Option(metavar="PATH", help="The store of a participant; repeatable.")],
    *,
    everything: Annotated[bool, typer.Option("--all", help="Show every step, however many there are.")] = False,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Show where a message went: its segments, hashes, attempts and acknowledgements, and who received it.

    Of a message of a file it shows the name of the file, and how each of its parts went.

    Several stores are shown together, in order of time. Exit code 1 if none of them knows the message. Stores may be in
    use meanwhile; nothing is changed.

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
            console.print(f"nothing is known of {message_id} in {stores}", markup=False, soft_wrap=True)
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
        "file": as_json(trace.file),
    }


def _step(step: TracedEvent) -> dict[str, Any]:
    told = event_as_json(step.event)
    if isinstance(step.event, MessageReceived):
        # The payload is not kept; the message id is its hash.
        told |= {"size": step.size_bytes, "sha256": step.event.message_id}
    return {"at_ms": step.at_ms, "who": step.who, **told}


def _print(console: Console, trace: MessageTrace, limit: int | None) -> None:
    console.print(f"[bold]message {trace.message_id}[/bold] in {_plain(trace.channel_id)}", soft_wrap=True)
    if trace.file is not None:
        _print_file(console, trace.message_id, trace.file)
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
    for message in file.messages[:_SHOWN_SEGMENTS]:
        table.add_row(
            "manifest" if message.part is None else str(message.part + 1),
            message.message_id[:16],
            "" if message.outcome is None else message.outcome.value,
            _plain(", ".join(message.received_by)),
        )
    if len(file.messages) > _SHOWN_SEGMENTS:
        table.add_row("...", f"{len(file.messages) - _SHOWN_SEGMENTS:,} more, see --json", "", "")
    console.print(table)


def _print_sending(console: Console, sending: TracedSending) -> None:
    request = sending.request
    size = f", {counted(request.size_bytes, 'byte')}" if request is not None else ""
    console.print(
        f"sent by {_plain(sending.who)}{size}, request {_plain(sending.request_id)}: {_plain(_outcome(sending))}",
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


def _outcome(sending: TracedSending) -> str:
    began_ms = sending.request.accepted_at_ms if sending.request is not None else None
    match sending.ending:
        case MessageDelivered(delivered_to=names, at_ms=at_ms):
            after = f" after {(at_ms - began_ms) / 1000:,.1f} s" if began_ms is not None else ""
            return f"delivered to {', '.join(names) or 'several together'}{after}"
        case DeliveryError(detail=detail):
            return f"given up ({detail})"
        case _:
            return (
                f"{sending.request.outcome.value} so far" if sending.request is not None else "how it ended is unknown"
            )


def _row(step: TracedEvent, start_ms: int) -> tuple[str, ...]:
    chunk = getattr(step.event, "chunk_info", None)
    segment = "" if chunk is None else f"{chunk.chunk_index}{'p' if chunk.is_parity else ''}"
    at = time.strftime("%H:%M:%S", time.localtime(step.at_ms / 1000))
    after = f"{(step.at_ms - start_ms) / 1000:,.3f} s"
    return (f"{at}.{step.at_ms % 1000:03}", after, _plain(step.who), segment, _plain(describe(step.event)))


def _plain(text: str) -> str:
    """Return a text from the network for rich to print: invisible characters and markup are escaped."""
    return escape(visible(text))
