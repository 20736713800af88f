"""`WebConversation`: one channel, as the pages of ``fairway chat --web`` show it.

A page shows items: the messages of the channel's history, in its order. A page that connects gets the newest items, and
then each item that is new or has changed. So all pages show the same, and a page that is loaded again loses nothing.

A received message is finished when the history has it, for then every page can show it. Names and texts come from
strangers: an item has them as visible text of a bounded length. The changes that wait for a slow page are bounded; if
some were dropped, the page gets the newest items anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

from fairway.bounded import BoundedDict
from fairway.channel.history import HistoryMessage
from fairway.channel.listeners import EventStream
from fairway.channel.receipt import Receipt
from fairway.channel.reliable_channel import ReliableChannel
from fairway.cli._notes import Notes
from fairway.cli.tail import MARKS, file_in
from fairway.cli.web_chat.uploads import MAX_FILE_BYTES, Uploads
from fairway.errors import ConfigurationError, MessageTooLargeError
from fairway.events import (
    ChannelStatus,
    Event,
    MemberArrived,
    MemberAway,
    MessageEvent,
    MessageReceived,
    NodeStatusChanged,
    OrderKey,
    RequestSent,
    StatusChanged,
)
from fairway.files.outcomes import FileArriving, FileReceived, FileRefused
from fairway.files.receiving import FileReceiver
from fairway.files.sending import is_file_request
from fairway.nodes.node import WakuNode
from fairway.subscription import Subscription
from fairway.units import NS_PER_MS
from fairway.visible import visible
from fairway.wire.envelope import Envelope, EnvelopeKind
from fairway.wire.file_message import FilePart, WholeFile

MAX_TEXT_CHARACTERS: Final = 65_536
"""Length of a sent text, and of the shown beginning of a received one."""
_ITEMS: Final = 40
"""Items that a page gets at once."""
_READ_AT_ONCE: Final = 20
"""Messages of the history in memory at once; the parts of a file have a megabyte each."""
_READS: Final = 25
"""Reads of the history at once; if most messages are parts of files, they give fewer items."""
_MAX_NAMED: Final = 20
"""Present members up to which all are asked for an acknowledgement of a text; of more, any one is enough."""
_KEPT: Final = 1_000
"""Receipts, ticks and outcomes of files in memory."""
_WAITING: Final = 10_000
"""Changes that wait for a slow page."""
_WAITING_BYTES: Final = 8_388_608
_ID_PREFIX: Final = "web/"
_MAX_ID_CHARACTERS: Final = 64

Item: TypeAlias = dict[str, Any]


class WebConversation:
    """The channel, for all pages."""

    def __init__(self, node: WakuNode, channel: ReliableChannel, receiver: FileReceiver, folder: Path) -> None:
        """``receiver`` saves received files; ``folder`` keeps the files that are being sent."""
        self.receiver: Final = receiver
        self.uploads: Final = Uploads(channel, folder, self._show_tick, self._show_trouble)
        self.receipts: Final[BoundedDict[str, Receipt]] = BoundedDict(_KEPT)
        """The receipts of own messages by request id: those that a page has shown or sent last."""
        self._node = node
        self._channel = channel
        self._notes = Notes(channel.sender_id)
        self._pages: list[Subscription[str]] = []
        self._ticks: BoundedDict[str, Item] = BoundedDict(_KEPT)
        """The ticks that the pages show, by key of the item."""
        self._incoming: BoundedDict[str, FileArriving | FileRefused] = BoundedDict(_KEPT)
        """The last outcome of a received file that is not saved, by key of the item."""
        for file in receiver.incomplete:
            self._incoming[_file_key(file.sender_id, file.message_id)] = file

    @contextmanager
    def page(self) -> Iterator[Subscription[str]]:
        """Yield the changes for a page, each as JSON."""
        changes: Subscription[str] = Subscription(max_items=_WAITING, size_of=len, max_bytes=_WAITING_BYTES)
        self._pages.append(changes)
        try:
            yield changes
        finally:
            self._pages.remove(changes)

    @property
    def pages(self) -> int:
        """The number of pages."""
        return len(self._pages)

    def close(self) -> None:
        """End all pages."""
        for page in self._pages:
            page.close()

    async def run(self, events: EventStream) -> None:
        """Show every event until the channel ends; raise its error if it fails."""
        async for event in events:
            if isinstance(event, MessageReceived):
                await self._receive(event)
            else:
                await self._show_event(event)

    async def state(self) -> str:
        """Return the first content of a page, as JSON."""
        names = {"channel": visible(self._channel.channel_id), "me": visible(self._channel.sender_id)}
        limits = {"max_characters": MAX_TEXT_CHARACTERS, "max_file_bytes": MAX_FILE_BYTES}
        newest = await self._newest(None)
        return change("state", **names, **limits, **self._status(), members=self._members(), **newest)

    async def earlier(self, before: str) -> str:
        """Return the items before a place, as JSON; raise `ConfigurationError` if no answer has named the place."""
        lamport, _, sds_id = before.partition("/")
        if not lamport.isdecimal():
            raise ConfigurationError(f"{before!r:.100} is no place of this channel; load the page again")
        return change("earlier", **await self._newest(OrderKey(int(lamport), sds_id)))

    async def send(self, request_id: str, text: str) -> None:
        """Send a text; the same id again is the same send. Raises what `ReliableChannel.send` raises."""
        if not request_id.startswith(_ID_PREFIX) or len(request_id) > _MAX_ID_CHARACTERS:
            raise ConfigurationError(f"{request_id!r:.100} is no request id of a page; load the page again")
        if len(text) > MAX_TEXT_CHARACTERS:
            raise MessageTooLargeError(len(text), MAX_TEXT_CHARACTERS, "send it as a file")
        present = [member.sender_id for member in self._channel.members() if member.is_present]
        # A send is followed until those that it names have the message.
        by = present if len(present) <= _MAX_NAMED else ()
        payload = text.encode("utf-8", "replace")
        self.receipts[request_id] = await self._channel.send(payload, by=by, request_id=request_id)
        await self._show_own(request_id)

    async def _receive(self, message: MessageReceived) -> None:
        outcome = await self.receiver.take(message)
        if outcome is not None:
            key = _file_key(outcome.sender_id, outcome.message_id)
            if isinstance(outcome, FileReceived):
                self._incoming.pop(key, None)
            else:
                self._incoming[key] = outcome
            self._tell("tick", key=key, tick=self._tick_of_received(key, outcome.sender_id, outcome.message_id))
        if message.order_key is None:
            content = _content(message.payload) or {}
            self._tell("note", text=f"{visible(message.sender_id)}: {content.get('text', 'an ephemeral message')}")
        elif item := self._item(message, message.order_key):
            self._tell("item", item=item)

    async def _show_event(self, event: Event) -> None:
        match event:
            case MessageEvent(request_id=request_id) if is_file_request(request_id) and not request_id.endswith("/0"):
                return  # a part of a file, whose first message shows the progress
            case RequestSent(request_id=request_id):
                await self._show_own(request_id)
            case MessageEvent(request_id=request_id):
                self._show_tick(request_id)
            case NodeStatusChanged() | StatusChanged():
                self._tell("status", **self._status())
            case MemberArrived(sender_id=name) | MemberAway(sender_id=name):
                self._tell("members", members=self._members())
                has_come = isinstance(event, MemberArrived)
                self._tell("note", text=f"{visible(name)} {'is here' if has_come else 'is away'}")
            case _:
                note = self._notes.of(event)
                if note is not None:
                    self._tell("note", text=note.text, style=note.style)

    async def _show_own(self, request_id: str) -> None:
        """Show an own message at its place, which changes when it is sent."""
        items = (await self._newest(None))["items"]
        for item in items:
            if item["key"] == request_id:
                self._tell("item", item=item)

    def _show_tick(self, request_id: str) -> None:
        tick = self._tick_of_own(request_id)
        if self._ticks.get(request_id) != tick:
            self._ticks[request_id] = tick
            self._tell("tick", key=request_id, tick=tick)

    def _show_trouble(self, text: str) -> None:
        self._tell("note", text=visible(text), style="red")

    def _tell(self, kind: str, **fields: Any) -> None:
        text = change(kind, **fields)
        for page in self._pages:
            page.put(text)

    def _members(self) -> list[Item]:
        return [
            {
                "name": visible(member.sender_id),
                "is_here": member.is_present,
                "at_ms": member.since_ms if member.is_present else member.last_heard_ms,
            }
            for member in self._channel.members()
        ]

    def _status(self) -> Item:
        status = self._node.status
        is_held_up = self._channel.status is ChannelStatus.SYNCING and bool(self._channel.gaps(1))
        return {"connected": status.connected, "detail": visible(status.detail), "held_up": is_held_up}

    async def _newest(self, before: OrderKey | None) -> Item:
        """Return the newest ``items`` before a place, oldest first, and the place ``before`` which there are more."""
        items: list[Item] = []
        for _ in range(_READS):
            messages = await self._channel.history(_READ_AT_ONCE, before=before)
            items[:0] = [item for each in messages if (item := self._item(each, each.order_key)) is not None]
            if len(messages) < _READ_AT_ONCE:
                return {"items": items, "before": None}
            before = messages[0].order_key
            if len(items) >= _ITEMS:
                break
        return {"items": items, "before": None if before is None else _place(before)}

    def _item(self, message: HistoryMessage | MessageReceived, order_key: OrderKey) -> Item | None:
        """Return a message for a page; None for a part of a file, a request or a reply."""
        content = _content(message.payload)
        if content is None:
            return None
        own = message.request_id if isinstance(message, HistoryMessage) else None
        place = _place(order_key)
        if own is not None:
            key, content["tick"] = own, self._tick_of_own(own)
        elif "file" in content:
            key = _file_key(message.sender_id, message.message_id)
            content["tick"] = self._tick_of_received(key, message.sender_id, message.message_id)
        else:
            key = place
        return content | {
            "key": key,
            "place": place,
            "sender": visible(message.sender_id),
            "is_own": own is not None,
            "at_ms": message.timestamp_ns // NS_PER_MS,
            "lacks_earlier": not message.dependencies_met,
        }

    def _tick_of_own(self, request_id: str) -> Item:
        """Return the state of a sent message: waiting, sent, acknowledged or failed."""
        upload = self.uploads.by_request_id.get(request_id)
        if upload is not None:
            progress, failure = upload.progress, upload.failure
            if progress is None:
                return {"state": "waiting"}
            is_sent = progress.segments_sent == progress.total_segments
            parts = {"done": progress.segments_acknowledged, "total": progress.total_segments}
            return {"state": "failed" if failure else "sent" if is_sent else "waiting", "note": failure, **parts}
        receipt = self._receipt(request_id)
        if receipt is None:
            return {"state": "unknown"}
        if is_file_request(request_id) and not self._channel.is_settled(request_id):
            return {"state": "failed", "note": "not all of it was sent; send the file again"}
        progress_of_text = receipt.progress
        sent, total = progress_of_text.chunks_sent, progress_of_text.total_chunks
        if progress_of_text.delivered_to or (receipt.has_ended and receipt.failure is None):
            return {"state": "acknowledged", "names": [visible(name) for name in progress_of_text.delivered_to]}
        if receipt.failure is not None:
            return {"state": "failed", "note": visible(str(receipt.failure))}
        return {"state": "sent" if total and set(range(total)).issubset(sent) else "waiting"}

    def _receipt(self, request_id: str) -> Receipt | None:
        """Return the receipt of a send; None if the store has removed it."""
        receipt = self.receipts.get(request_id)
        if receipt is None:
            try:
                receipt = self.receipts[request_id] = self._channel.receipt(request_id)
            except ConfigurationError:
                return None
        return receipt

    def _tick_of_received(self, key: str, sender_id: str, message_id: str) -> Item:
        """Return the state of a received file: saved, arriving or failed."""
        if self.receiver.path_of(sender_id, message_id) is not None:
            return {"state": "saved", "url": "file?" + urlencode({"sender": sender_id, "message": message_id})}
        match self._incoming.get(key):
            case FileArriving(parts_received=done, total_parts=total):
                return {"state": "arriving", "done": done, "total": total}
            case FileRefused(detail=detail):
                return {"state": "failed", "note": visible(detail)}
            case _:
                return {"state": "failed", "note": "it was not saved here"}


def _content(payload: bytes) -> Item | None:
    """Return the text, the file or the size of a payload; None if it is not for people."""
    file = file_in(payload)
    if isinstance(file, FilePart):
        return None
    if file is not None:
        size_bytes = len(file.content) if isinstance(file, WholeFile) else file.size_bytes
        return {"file": {"name": visible(file.name), "size_bytes": size_bytes}}
    envelope = Envelope.of(payload)
    if envelope.kind is not EnvelopeKind.MESSAGE:
        return None
    try:
        text = envelope.content.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return {"bytes": len(envelope.content)}
    return {"text": visible(text[:MAX_TEXT_CHARACTERS], keep=MARKS), "is_cut": len(text) > MAX_TEXT_CHARACTERS}


def _place(order_key: OrderKey) -> str:
    """Return a text that sorts as the key; a Lamport timestamp has 64 bits, more than a number of a script keeps."""
    return f"{order_key.lamport_timestamp:020}/{order_key.sds_id}"


def _file_key(sender_id: str, message_id: str) -> str:
    return f"file of {message_id} {sender_id}"


def change(kind: str, **fields: Any) -> str:
    """Return a change of a kind as JSON."""
    return json.dumps({"type": kind, **fields})
