"""``fairway participant``: one process is one participant, with JSON lines as commands and as events.

For scripts in any language, and for tests that kill processes. A received message is finished when its line has been
written. After a crash only unfinished messages are printed again, with ``redelivered`` true. "accepted" means durable.
This line precedes all events of its request, except for an ephemeral message. A wrong command is answered and changes
nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from fairway.channel.listeners import EventStream
from fairway.channel.receipt import Receipt
from fairway.channel.reliable_channel import ReliableChannel
from fairway.cli._channel_options import with_settings
from fairway.cli._event_json import as_json, as_line, brought_as_json, event_as_json, payload_as_json
from fairway.cli._files import make_folder, read_payload, save_message
from fairway.cli._lines import LineReader, LineWriter, TooLong
from fairway.cli._settings import ChannelSettings
from fairway.cli._until_stopped import stop_event
from fairway.errors import ConfigurationError, DecodeError, DeliveryFailedError, FairwayError
from fairway.events import MessageEvent, MessageReceived
from fairway.files.outcomes import FileOutcome
from fairway.files.receiving import FileReceiver
from fairway.json_reading import read_json


@with_settings
def command(
    settings: ChannelSettings,
    *,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save files into FOLDER under their names, and other payloads as FOLDER/MESSAGE_ID. The line of the "
            "message has the path.",
        ),
    ] = None,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Add payload_base64 to the lines of received messages.")
    ] = False,
) -> None:
    """Take part in a channel, driven by JSON lines on stdin; every event is a JSON line on stdout.

    Commands: {"command":"send","text":"hello"} with base64 or file in place of text, and optionally request_id, count
    and by; send_ephemeral; statistics; stop. Each can have a tag, which the answer repeats. The answer is a line:
    "accepted" (the message is durable), "statistics", "stopped", or "error" with the reason.

    A received message is finished when its line is written. An unfinished message comes again after a crash, with
    "redelivered" true. The end of stdin, SIGTERM and SIGINT stop the command with exit code 0; 2 if it could not run.

    Example: [bold]echo '{"command":"send","text":"hello"}' | fairway participant --node /ip4/127.0.0.1/tcp/60000
    --channel team --sender alice --store alice.db[/bold]
    """
    commands, events = sys.stdin.fileno(), sys.stdout.fileno()
    asyncio.run(run_participant(settings, commands=commands, events=events, save=save, payloads=payloads))


_MAX_UNDER_WAY: Final = 256
"""Sends that are becoming durable; at this number no further command is read."""
_ID_BYTES: Final = 16
_LAST_WORDS_S: Final = 10.0
"""Longest wait of a stop for sends that are becoming durable, and for a slow reader."""


class Command(msgspec.Struct, tag_field="command", forbid_unknown_fields=True, kw_only=True):
    """A line of the input."""

    tag: Any = None
    """Any JSON; the answer repeats it."""


class SendEphemeralCommand(Command, tag="send_ephemeral"):
    """Exactly one of three fields has the payload."""

    text: str | None = None
    base64: bytes | None = None
    file: str | None = None
    """Path of a file that holds the payload."""


class SendCommand(SendEphemeralCommand, tag="send"):
    """A send, with the participants that must acknowledge it."""

    request_id: str | None = None
    count: int = 1
    by: tuple[str, ...] = ()


class StatisticsCommand(Command, tag="statistics"):
    """Asks for the statistics of the channel."""


class StopCommand(Command, tag="stop"):
    """Ends the participant."""


_COMMANDS: Final[Any] = SendCommand | SendEphemeralCommand | StatisticsCommand | StopCommand
_HINT: Final = (
    'the commands are send, send_ephemeral, statistics and stop, as in {"command":"send","text":"hello"}; '
    "see 'fairway participant --help'"
)


def parse_command(line: bytes) -> Command:
    """Return the command of a line, or raise `ConfigurationError`."""
    try:
        command: Command = read_json(line, _COMMANDS)
    except DecodeError as error:
        raise ConfigurationError(f"{error}; {_HINT}") from error
    if (
        isinstance(command, SendEphemeralCommand)
        and sum(each is not None for each in (command.text, command.base64, command.file)) != 1
    ):
        raise ConfigurationError(f"a payload is exactly one of text, base64 and file; {_HINT}")
    return command


def _tag_of(line: bytes) -> Any:
    """Return the tag of a wrong command, if it has one."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return given.get("tag") if isinstance(given, dict) else None


async def run_participant(
    settings: ChannelSettings, *, commands: int, events: int, save: Path | None = None, payloads: bool = False
) -> None:
    """Take part until a stop command, the end of ``commands``, SIGTERM or SIGINT.

    ``commands`` and ``events`` are file descriptors. Files and other payloads are saved in the folder ``save``; with
    ``payloads`` the lines of messages carry ``payload_base64``. A `FairwayError` that ends it early is printed and
    raised.
    """
    out = LineWriter(events)
    try:
        async with stop_event() as stopping:
            try:
                if save is not None:
                    make_folder(save)
                async with settings.open(needs_node=False) as (_, channel):
                    files = None if save is None else await FileReceiver.open(channel, save)
                    participant = _Participant(channel, out, files, save, payloads=payloads)
                    await participant.run(LineReader(commands), stopping)
            except FairwayError as error:
                _say(out, **_error(error))
                raise
        _say(out, event="stopped")
    except BrokenPipeError:
        # The reader has closed the pipe. Unfinished messages are delivered again.
        return
    finally:
        with suppress(OSError):
            await asyncio.wait_for(out.close(), _LAST_WORDS_S)


class _Participant:
    """The life of one participant."""

    def __init__(
        self,
        channel: ReliableChannel,
        out: LineWriter,
        files: FileReceiver | None,
        folder: Path | None,
        *,
        payloads: bool,
    ) -> None:
        self._channel = channel
        self._out = out
        self._files = files
        self._folder = folder
        self._payloads = payloads
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(_MAX_UNDER_WAY)

    async def run(self, lines: LineReader, stopping: asyncio.Event) -> None:
        channel = self._channel
        stream = channel.events()
        await channel.start()
        _say(
            self._out,
            event="ready",
            sender_id=channel.sender_id,
            channel_id=channel.channel_id,
            content_topic=channel.content_topic,
            pid=os.getpid(),
        )
        reporting = asyncio.ensure_future(self._report(stream))
        ends = (asyncio.ensure_future(self._obey(lines)), asyncio.ensure_future(stopping.wait()))
        try:
            await asyncio.wait((reporting, *ends), return_when=asyncio.FIRST_COMPLETED)
            lines.close()
            ends[1].cancel()
            # The loop ends after its current command; no send begins after that.
            await asyncio.wait((ends[0],), timeout=_LAST_WORDS_S)
            if self._under_way:
                await asyncio.wait(self._under_way.values(), timeout=_LAST_WORDS_S)
            stream.close()
            await asyncio.wait((reporting,), timeout=_LAST_WORDS_S)
        finally:
            sending = list(self._under_way.values())
            for task in (reporting, *ends, *sending):
                task.cancel()
            results = await asyncio.gather(reporting, ends[0], *sending, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _report(self, stream: EventStream) -> None:
        """Print every event, and finish each message when its line is written."""
        async for event in stream:
            if isinstance(event, MessageReceived):
                await self._report_message(event)
                continue
            if isinstance(event, MessageEvent):
                await self._answered(event.request_id)
            self._out.put(as_line(event_as_json(event)))
            await self._out.room()

    async def _report_message(self, message: MessageReceived) -> None:
        told = event_as_json(message, with_payload=self._payloads)
        if self._folder is not None and self._files is not None:
            brought: Path | FileOutcome | None = await self._files.take(message)
            if brought is None:
                brought = await save_message(self._files, self._folder, message)
            told |= brought_as_json(brought)
        await self._out.written(self._out.put(as_line(told)))
        if not message.ephemeral:
            self._channel.finish(message)

    async def _answered(self, request_id: str) -> None:
        """Wait until the answer to a send is printed."""
        answering = self._under_way.get(request_id)
        if answering is not None:
            await asyncio.wait((answering,))

    async def _obey(self, lines: LineReader) -> None:
        """Carry out commands until a stop or the end."""
        async for line in lines:
            if isinstance(line, bytes) and not line.strip():
                continue
            try:
                if isinstance(line, TooLong):
                    raise ConfigurationError(
                        f"the line has more than {line.limit_bytes} bytes; send the payload as file"
                    )
                command = parse_command(line)
                if isinstance(command, StopCommand):
                    return
                if isinstance(command, SendEphemeralCommand):
                    await self._begin_sending(command)
                else:
                    told = as_json(self._channel.statistics())
                    _say(self._out, event="statistics", **told, tag=command.tag)
            except FairwayError as error:
                _say(self._out, **_error(error, None if isinstance(line, TooLong) else _tag_of(line)))

    async def _begin_sending(self, command: SendEphemeralCommand) -> None:
        """Start a send; it continues while further commands are read."""
        if command.file is not None:
            # Read before the task starts, so that sends keep the order of their commands.
            limit_bytes = self._channel.options.segmentation.max_message_size_bytes
            content = await asyncio.to_thread(read_payload, Path(command.file), limit_bytes)
        else:
            content = command.base64 if command.base64 is not None else (command.text or "").encode()
        await self._room.acquire()
        request_id = (command.request_id if isinstance(command, SendCommand) else None) or secrets.token_hex(_ID_BYTES)
        # Two sends with one request id run one after the other.
        await self._answered(request_id)
        task = asyncio.ensure_future(self._send(command, content, request_id))
        self._under_way[request_id] = task
        task.add_done_callback(lambda _: self._sent(request_id))

    def _sent(self, request_id: str) -> None:
        del self._under_way[request_id]
        self._room.release()

    async def _send(self, command: SendEphemeralCommand, payload: bytes, request_id: str) -> None:
        outcome = None
        try:
            if isinstance(command, SendCommand):
                receipt = await self._channel.send(payload, count=command.count, by=command.by, request_id=request_id)
                outcome = await _how_it_ended(receipt)
                ids = {"request_id": receipt.request_id, "message_id": receipt.message_id}
            else:
                ephemeral = await self._channel.send_ephemeral(payload)
                ids = {"request_id": ephemeral.request_id, "message_id": ephemeral.message_id}
        except FairwayError as error:
            _say(self._out, **_error(error, command.tag))
            return
        told = {
            **ids,
            **payload_as_json(payload),
            "ephemeral": not isinstance(command, SendCommand),
            "outcome": outcome,
        }
        _say(self._out, event="accepted", **told, tag=command.tag)


async def _how_it_ended(receipt: Receipt) -> Mapping[str, Any] | None:
    """Return the outcome of a request that has ended; None while it is open."""
    if not receipt.has_ended:
        return None
    try:
        acknowledgement = await receipt.delivered()
    except DeliveryFailedError as error:
        return {"delivered": False, "detail": str(error)}
    return {"delivered": True, "delivered_to": list(acknowledgement.delivered_to), "at_ms": acknowledgement.at_ms}


def _error(error: FairwayError, tag: Any = None) -> dict[str, Any]:
    return {"event": "error", "error": type(error).__name__, "detail": str(error), "tag": tag}


def _say(out: LineWriter, **told: Any) -> None:
    out.put(as_line(told))
