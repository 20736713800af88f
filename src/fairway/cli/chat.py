"""``fairway chat``: sends typed lines, shows received messages, and marks acknowledged ones.

With ``--web`` it does so in a browser (`fairway.cli.web_chat`). At the terminal a sent line appears when it is durable;
a mark follows when a participant has acknowledged it. A received message is finished when it has been shown.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from fairway.bounded import BoundedDict
from fairway.channel.listeners import EventStream
from fairway.channel.receipt import Receipt
from fairway.channel.reliable_channel import ReliableChannel
from fairway.cli._channel_options import with_settings
from fairway.cli._console import PlainConsole
from fairway.cli._files import make_folder, save_message, words_for
from fairway.cli._notes import Notes
from fairway.cli._screen import PipeScreen, Screen, TerminalScreen
from fairway.cli._settings import ChannelSettings
from fairway.cli._until_stopped import finish_sending
from fairway.cli.tail import as_text, file_in, indented
from fairway.errors import ConfigurationError, FairwayError
from fairway.events import (
    AwayReason,
    ChannelStatus,
    DeliveryError,
    Event,
    MemberArrived,
    MemberAway,
    MessageDelivered,
    MessageReceived,
    StatusChanged,
)
from fairway.files.receiving import FileReceiver
from fairway.files.sending import FileProgress, is_file_request, send_file
from fairway.units import NS_PER_S, counted
from fairway.visible import visible


@with_settings
def command(
    settings: ChannelSettings,
    *,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save files there by their names; at the terminal also payloads that are not text, as "
            "FOLDER/MESSAGE_ID.",
        ),
    ] = None,
    web: Annotated[
        bool, typer.Option("--web", help="Chat in a browser of this machine: prints the address of the page.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65_535, help="Port of --web on 127.0.0.1.", show_default="a free one"),
    ] = None,
) -> None:
    """Chat in a channel: type lines to send them, and read the messages of others.

    A line with a check mark names those who have a message of yours. /file PATH sends a file, /who shows who
    acknowledged your last message, /quit or Ctrl-D ends. Input may also be a pipe.

    With --web the page shows the history, the files, the members, and who has a message of yours. Without --save it
    saves files beside the store, in STORE.files.

    Examples: [bold]fairway chat --node /ip4/127.0.0.1/tcp/60000 --channel team --sender alice --store alice.db[/bold]

    [bold]fairway chat --web --channel team --sender alice --store alice.db[/bold]
    """
    if web:
        from fairway.cli.web_chat.server import serve  # noqa: PLC0415 - needs an extra

        console = PlainConsole(highlight=False)
        asyncio.run(serve(settings, save, port or 0, lambda text: console.print(text, soft_wrap=True)))
    elif port is not None:
        raise ConfigurationError("--port is the port of the page in the browser: give it with --web")
    else:
        asyncio.run(_converse(settings, save))


async def _converse(settings: ChannelSettings, save: Path | None) -> None:
    console = PlainConsole(highlight=False)
    if sys.stdin.isatty() and console.is_terminal:
        screen = TerminalScreen(console, f"{settings.sender_id}> ")
        with screen.taken_over():
            await chat(settings, screen, save=save)
    else:
        await chat(settings, PipeScreen(console), save=save)


_SHOWN_OF_A_LINE = 40
_KEPT_RECEIPTS = 1_000
COMMANDS = "/file PATH sends a file, /who shows who has your last message, /quit ends"


async def chat(settings: ChannelSettings, screen: Screen, *, save: Path | None = None) -> None:
    """Chat until ``/quit`` or the end of the input. Raises a `FairwayError` if the channel fails."""
    if save is not None:
        make_folder(save)
    async with settings.open(needs_node=False) as (_, channel):
        receiver = None if save is None else await FileReceiver.open(channel, save)
        await Conversation(channel, screen, save, receiver).run()


class Conversation:
    """One conversation."""

    def __init__(
        self, channel: ReliableChannel, screen: Screen, save: Path | None, receiver: FileReceiver | None = None
    ) -> None:
        self._channel = channel
        self._screen = screen
        self._save = save
        self._receiver = receiver
        self._files: set[asyncio.Task[None]] = set()
        """Files that are being sent."""
        self._notes = Notes(channel.sender_id)
        self._sent: BoundedDict[str, tuple[Receipt, str]] = BoundedDict(_KEPT_RECEIPTS)
        """By request id, newest last: the receipt, and the sent text."""

    async def run(self) -> None:
        """Read lines and show events until one of them ends."""
        channel = self._channel
        stream = channel.events()
        await channel.start()
        self._note(f"you are {channel.sender_id} in {channel.channel_id}; type a line to send it; {COMMANDS}")
        reading = asyncio.ensure_future(self._read())
        listening = asyncio.ensure_future(self._listen(stream))
        try:
            await asyncio.wait((reading, listening), return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, listening):
                if task.done():
                    # Raises if the channel failed.
                    task.result()
            await finish_sending((receipt for receipt, _ in self._sent.values()), self._files)
        finally:
            for task in (reading, listening, *self._files):
                task.cancel()
            await asyncio.gather(reading, listening, *self._files, return_exceptions=True)

    async def _read(self) -> None:
        async for line in self._screen.lines():
            words = line.strip()
            if words == "/quit":
                return
            if words:
                try:
                    await self._obey(words)
                except FairwayError as error:
                    self._note(str(error), "red")

    async def _obey(self, words: str) -> None:
        command, _, rest = words.partition(" ")
        if command == "/file" and not rest.strip():
            self._note("/file needs the path of a file: /file PATH", "red")
        elif command == "/file":
            task = asyncio.ensure_future(self._send_file(rest.strip()))
            self._files.add(task)
            task.add_done_callback(self._files.discard)
        elif command == "/who":
            self._who()
        elif command.startswith("/") and not command.startswith("//"):
            self._note(
                f"there is no {command}; {COMMANDS}; to send a line that begins with / begin it with //",
                "red",
            )
        else:
            text = words.removeprefix("/") if command.startswith("//") else words
            await self._send(text.encode(), text)

    async def _send(self, payload: bytes, shown: str) -> None:
        receipt = await self._channel.send(payload)
        self._sent[receipt.request_id] = (receipt, shown)
        self._screen.show(_line(time.time(), self._channel.sender_id, shown, "green"))

    async def _send_file(self, given: str) -> None:
        """Send a file during the chat."""
        shown = ""

        def show(progress: FileProgress) -> None:
            nonlocal shown
            if not shown:
                shown = f"{progress.name} ({counted(progress.size_bytes, 'byte')})"
                self._screen.show(_line(time.time(), self._channel.sender_id, shown, "green"))

        try:
            path = await asyncio.to_thread(Path(given).expanduser)
            delivery = await send_file(self._channel, path, progress=show)
        except FairwayError as error:
            self._note(f"✗ {_quoted(shown) + ': ' if shown else ''}{error}", "red")
        else:
            self._note(f"✓ {_quoted(shown)}: {', '.join(delivery.delivered_to) or 'several together'}", "green")

    def _who(self) -> None:
        if not self._sent:
            self._note("you have sent nothing yet")
            return
        receipt, shown = next(reversed(self._sent.values()))
        progress = receipt.progress
        names = ", ".join(progress.acknowledged_by)
        if names:
            parts = f", {len(progress.chunks_acknowledged)} of {counted(progress.total_chunks, 'segment')} so far"
            self._note(f"{_quoted(shown)} was acknowledged by {names}{parts if not receipt.has_ended else ''}")
        elif progress.possible_ack_count:
            self._note(f"{_quoted(shown)} was probably received by {progress.possible_ack_count}")
        else:
            self._note(f"{_quoted(shown)} is not acknowledged yet")

    async def _listen(self, stream: EventStream) -> None:
        async for event in stream:
            if isinstance(event, MessageReceived):
                await self._show(event)
            else:
                self.mark(event)

    async def _show(self, message: MessageReceived) -> None:
        brought = file_in(message.payload) if self._receiver is None else await self._receiver.take(message)
        text = as_text(message.payload)
        if brought is not None:
            words = words_for(brought)
            if words is None:
                self._finish(message)
                return
            text = words
        elif text is None:
            text = f"a file of {counted(len(message.payload), 'byte')}, SHA-256 {message.message_id[:16]}"
            if self._save is not None and self._receiver is not None:
                saved = await save_message(self._receiver, self._save, message)
                text += f", saved as {saved}" if isinstance(saved, Path) else f": {saved.detail}"
        at_s = message.timestamp_ns / NS_PER_S or time.time()
        if not message.dependencies_met:
            text += "  [an earlier message is missing]"
        self._screen.show(_line(at_s, message.sender_id, text, "bold cyan"))
        self._finish(message)

    def _finish(self, message: MessageReceived) -> None:
        if not message.ephemeral:
            self._channel.finish(message)

    def mark(self, event: Event) -> None:
        """Show the outcome of a message, or a change of the channel or the node."""
        match event:
            case MessageDelivered(request_id=request) | DeliveryError(request_id=request) if is_file_request(request):
                return
            case MessageDelivered(delivered_to=names):
                self._note(f"✓ {self._name(event.request_id)}: {', '.join(names) or 'several together'}", "green")
            case DeliveryError(detail=detail):
                self._note(f"✗ {self._name(event.request_id)}: {detail}", "red")
            case MemberArrived(sender_id=name):
                self._note(f"{name} is here")
            case MemberAway(sender_id=name, reason=reason):
                self._note(f"{name} {'has left' if reason is AwayReason.GOODBYE else 'is silent, and may be gone'}")
            case StatusChanged(status=status):
                is_held_up = status is ChannelStatus.SYNCING and self._channel.gaps(1)
                self._note(f"{status.value}: earlier messages are missing" if is_held_up else status.value)
            case _:
                note = self._notes.of(event)
                if note is not None:
                    self._note(*note)

    def _name(self, request_id: str) -> str:
        known = self._sent.get(request_id)
        return _quoted(known[1]) if known is not None else "an earlier message"

    def _note(self, text: str, style: str = "dim") -> None:
        self._screen.show(Text(f"  {visible(text)}", style))


def _line(at_s: float, sender: str, text: str, style: str) -> Text:
    return Text.assemble(
        (time.strftime("%H:%M ", time.localtime(at_s)), "dim"), (f"{visible(sender)}  ", style), indented(text)
    )


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= _SHOWN_OF_A_LINE else f'"{text[:_SHOWN_OF_A_LINE]}..."'
