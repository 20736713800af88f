"""``fairway send``: sends one message or one file, waits until it is sent or acknowledged, and shows the progress.

The command does not read received messages: with a store they wait for a program that reads them. A message without an
acknowledgement stays in the store, and the next program that opens the channel with this store continues the send.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from fairway.channel.receipt import Progress, Receipt
from fairway.channel.reliable_channel import ReliableChannel
from fairway.cli._channel_options import with_settings
from fairway.cli._console import PlainConsole
from fairway.cli._event_json import as_json, as_line, event_as_json
from fairway.cli._files import read_payload, read_stream
from fairway.cli._settings import ChannelSettings
from fairway.environment import time_ns
from fairway.errors import ConfigurationError, DeliveryFailedError, RlnError
from fairway.events import (
    DeliveryError,
    Event,
    MessageAcknowledged,
    MessageDelivered,
    MessagePossiblyAcknowledged,
    MessageQueued,
    MessageSendError,
    MessageSending,
    MessageSent,
    RequestSent,
)
from fairway.files.sending import FileDelivery, FileProgress, Wait, is_file_request, send_file
from fairway.nodes.node import WakuNode
from fairway.nodes.proving import quota_of
from fairway.units import NS_PER_MS, counted
from fairway.visible import visible
from fairway.wire.topics import autoshard

_BAR_CELLS: Final = 60


@with_settings
def command(
    settings: ChannelSettings,
    text: Annotated[list[str] | None, typer.Argument(help="The message; words are joined. Without it, stdin.")] = None,
    *,
    file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Send a file with its name and media type, in parts if it is large."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Send only the content of the file, as one message, for js-waku and others.")
    ] = False,
    wait: Annotated[Wait, typer.Option(help="What to wait for; with none, a later command sends the message.")] = (
        Wait.DELIVERED
    ),
    count: Annotated[int, typer.Option(min=1, help="How many participants must acknowledge it.")] = 1,
    by: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A participant that must acknowledge it; repeatable.")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Longest wait; for a file, longest time without progress. 0: until the retries end."
        ),
    ] = 120.0,
    machine: Annotated[bool, typer.Option("--json", help="Print every event as a JSON line, for programs.")] = False,
) -> None:
    """Send a text, a file or stdin to a channel, and wait until it is acknowledged.

    Exit code 0 if the message reached the goal of --wait, 1 if not, 2 if it was not accepted. With --store, an
    unacknowledged message stays in the store, and every command with that store continues to send it. So a message is
    also accepted while the node cannot be reached (exit code 1, or 0 with --wait none).

    A file of more than a megabyte is sent in parts, each after an earlier one is acknowledged. With --wait sent or none
    the parts do not wait, and need the memory of the whole file. If the command ends early, repeat it with the same
    --store: it continues, and sends no acknowledged part again. Receivers save files with 'fairway tail --save FOLDER'.

    Examples: [bold]fairway send --channel team --sender alice "see you at eight"[/bold]

    [bold]fairway send --channel team --sender alice --store alice.db --file holiday.jpg --by bob --by carol[/bold]

    [bold]fairway send --channel team --sender alice --store alice.db --file backup.tar --timeout 0[/bold]
    """
    if raw and file is None:
        raise ConfigurationError("--raw needs a file; give --file PATH, too")
    sent: bytes | Path
    if file is not None and not raw and not text:
        sent = file
    else:
        sent = _payload(text or [], file, settings.options.segmentation.max_message_size_bytes)
    goal = SendGoal(wait=wait, count=max(count, len(set(by or []))), by=tuple(by or []), timeout_s=timeout or None)
    with _told_of_interruption(settings) as accepted:
        if machine:
            watching = Watching(event=lambda event: _print_line(event_as_json(event)), accepted=accepted)
            report = asyncio.run(send(settings, sent, goal, watching))
            _print_line({"event": "send-report", **as_json(report)})
        else:
            console = PlainConsole(highlight=False)
            with _picture(console) as progress:
                report = asyncio.run(send(settings, sent, goal, Watching(progress=progress, accepted=accepted)))
            _print_report(console, report, settings, wait)
    raise typer.Exit(0 if report.reached else 1)


@contextmanager
def _told_of_interruption(settings: ChannelSettings) -> Iterator[Callable[[str, int], None]]:
    """Yield a callback for the accepted message; after Ctrl-C print the further handling of that message."""
    accepted: list[str] = []
    try:
        yield lambda message_id, size_bytes: accepted.append(f"{message_id[:12]} ({counted(size_bytes, 'byte')})")
    except KeyboardInterrupt:
        if accepted:
            typer.echo(f"interrupted: {accepted[0]} was accepted; {_what_becomes_of_it(settings)}", err=True)
        raise


def _what_becomes_of_it(settings: ChannelSettings) -> str:
    if settings.store is None:
        return "without --store its sending ends here; give --store PATH to continue it later"
    return f"it stays in {settings.store}, and every command with that store continues to send it"


def _payload(words: list[str], file: Path | None, limit_bytes: int) -> bytes:
    if words and file is not None:
        raise ConfigurationError("give a text or --file, not both")
    if file is not None:
        return read_payload(file, limit_bytes)
    if words:
        return " ".join(words).encode()
    if sys.stdin.isatty():
        typer.echo("type the message, and end it with Ctrl-D on a line of its own", err=True)
    return read_stream(sys.stdin.buffer, limit_bytes)


@contextmanager
def _picture(console: Console) -> Iterator[Callable[[Progress | FileProgress], None]]:
    """Yield a callback that shows the progress of the segments on a terminal."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with Live(Text("accepted"), console=console, refresh_per_second=10, transient=True) as live:
        yield lambda progress: live.update(_drawn(progress))


def _drawn(progress: Progress | FileProgress) -> Group:
    """Draw a bar of the data segments: dots wait, half-tone is sent, full is acknowledged."""
    if isinstance(progress, FileProgress):
        total, sent, acknowledged = progress.total_segments, progress.segments_sent, progress.segments_acknowledged
        more = f"; {progress.messages_acknowledged:,}/{counted(progress.total_messages, 'message')}"
        if progress.resumed_messages:
            more += f", {progress.resumed_messages:,} of them earlier"
    else:
        total, acknowledged = progress.total_chunks, len(progress.chunks_acknowledged)
        sent = sum(chunk < total for chunk in progress.chunks_sent)
        more = f" by {visible(', '.join(progress.acknowledged_by))}" if progress.acknowledged_by else ""
        if progress.possible_ack_count and not progress.acknowledged_by:
            more = f" (probably by {progress.possible_ack_count})"
    width = min(total, _BAR_CELLS)
    full, half = (width * count // total for count in (acknowledged, max(sent, acknowledged)))
    bar = Text.assemble(("█" * full, "green"), ("▒" * (half - full), "yellow"), ("·" * (width - half), "dim"))
    return Group(bar, Text(f"{sent:,}/{counted(total, 'segment')} sent, {acknowledged:,} acknowledged{more}", "dim"))


def _print_report(console: Console, report: SendReport, settings: ChannelSettings, wait: Wait) -> None:
    what = f"{report.message_id[:12]} ({counted(report.size_bytes, 'byte')})"
    if report.file is not None:
        parts = f" in {counted(report.file.total_messages, 'message')}" if report.file.total_messages > 1 else ""
        if report.file.resumed_messages:
            parts += f", {report.file.resumed_messages:,} of them earlier" if parts else ", earlier"
        what = f"{visible(report.file.name)} ({counted(report.size_bytes, 'byte')}{parts}, {report.message_id[:12]})"
    if report.reached and report.delivered_to:
        line = Text.assemble(("delivered ", "green"), f"{what} to {visible(', '.join(report.delivered_to))}")
    elif report.reached:
        line = Text.assemble(("sent " if wait is Wait.SENT else "accepted ", "green"), what)
    else:
        line = Text.assemble(f"{what}: ", (visible(report.detail), "red"))
    console.print(line, soft_wrap=True)
    if report.reached and report.file is not None and report.file.resumed_messages == report.file.total_messages:
        console.print("nothing was sent now; if you send it once more, it is a new file", soft_wrap=True)
    if report.earlier_open:
        earlier = counted(report.earlier_open, "earlier send")
        console.print(f"{earlier} of {settings.store} continued meanwhile", soft_wrap=True)
    if report.file is not None and report.file.total_messages > 1 and not report.reached:
        _print_how_to_go_on(console, report.file, settings)
    elif settings.store is not None and not report.failed and not report.delivered_to:
        until = " until it is acknowledged" if wait is Wait.SENT and report.reached else ""
        trace = f"'fairway trace {report.message_id[:12]} --store {settings.store}'"
        console.print(f"{_what_becomes_of_it(settings)}{until}; {trace} shows its progress", soft_wrap=True)
    elif not report.reached and not report.failed:
        console.print(_what_becomes_of_it(settings), soft_wrap=True)


def _print_how_to_go_on(console: Console, file: FileProgress, settings: ChannelSettings) -> None:
    done = f"{file.messages_acknowledged:,} of {counted(file.total_messages, 'message')} acknowledged"
    if settings.store is None:
        how = "without --store its sending ends here, and starts over next time"
    else:
        how = f"the same command with {settings.store} continues with the rest"
    console.print(f"{done}; {how}", soft_wrap=True)


def _print_line(told: dict[str, Any]) -> None:
    sys.stdout.buffer.write(as_line(told))
    sys.stdout.buffer.flush()


_OF_SENDS = (
    MessageSending,
    MessageSent,
    RequestSent,
    MessageQueued,
    MessagePossiblyAcknowledged,
    MessageAcknowledged,
    MessageDelivered,
    MessageSendError,
    DeliveryError,
)


NODE_S: Final = 10.0
"""Longest wait for a node that cannot be reached at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendGoal:
    """The goal of a send."""

    wait: Wait = Wait.DELIVERED
    count: int = 1
    """Participants that must acknowledge it."""
    by: tuple[str, ...] = ()
    """Participants that must be among them."""
    timeout_s: float | None = 120.0
    """Longest wait; None: until the retries are exhausted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport:
    """The result of a send."""

    request_id: str
    message_id: str
    size_bytes: int
    reached: bool
    """Whether the goal was reached."""
    failed: bool
    """Whether the send ended without it; otherwise a later command may continue it."""
    detail: str
    """Reason why the goal was not reached; empty if it was reached."""
    delivered_to: tuple[str, ...]
    """Participants known to have the whole message."""
    earlier_open: int
    """Earlier messages of the store that were sent during this send."""
    file: FileProgress | None = None
    """Progress of the file; None for a payload that is not a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """Callbacks for events; each is called on the event loop."""

    event: Callable[[Event], None] = lambda _: None
    """Every event of a send."""
    progress: Callable[[Progress | FileProgress], None] = lambda _: None
    """Each progress of the message or the file."""
    accepted: Callable[[str, int], None] = lambda *_: None
    """Called when the channel has accepted the first message: its message id, and the size of the whole payload."""


async def send(
    settings: ChannelSettings,
    content: bytes | Path,
    goal: SendGoal | None = None,
    watching: Watching | None = None,
) -> SendReport:
    """Send a payload, or the file at a path, in parts if it is large; raise a `FairwayError` if it was not accepted."""
    goal, watching = goal or SendGoal(), watching or Watching()
    if goal.wait is Wait.NONE and settings.store is None:
        raise ConfigurationError(
            "--wait none needs a store, in which the message stays until it is sent: give --store, or --wait sent"
        )
    async with settings.open(needs_node=False) as (node, channel):
        for kind in _OF_SENDS:
            channel.on(kind, watching.event)
        if isinstance(content, Path):
            report = await _send_file(channel, node, content, goal, watching)
        else:
            report = await _send_message(channel, node, content, goal, watching)
        earlier_open = report.earlier_open if node.status.connected else 0
        return replace(report, detail=report.detail + _hint(report.detail, channel), earlier_open=earlier_open)


async def _started(channel: ReliableChannel) -> int:
    """Start the channel; return how many earlier messages it continues to send."""
    await channel.start()
    return sum(not is_file_request(each) for each in channel.protocol.requests.open)


async def _send_message(
    channel: ReliableChannel, node: WakuNode, payload: bytes, goal: SendGoal, watching: Watching
) -> SendReport:
    delayed: dict[str, MessageQueued] = {}

    def note_delay(event: MessageQueued) -> None:
        if node.status.connected:  # otherwise it waits for the node
            delayed[event.request_id] = event

    channel.on(MessageQueued, note_delay)
    channel.on(RequestSent, lambda event: delayed.pop(event.request_id, None))
    earlier_open = await _started(channel)
    receipt = await channel.send(payload, count=goal.count, by=goal.by)
    watching.accepted(receipt.message_id, len(payload))
    following = asyncio.ensure_future(_follow(receipt, watching.progress))
    try:
        reached, delivered_to, detail = await _reach(receipt, goal, node, channel)
        if not reached and not receipt.has_ended and node.status.connected:
            detail += await _delay(node, receipt, delayed.get(receipt.request_id))
        # The follower may not have shown the last progress.
        watching.progress(receipt.progress)
    finally:
        following.cancel()
    return SendReport(
        request_id=receipt.request_id,
        message_id=receipt.message_id,
        size_bytes=len(payload),
        reached=reached,
        failed=not reached and receipt.has_ended,
        detail=detail,
        delivered_to=delivered_to,
        earlier_open=earlier_open,
    )


async def _send_file(
    channel: ReliableChannel, node: WakuNode, file: Path, goal: SendGoal, watching: Watching
) -> SendReport:
    earlier_open = await _started(channel)
    steps = _Steps(watching)
    sending = asyncio.ensure_future(
        send_file(channel, file, count=goal.count, by=goal.by, wait=goal.wait, progress=steps.note)
    )
    try:
        detail = await _reach_file(sending, steps, goal, node, channel)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    failure = sending.exception() if not sending.cancelled() else None
    if failure is not None and not isinstance(failure, DeliveryFailedError):
        raise failure
    last = steps.last
    assert last is not None, "a send without progress raises"
    return SendReport(
        request_id=last.request_id,
        message_id=last.message_id,
        size_bytes=last.size_bytes,
        reached=not detail,
        failed=failure is not None,
        detail=detail,
        delivered_to=() if detail else sending.result().delivered_to,
        earlier_open=earlier_open,
        file=last,
    )


class _Steps:
    """The progress of a file, and an event for the next."""

    def __init__(self, watching: Watching) -> None:
        self.last: FileProgress | None = None
        self.changed = asyncio.Event()
        self._watching = watching

    def note(self, progress: FileProgress) -> None:
        if self.last is None:
            self._watching.accepted(progress.message_id, progress.size_bytes)
        self.last = progress
        self.changed.set()
        self._watching.progress(progress)


async def _reach_file(
    sending: asyncio.Future[FileDelivery], steps: _Steps, goal: SendGoal, node: WakuNode, channel: ReliableChannel
) -> str:
    """Wait while there is progress; return why the goal was not reached, or an empty text."""
    # A file that cannot be sent raises before the first progress.
    await _first((sending, asyncio.ensure_future(steps.changed.wait())), None)
    if not sending.done() and goal.wait is not Wait.NONE:
        there = asyncio.ensure_future(_is_there(node, goal))
        await _first((sending, there), None)
        if not sending.done() and not there.result():
            return _no_node(node)
    while not sending.done():
        steps.changed.clear()
        await _first((sending, asyncio.ensure_future(steps.changed.wait())), goal.timeout_s)
        if not sending.done() and not steps.changed.is_set():
            return f"no progress within {goal.timeout_s:g} s{_refusal_of(channel)}"
    error = sending.exception()
    return "" if error is None else str(error)


def _no_node(node: WakuNode) -> str:
    """Return that no node can be used, and why."""
    return f"not sent, because no node can be used{f': {node.status.detail}' if node.status.detail else ''}"


def _hint(detail: str, channel: ReliableChannel) -> str:
    """Return a hint if the node does not serve the shard of the channel; else an empty text."""
    options = channel.options
    topic = autoshard(channel.content_topic, options.cluster_id, options.shard_count)
    if topic not in detail:
        return ""
    where = f"cluster {options.cluster_id} of {counted(options.shard_count, 'shard')}"
    return f". The channel is in {where}: --cluster and --shards give those of the node"


def _refusal_of(channel: ReliableChannel) -> str:
    """Return the last refusal of the node, or an empty text."""
    refusal = channel.statistics().refusal
    return f": {refusal}" if refusal else ""


async def _delay(node: WakuNode, receipt: Receipt, queued: MessageQueued | None) -> str:
    """Return until when the rate limit holds a message back; an empty text if it does not."""
    allowed_ms = None if queued is None else queued.expected_ms
    if queued is None:
        # The channel reads the quota used by earlier processes only with its first proof.
        quota = None
        if node.rln is not None and not receipt.progress.chunks_sent:
            with suppress(RlnError):
                quota = await quota_of(node.rln, time_ns() // NS_PER_MS)
        if quota is None or quota.remaining != 0:
            return ""
        if quota.epoch_ms is not None:
            allowed_ms = (quota.epoch_index + 1) * quota.epoch_ms
    if allowed_ms is None:
        return ": the rate limit is used up"
    at = datetime.fromtimestamp(allowed_ms / 1_000).astimezone()
    return f": the rate limit is used up, and allows more at about {at:%H:%M:%S}"


async def _first(tasks: tuple[asyncio.Future[Any], asyncio.Future[Any]], timeout_s: float | None) -> None:
    """Wait until one of two is done, and cancel the second."""
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)


async def _follow(receipt: Receipt, tell: Callable[[Progress], None]) -> None:
    async for progress in receipt.updates():
        tell(progress)


async def _is_there(node: WakuNode, goal: SendGoal) -> bool:
    """Wait at most `NODE_S` for the node, or without a limit if the goal has none."""
    try:
        async with asyncio.timeout(None if goal.timeout_s is None else NODE_S):
            async for status in node.status_changes():
                if status.connected:
                    return True
    except TimeoutError:
        pass
    return False


async def _reach(
    receipt: Receipt, goal: SendGoal, node: WakuNode, channel: ReliableChannel
) -> tuple[bool, tuple[str, ...], str]:
    """Wait; return whether the goal was reached, who has the message, and why it was not reached."""
    limit: AbstractAsyncContextManager[object] = (
        nullcontext() if goal.timeout_s is None else asyncio.timeout(goal.timeout_s)
    )
    delivered_to: tuple[str, ...] = ()
    try:
        async with limit:
            if goal.wait is not Wait.NONE and not await _is_there(node, goal):
                return False, (), _no_node(node)
            if goal.wait is Wait.SENT:
                await receipt.sent()
            elif goal.wait is Wait.DELIVERED:
                delivered_to = (await receipt.delivered()).delivered_to
    except DeliveryFailedError as error:
        return False, (), str(error)
    except TimeoutError:
        if goal.wait is not Wait.NONE and not node.status.connected:
            return False, (), _no_node(node)
        what = "acknowledged as asked" if goal.wait is Wait.DELIVERED else "sent"
        return False, (), f"not {what} within {goal.timeout_s:g} s{_refusal_of(channel)}"
    return True, delivered_to, ""
