"""`send_file`: sends a file of any size, and continues after a crash.

The request id of each message is derived from the file and the message's number. By this id the channel finds the
messages that it accepted, and the acknowledged ones, in this run or an earlier one. A repeated send therefore continues
without the acknowledged messages. After `send_file` has returned, the next call sends the file as a new one
(`repetition`). A message whose send failed gets another attempt.

At most `PARTS_UNDER_WAY` parts are in flight: the next part is read when one is acknowledged. With `Wait.SENT` and
`Wait.NONE` the channel keeps all unacknowledged messages of the file, in memory and in its store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, Final

from fairway.channel.receipt import Acknowledgement, Progress, Receipt
from fairway.channel.reliable_channel import ReliableChannel
from fairway.errors import ConfigurationError, DeliveryFailedError, copy_of
from fairway.files.outgoing_file import OutgoingFile
from fairway.foreign_code import ForeignCode
from fairway.protocol.outgoing.request import wanted_names
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.type_checks import check_callback, check_type

PARTS_UNDER_WAY: Final = 8
"""Unacknowledged messages of a file; a default part has 1 MB, and several copies are in memory."""


_OF_FILES: Final = "file/"


def is_file_request(request_id: str) -> bool:
    """Return whether `send_file` made the request."""
    return request_id.startswith(_OF_FILES)


class Wait(Enum):
    """How long to wait for a send."""

    NONE = "none"
    """Until it is durable in the store."""
    SENT = "sent"
    """Until the network has accepted all of it."""
    DELIVERED = "delivered"
    """Until it is acknowledged as requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProgress:
    """The progress of a file in data segments and in messages."""

    request_id: str
    """Of the first message: the whole file or its manifest."""
    message_id: str
    """Of the first message."""
    name: str
    """The name that receivers see."""
    size_bytes: int
    """Of the file."""
    total_messages: int
    """1, or the manifest and every part."""
    resumed_messages: int
    """Messages that were acknowledged before this call, and are not sent again."""
    messages_acknowledged: int
    """Messages acknowledged as requested, in this run and earlier ones."""
    total_segments: int
    """Data segments of all messages."""
    segments_sent: int
    """Segments that the network accepted or that were acknowledged."""
    segments_acknowledged: int
    """Acknowledged segments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDelivery:
    """The result of `send_file`."""

    request_id: str
    """Of the first message: the whole file or its manifest."""
    message_id: str
    """Of the first message."""
    name: str
    """The name that receivers see."""
    size_bytes: int
    """Of the file."""
    total_messages: int
    """1, or the manifest and every part."""
    resumed_messages: int
    """Messages that were acknowledged before this call, and are not sent again."""
    delivered_to: tuple[str, ...]
    """Participants that acknowledged every message; empty unless ``wait`` is `Wait.DELIVERED`."""


async def send_file(
    channel: ReliableChannel,
    path: str | PathLike[str],
    *,
    name: str | None = None,
    media_type: str | None = None,
    count: int = 1,
    by: Iterable[str] = (),
    wait: Wait = Wait.DELIVERED,
    progress: Callable[[FileProgress], None] | None = None,
) -> FileDelivery:
    """Send a file with its name and media type, and wait for its messages as ``wait`` defines.

    The default ``name`` is the file's name, and the default ``media_type`` follows from the name. ``count`` and ``by``
    are passed to `ReliableChannel.send` for each message. ``progress`` is called on the event loop at each change.

    A file that does not fit one message is sent in parts. After a crash, call it again with the same file and the same
    store: acknowledged messages are not sent again. An acknowledgement means that a participant has the messages, not
    that it has saved the file. With `Wait.SENT` and `Wait.NONE` parts do not wait for the acknowledgement of earlier
    ones, and the channel holds all of them until they are acknowledged.

    Raises `ConfigurationError` for an unreadable file or a name that receivers refuse. Raises `MessageTooLargeError`
    beyond some 30 GB with the default options. Raises `FileChangedError` if the file changes during the send, and
    `DeliveryFailedError` if a message was not acknowledged as requested. Other errors are those of `send`.
    """
    check_type("channel", channel, ReliableChannel)
    check_type("path", path, str | PathLike)
    check_type("name", name, str | None)
    check_type("media_type", media_type, str | None)
    check_type("wait", wait, Wait)
    if progress is not None:
        check_callback("progress", progress, "a FileProgress")
    names = wanted_names(count, by, channel.sender_id)
    options = channel.options
    segmenter = Segmenter(options.segmentation, options.segment_format)
    # Parts end where a segment ends, so no segment is nearly empty.
    full = segmenter.limit_bytes // segmenter.segment_payload_bytes * segmenter.segment_payload_bytes
    file = await asyncio.to_thread(
        OutgoingFile.read, Path(path), name=name, media_type=media_type, payload_bytes=full or segmenter.limit_bytes
    )
    return await _FileSending(channel, file, count, names, segmenter, progress).run(wait)


class _FileSending:
    """One call of `send_file`."""

    def __init__(
        self,
        channel: ReliableChannel,
        file: OutgoingFile,
        count: int,
        by: frozenset[str],
        segmenter: Segmenter,
        tell: Callable[[FileProgress], None] | None,
    ) -> None:
        self._channel = channel
        self._file = file
        self._count = count
        self._by = by
        self._tell = tell
        self._segments = [-(-file.payload_bytes(n) // segmenter.segment_payload_bytes) for n in range(file.messages)]
        self._sent = [0] * file.messages
        self._acknowledged = [0] * file.messages
        self._delivered: dict[int, Acknowledgement] = {}
        self._message_id = ""
        self._resumed = 0
        self._shown: FileProgress | None = None

    async def run(self, wait: Wait) -> FileDelivery:
        """Send the messages that are not acknowledged, and wait."""
        await self._resume()
        self._resumed = len(self._delivered)
        self._show()
        await self._send_all(wait)
        await self._channel.settle(self._request_id(0))
        holders = [set(one.delivered_to) for one in self._delivered.values()]
        return FileDelivery(
            request_id=self._request_id(0),
            message_id=self._message_id,
            name=self._file.name,
            size_bytes=self._file.size_bytes,
            total_messages=self._file.messages,
            resumed_messages=self._resumed,
            delivered_to=tuple(sorted(set.intersection(*holders))) if holders else (),
        )

    async def _resume(self) -> None:
        """Find the unfinished send of this file, and its messages that are acknowledged as requested.

        All messages may be acknowledged, because a channel with the same store continues to send them.
        """
        file, repetition = self._file, 0
        while True:
            self._file = file.repeated(repetition)
            self._message_id = self._channel.get_message_id(await asyncio.to_thread(self._file.payload, 0))
            self._delivered = {}
            for number in range(file.messages):
                known = self._known(number)
                if known is None:
                    continue
                if known.has_ended and not known.lacks(self._count, self._by):
                    self._note_delivered(number, await known.delivered())
                else:
                    self._note(number, known.progress)
            if len(self._delivered) < file.messages or not self._channel.is_settled(self._request_id(0)):
                return
            repetition += 1
            self._sent, self._acknowledged = [0] * file.messages, [0] * file.messages

    def _known(self, number: int) -> Receipt | None:
        """Return the receipt of a message that was sent before; None if it was not."""
        try:
            return self._channel.receipt(self._request_id(number))
        except ConfigurationError:
            return None

    def _request_id(self, number: int) -> str:
        return f"{_OF_FILES}{self._message_id}/{number}"

    async def _send_all(self, wait: Wait) -> None:
        slots = asyncio.Semaphore(PARTS_UNDER_WAY)
        numbers = [number for number in range(self._file.messages) if number not in self._delivered]
        try:
            async with asyncio.TaskGroup() as following:
                for number in numbers:
                    await slots.acquire()
                    receipt = await self._accept(number)
                    task = following.create_task(self._follow(number, receipt, wait))
                    task.add_done_callback(lambda _: slots.release())
        except BaseExceptionGroup as failures:
            # The first failure cancelled the others.
            raise failures.exceptions[0] from None

    async def _accept(self, number: int) -> Receipt:
        """Send a message; the channel recognises one that was sent before."""
        payload = await asyncio.to_thread(self._file.payload, number)
        return await self._channel.send(payload, count=self._count, by=self._by, request_id=self._request_id(number))

    async def _follow(self, number: int, receipt: Receipt, wait: Wait) -> None:
        """Wait until a message is sent or delivered as requested, and report its progress."""
        try:
            if wait is Wait.SENT:
                await self._shown_until(receipt.sent(), number, receipt)
            elif wait is Wait.DELIVERED:
                await self._show_updates(number, receipt)
                self._note_delivered(number, await receipt.delivered())
        except DeliveryFailedError as error:
            failed = copy_of(error)
            which = f"message {number + 1} of {self._file.messages} of {self._file.name}"
            failed.args = (f"{which}: {error}; send the file again to continue with the rest",)
            raise failed from error
        self._show()

    async def _shown_until(self, end: Coroutine[Any, Any, None], number: int, receipt: Receipt) -> None:
        showing = asyncio.ensure_future(self._show_updates(number, receipt))
        try:
            await end
        finally:
            showing.cancel()
            await asyncio.wait([showing])
        if not showing.cancelled():
            showing.result()
        self._note(number, receipt.progress)

    async def _show_updates(self, number: int, receipt: Receipt) -> None:
        async for progress in receipt.updates():
            self._note(number, progress)
            self._show()

    def _note(self, number: int, progress: Progress) -> None:
        sent = {index for index in progress.chunks_sent if index < progress.total_chunks}
        self._sent[number] = len(sent.union(progress.chunks_acknowledged))
        self._acknowledged[number] = len(progress.chunks_acknowledged)

    def _note_delivered(self, number: int, acknowledgement: Acknowledgement) -> None:
        self._delivered[number] = acknowledgement
        self._sent[number] = self._acknowledged[number] = self._segments[number]

    def _show(self) -> None:
        progress = FileProgress(
            request_id=self._request_id(0),
            message_id=self._message_id,
            name=self._file.name,
            size_bytes=self._file.size_bytes,
            total_messages=self._file.messages,
            resumed_messages=self._resumed,
            messages_acknowledged=len(self._delivered),
            total_segments=sum(self._segments),
            segments_sent=sum(self._sent),
            segments_acknowledged=sum(self._acknowledged),
        )
        if self._tell is not None and progress != self._shown:
            self._shown = progress
            with ForeignCode("progress"):
                self._tell(progress)
