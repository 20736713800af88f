"""`MemoryStore`: a store in memory, for channels whose state need not survive the process.

`submit` calls ``done`` before it returns. The object can be closed and opened again, and keeps its content.

Rows and the trace are many, so they are kept as plain tuples: the cyclic garbage collector of Python does not look at
those again and again.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from fairway.errors import StorageError, StoreLockedError, StoreMismatchError
from fairway.events import MessageReceived
from fairway.protocol.effects import Change
from fairway.protocol.journal import Row
from fairway.storage.channel_store import (
    NUMBERS_PER_OPENING,
    ChannelStore,
    Handling,
    SendOutcome,
    Stored,
    StoredRequest,
    TracePoint,
    Write,
    check_bounds,
)
from fairway.storage.records import PlainPoint, plain_point, read_plain_point

KEPT_REQUESTS: Final = 10_000
"""Default number of ended requests; a tenth of what a store on a disk keeps, since each takes some 700 bytes."""
KEPT_TRACE_POINTS: Final = 20_000
"""Default number of trace points; a tenth as well, at some 400 bytes each."""


class MemoryStore(ChannelStore):
    """Keeps the state of a channel for the lifetime of this object."""

    def __init__(self, *, kept_requests: int = KEPT_REQUESTS, kept_trace_points: int = KEPT_TRACE_POINTS) -> None:
        """Make an empty store with bounds on ended requests and trace points."""
        check_bounds(kept_requests=kept_requests, kept_trace_points=kept_trace_points)
        self._owner: tuple[str, str, str] | None = None
        self._is_open = False
        self._tables: defaultdict[str, dict[str, Row]] = defaultdict(dict)
        self._inbox: dict[int, MessageReceived] = {}
        self._handling: dict[int, Handling] = {}
        self._openings = 0
        self._requests: dict[str, StoredRequest] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._kept_requests = kept_requests
        self._trace: deque[PlainPoint] = deque(maxlen=kept_trace_points)

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

    def submit(self, write: Write, done: Callable[[StorageError | None], None]) -> None:
        """Keep a write, and call ``done`` at once."""
        if not self._is_open:
            done(StorageError("this memory store is not open: open it before writing to it"))
            return
        try:
            points = [plain_point(point) for point in write.trace]
        except StorageError as error:
            done(error)
            return
        tables = self._tables
        for table, key, row in write.changes:
            if row is None:
                tables[table].pop(key, None)
            else:
                tables[table][key] = row
        self._inbox.update(write.delivered)
        for handling in write.handling:
            self._handling[handling.number] = handling
        for number in write.finished:
            self._inbox.pop(number, None)
            self._handling.pop(number, None)
        for request in write.requests:
            self._keep_request(request)
        self._trace += points
        done(None)

    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request, or None if it is unknown."""
        return self._requests.get(request_id)

    def message(self, number: int) -> MessageReceived | None:
        """Return a message of the inbox."""
        return self._inbox.get(number)

    def trace(self, identifier: str) -> list[TracePoint]:
        """Return the trace of a message."""
        wanted = identifier.encode()
        points = (read_plain_point(plain) for plain in self._trace if wanted in plain[-1])
        return [point for point in points if point.names(identifier)]

    def close(self) -> None:
        """Close the store; it keeps its content for the next `open`."""
        self._is_open = False

    def _keep_request(self, request: StoredRequest) -> None:
        self._requests[request.request_id] = request
        if request.outcome is SendOutcome.OPEN:
            self._ended.pop(request.request_id, None)
            return
        self._ended[request.request_id] = None
        if len(self._ended) > self._kept_requests:
            oldest, _ = self._ended.popitem(last=False)
            del self._requests[oldest]
