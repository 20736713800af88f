"""`StoreNodeArchive`: a store node as an archive, read page by page with `fairway.nodes.rest.RestStoreClient`.

Invariant: only the timestamp and hash of a message decide its slice, for any order and range of the node's answers. So
slices neither miss nor repeat a message of the node. A node does not report the number of its messages: slices have
equal lengths of time up to the present, and messages dated in the future are one more slice.

A query covers at most 24 hours, and less if the node refuses that (`fairway.protocol.query_windows`). Before a longer
range, and after a window without messages, a query without an end requests one message. The next window begins at this
message, so that years without messages need only one query. If this message has no timestamp, one query requests the
whole rest; nodes that keep such messages allow it.

The query of a URI may bound the requests (`REQUEST_OPTIONS`), as in ``http://127.0.0.1:8645?pageSize=20``. Each slice
requests one page after the other, so the number of slices bounds the concurrent requests.

A query without an answer is repeated for about half a minute; each pause is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qs

from fairway.errors import ConfigurationError, NodeUnavailableError, StoreRefusedError
from fairway.nodes.message_store import MAX_PAGE_SIZE
from fairway.nodes.node import StoreQuery
from fairway.nodes.rest import RestStoreClient, StoreAnswer, StoreEntry
from fairway.nodes.rest.store_client import DEFAULT_ATTEMPTS, TIMEOUT_S
from fairway.nodes.rest.store_messages import timestamp_of
from fairway.protocol.query_windows import WindowLength
from fairway.storage.archive import (
    DEFAULT_PAGE_BYTES,
    DEFAULT_PAGE_ROWS,
    LARGEST_HASH,
    MAX_TIMESTAMP_NS,
    MIN_TIMESTAMP_NS,
    ArchiveCursor,
    ArchivedMessage,
    ArchiveSlice,
    ReadableArchive,
    time_slice,
)
from fairway.units import MS_PER_S

REQUEST_OPTIONS: Final = {
    "pageSize": range(1, MAX_PAGE_SIZE + 1),
    "requestTimeoutMs": range(1, 86_400_001),
    "maxConcurrentRequests": range(1, 10_001),
}
"""The options of requests, with their values: messages of a page, the longest wait for an answer in milliseconds, and
the concurrent requests of one read."""
_NODE_OPTIONS: Final = frozenset({"peerAddr", "tokenFile"})
"""Other names in the query of a URI (`fairway.nodes.rest.address`)."""
_NO_ANSWER: Final = StoreAnswer(entries=())
_PROBE: Final = 10
"""Messages requested to find the last one; several may have its timestamp."""
_LOG: Final = logging.getLogger(__name__)


class StoreNodeArchive(ReadableArchive):
    """A context manager over one node; reading the first page raises the errors of `RestStoreClient`."""

    def __init__(
        self,
        address: str,
        *,
        client: RestStoreClient | None = None,
        now_ns: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        requests = request_options(address)
        timeout_s = requests.get("requestTimeoutMs", TIMEOUT_S * MS_PER_S) / MS_PER_S
        self._client = client or RestStoreClient(address, pause=self._pause, timeout_s=timeout_s)
        self.name: Final = self._client.name
        self._page_size = requests.get("pageSize", MAX_PAGE_SIZE)
        self._most_slices = requests.get("maxConcurrentRequests")
        self._now_ns = now_ns
        self._sleep = sleep
        self._failed = 0
        """Failed attempts at the current page."""

    def __repr__(self) -> str:
        """Show the node, without credentials."""
        return f"<StoreNodeArchive {self.name}>"

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def estimate(self, part: ArchiveSlice) -> int | None:  # noqa: ARG002 - a node does not tell
        """Return None."""
        return None

    def slices(self, count: int, part: ArchiveSlice | None = None) -> tuple[ArchiveSlice, ...]:
        """Split a slice into at most ``count`` slices with equal lengths of time, one for each concurrent request."""
        part = part or time_slice()
        first, last = self.nth(1, part), self.last(part)
        if first is None or last is None:
            return ()
        now_ns = self._now_ns()
        end_ns = min(last.timestamp_ns, max(now_ns, first.timestamp_ns))
        count = count if self._most_slices is None else min(count, self._most_slices)
        late = int(last.timestamp_ns > end_ns and count > 1)
        steps = max(1, count - late)
        span = end_ns - first.timestamp_ns + 1
        bounds = {first.timestamp_ns + span * number // steps - 1 for number in range(1, steps + late)}
        places = [ArchiveCursor(bound, LARGEST_HASH) for bound in sorted(bounds) if bound >= first.timestamp_ns]
        parts: list[ArchiveSlice] = []
        rest = part
        for place in places:
            if rest.after < place < part.through:
                parts.append(ArchiveSlice(rest.after, place))
                rest = ArchiveSlice(place, part.through)
        return (*parts, rest)

    def pages(
        self,
        part: ArchiveSlice | None = None,
        *,
        pubsub_topic: str | None = None,
        content_topics: Collection[str] = (),
        page_rows: int = DEFAULT_PAGE_ROWS,
        page_bytes: int = DEFAULT_PAGE_BYTES,
    ) -> Iterator[tuple[ArchivedMessage, ...]]:
        """Yield pages of about ``page_rows`` messages, each ended early once it holds ``page_bytes``."""
        page: list[ArchivedMessage] = []
        size = 0
        for answer in self._answers(part or time_slice(), pubsub_topic or "", tuple(content_topics)):
            wanted = part or time_slice()
            entries = tuple(entry for entry in answer.entries if wanted.holds(_place(entry)))
            found = list(answered_messages(replace(answer, entries=entries), (), wanted.through.timestamp_ns))
            page += found
            size += sum(len(message.payload) for message in found)
            if len(page) >= page_rows or size >= page_bytes:
                yield tuple(page)
                page, size = [], 0
        if page:
            yield tuple(page)

    def nth(self, number: int, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after message ``number`` (1 for the first) of a slice; None if it has fewer.

        It reads the messages, because nodes return no timestamps without them.
        """
        places: list[ArchiveCursor] = []
        for answer in self._answers(part, "", ()):
            places += [place for entry in answer.entries if part.holds(place := _place(entry))]
            if len(places) >= number:
                return sorted(places)[number - 1]
        return None

    def last(self, part: ArchiveSlice) -> ArchiveCursor | None:
        """Return the position after the last message of a slice; None if it is empty."""
        if _first_ns(part) > part.through.timestamp_ns:
            return None
        # Without a start of the range: with both bounds the node may refuse the range for its length.
        query = StoreQuery(
            start_ns=MIN_TIMESTAMP_NS,
            end_ns=part.through.timestamp_ns + 1,
            newest_first=True,
            page_size=min(_PROBE, self._page_size),
        )
        for answer in self._pages(query):
            places = [_place(entry) for entry in answer.entries]
            if held := [place for place in places if part.holds(place)]:
                return max(held)
            if places and min(places) <= part.after:
                return None
        return None

    def _answers(self, part: ArchiveSlice, pubsub_topic: str, content_topics: tuple[str, ...]) -> Iterator[StoreAnswer]:
        """Yield all pages of a slice, oldest first, window by window."""
        query = StoreQuery(pubsub_topic=pubsub_topic, content_topics=content_topics, page_size=self._page_size)
        window = WindowLength()
        at_ns, end_ns = _first_ns(part), part.through.timestamp_ns + 1
        is_dated = True
        if end_ns - at_ns > window.ns:
            at_ns, is_dated = self._next(query, at_ns, end_ns)
        while at_ns < end_ns:
            until_ns = min(at_ns + window.ns, end_ns) if is_dated else end_ns
            count = 0
            try:
                for answer in self._pages(replace(query, start_ns=at_ns, end_ns=until_ns)):
                    count += len(answer.entries) + len(answer.undecodable)
                    yield answer
            except StoreRefusedError:
                # After a first page, the length of the range is not the reason of a refusal.
                if count or not window.refused(until_ns - at_ns):
                    raise
                continue
            window.was_read()
            at_ns = until_ns
            if not count and at_ns < end_ns:
                at_ns, is_dated = self._next(query, at_ns, end_ns)

    def _next(self, query: StoreQuery, start_ns: int, end_ns: int) -> tuple[int, bool]:
        """Return the time of the first message from ``start_ns`` on, and whether it is known; ``end_ns`` if none."""
        for answer in self._pages(replace(query, start_ns=start_ns, end_ns=MAX_TIMESTAMP_NS + 1, page_size=1)):
            times_ns = [entry.message.timestamp_ns for entry in answer.entries]
            times_ns += [timestamp_of(raw) for raw in answer.undecodable]
            if times_ns:
                dated_ns = [at_ns for at_ns in times_ns if at_ns]
                is_dated = len(dated_ns) == len(times_ns)
                return (max(start_ns, min(dated_ns)), True) if is_dated else (start_ns, False)
        return end_ns, True

    def _pages(self, query: StoreQuery) -> Iterator[StoreAnswer]:
        try:
            for answer in self._client.pages(query):
                self._failed = 0
                yield answer
        except NodeUnavailableError as error:
            raise NodeUnavailableError(f"{error}; see that the node runs, and that its REST API is there") from error

    def _pause(self, seconds: float) -> None:
        self._failed += 1
        attempt = f"attempt {self._failed + 1} of {DEFAULT_ATTEMPTS}"
        _LOG.warning("%s gave no page of messages: %s in %g s", self._client.name, attempt, seconds)
        self._sleep(seconds)


def request_options(uri: str) -> dict[str, int]:
    """Return the options of requests in the query of a node's URI; raise `ConfigurationError` for any other option."""
    found: dict[str, int] = {}
    for name, values in parse_qs(uri.partition("?")[2], keep_blank_values=True).items():
        if name in _NODE_OPTIONS:
            continue
        if name not in REQUEST_OPTIONS:
            known = ", ".join(sorted((*REQUEST_OPTIONS, *_NODE_OPTIONS)))
            raise ConfigurationError(f"the URI of a node has no option {name}; it has {known}")
        allowed, text = REQUEST_OPTIONS[name], values[-1]
        if not text.isdecimal() or int(text) not in allowed:
            raise ConfigurationError(f"option {name} is a whole number from 1 to {allowed[-1]:,}, not {text!r}")
        found[name] = int(text)
    return found


def answered_messages(
    answer: StoreAnswer = _NO_ANSWER, undecodable: Sequence[bytes] = (), timestamp_ns: int = 0
) -> Iterator[ArchivedMessage]:
    """Yield the messages of an answer, then undecodable bytes as messages, so that no row is lost silently.

    Undecodable bytes get the timestamp of the last message, or ``timestamp_ns`` if there is none.
    """
    for entry in answer.entries:
        yield _message(entry)
        timestamp_ns = entry.message.timestamp_ns or 0
    for raw in (*answer.undecodable, *undecodable):
        yield ArchivedMessage(
            message_hash=sha256(raw).digest(),
            pubsub_topic="",
            content_topic="",
            payload=raw,
            version=0,
            timestamp_ns=timestamp_ns,
            meta=None,
        )


def _first_ns(part: ArchiveSlice) -> int:
    """Return the first timestamp that a slice can have."""
    return part.after.timestamp_ns + (part.after.message_hash == LARGEST_HASH)


def _place(entry: StoreEntry) -> ArchiveCursor:
    return ArchiveCursor(entry.message.timestamp_ns or 0, entry.message_hash)


def _message(entry: StoreEntry) -> ArchivedMessage:
    message = entry.message
    return ArchivedMessage(
        message_hash=entry.message_hash,
        pubsub_topic=entry.pubsub_topic,
        content_topic=message.content_topic,
        payload=message.payload,
        version=message.version or 0,
        timestamp_ns=message.timestamp_ns or 0,
        meta=message.meta,
        rate_limit_proof=message.rate_limit_proof or None,
    )
