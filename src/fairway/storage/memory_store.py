"""`MemoryStore`: a store in memory, for channels whose state need not survive the process.

`submit` calls ``done`` before it returns. The object can be closed and opened again, and keeps its content. The rows of
the protocol's state are made when the store is opened again (`MemoryStore.follow`). The store keeps no trace.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final

from fairway.errors import StorageError, StoreLockedError, StoreMismatchError
from fairway.events import MessageReceived, OrderKey
from fairway.protocol.effects import Change
from fairway.protocol.journal import Row
from fairway.storage.channel_store import (
    NUMBERS_PER_OPENING,
    Bounds,
    ChannelStore,
    Handling,
    HistoryPage,
    OwnMessage,
    SendOutcome,
    Stored,
    StoredRequest,
    Write,
    placement_of,
)

KEPT_REQUESTS: Final = 10_000
"""Ended requests; a tenth of the number on a disk, because each takes some 700 bytes."""
KEPT_MESSAGES: Final = 1_000
"""Default number of messages; a tenth as well."""
KEPT_MESSAGE_BYTES: Final = 8_388_608
"""Default size of their payloads."""


class MemoryStore(ChannelStore):
    """Keeps the state of a channel for the lifetime of this object."""

    def __init__(self, *, kept_messages: int = KEPT_MESSAGES, kept_message_bytes: int = KEPT_MESSAGE_BYTES) -> None:
        """Make an empty store with the bounds of `SqliteStore`."""
        self._bounds = Bounds(kept_messages, kept_message_bytes).check()
        self._owner: tuple[str, str, str] | None = None
        self._is_open = False
        self._tables: defaultdict[str, dict[str, Row]] = defaultdict(dict)
        self._snapshot: Callable[[], tuple[Change, ...]] | None = None
        """Returns the rows of the state; None until a channel gives it."""
        self._inbox: dict[int, MessageReceived] = {}
        self._messages: dict[int, MessageReceived | OwnMessage] = {}
        self._message_bytes = 0
        self._new_messages = self._new_message_bytes = 0
        """New messages, and their bytes, since the last removal of old ones."""
        self._places: list[tuple[int, str, int]] = []
        """Lamport timestamp, SDS id and number of each message, in the order of the channel."""
        self._removed = 0
        """Places that were removed with their messages."""
        self._lock = Lock()
        """Held while messages are changed or read."""
        self._handling: dict[int, Handling] = {}
        self._openings = 0
        self._requests: dict[str, StoredRequest] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed"
        rows = sum(map(len, self._tables.values()))
        return f"<MemoryStore {state}, {rows} rows, {len(self._inbox)} in the inbox>"

    def open(self, channel_id: str, sender_id: str, content_topic: str) -> Stored:
        """Return the stored state."""
        owner = (channel_id, sender_id, content_topic)
        if self._is_open:
            raise StoreLockedError("this memory store is open already: close its channel first, or give each its own")
        if self._owner not in {None, owner}:
            raise StoreMismatchError(
                f"this memory store belongs to (channel, sender, content topic) {self._owner}, not {owner}: "
                "give each channel and sender a store of its own"
            )
        self._owner, self._is_open = owner, True
        if self._snapshot is not None:
            self._keep_rows(self._snapshot())
            self._snapshot = None
        self._openings += 1
        handling = tuple(self._handling[number] for number in sorted(self._handling))
        aside = {each.number for each in handling if each.set_aside is not None}
        return Stored(
            changes=tuple(Change(table, key, row) for table, rows in self._tables.items() for key, row in rows.items()),
            inbox=tuple(
                (number, replace(self._inbox[number], redelivered=True))
                for number in sorted(self._inbox.keys() - aside)
            ),
            handling=handling,
            first_number=self._openings * NUMBERS_PER_OPENING,
        )

    def follow(self, snapshot: Callable[[], tuple[Change, ...]]) -> bool:
        """Keep ``snapshot`` for the next `open`, in place of the rows."""
        self._tables.clear()
        self._snapshot = snapshot
        return True

    def submit(self, write: Write, done: Callable[[StorageError | None], None], *, hurry: bool = True) -> None:
        """Keep a write, and call ``done`` at once."""
        del hurry
        if not self._is_open:
            done(StorageError("this memory store is not open: open it before writing to it"))
            return
        if write.changes:
            self._keep_rows(write.changes)
        self._inbox.update(write.delivered)
        if write.delivered or write.sent or write.placed:
            with self._lock:
                self._keep_messages(write)
        for handling in write.handling:
            self._handling[handling.number] = handling
        for number in write.finished:
            self._inbox.pop(number, None)
            self._handling.pop(number, None)
        for request in write.requests:
            self._keep_request(request)
        done(None)

    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request, or None if it is unknown."""
        return self._requests.get(request_id)

    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox."""
        return self._inbox.get(number)

    def history(self, before: OrderKey | None, limit: int) -> HistoryPage:
        """Return the last messages before a key."""
        with self._lock:
            places = self._places
            end = len(places) if before is None else bisect_left(places, before)
            first = max(0, end - limit)
            found = tuple(
                (OrderKey(lamport, sds_id), self._messages[number]) for lamport, sds_id, number in places[first:end]
            )
            return HistoryPage(self._removed + first, found)

    def close(self) -> None:
        """Close the store; it keeps its content for the next `open`."""
        self._is_open = False

    def _keep_rows(self, changes: tuple[Change, ...]) -> None:
        tables = self._tables
        for table, key, row in changes:
            if row is None:
                tables[table].pop(key, None)
            else:
                tables[table][key] = row

    def _keep_messages(self, write: Write) -> None:
        for number, message in write.delivered:
            self._keep_message(number, message)
            insort(self._places, (*placement_of(number, message).order_key, number))
        for number, own in write.sent:
            self._keep_message(number, own)
        for number, _, key, earlier in write.placed:
            if earlier is not None and (*earlier, number) in self._places:
                self._places.remove((*earlier, number))
            if number in self._messages:
                insort(self._places, (*key, number))
        if self._bounds.is_time_to_remove(self._new_messages, self._new_message_bytes):
            self._new_messages = self._new_message_bytes = 0
            self._forget_messages()

    def _keep_message(self, number: int, message: MessageReceived | OwnMessage) -> None:
        earlier = self._messages.get(number)
        self._messages[number] = message
        size_bytes = len(message.payload)
        self._message_bytes += size_bytes - (0 if earlier is None else len(earlier.payload))
        self._new_messages += 1
        self._new_message_bytes += size_bytes

    def _forget_messages(self) -> None:
        """Remove the first messages of the channel, except those in the inbox."""
        kept: list[tuple[int, str, int]] = []
        count, looked_at = len(self._places), 0
        for place in self._places:
            if not self._bounds.are_exceeded(count, self._message_bytes):
                break
            looked_at += 1
            number = place[-1]
            if number in self._inbox:
                kept.append(place)
            else:
                self._message_bytes -= len(self._messages.pop(number).payload)
                count -= 1
        self._removed += looked_at - len(kept)
        self._places[:looked_at] = kept

    def _keep_request(self, request: StoredRequest) -> None:
        self._requests[request.request_id] = request
        if request.outcome is SendOutcome.OPEN:
            self._ended.pop(request.request_id, None)
            return
        self._ended[request.request_id] = None
        if len(self._ended) > KEPT_REQUESTS:
            oldest, _ = self._ended.popitem(last=False)
            del self._requests[oldest]
