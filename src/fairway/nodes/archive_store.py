"""`ArchiveStore`: a message store in an archive file, which a nwaku node and the Spark pipeline can read.

A message is in the file at most `FLUSH_AFTER_S` after `put` while an event loop runs, and at the latest when the store
is closed. If the file cannot be written (a full disk), messages are lost and counted; the network goes on.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Final

from fairway.errors import FairwayError, StorageError, StoreQueryError
from fairway.nodes.message_store import PAGE_BYTES, MessageStore, Visible, page_size, unknown_cursor
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.storage.archive import ArchiveCursor, ArchivedMessage, PagedArchive, PageQuery
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage, encode_waku_message

FLUSH_AFTER_S: Final = 0.5
"""Longest time until a message is written."""

_FAULTS: Final = (FairwayError, sqlite3.Error, OSError)
"""Errors of reading or writing an archive file."""


class ArchiveStore(MessageStore):
    """A message store over an archive, which it closes."""

    def __init__(self, archive: NwakuArchive) -> None:
        self._archive = archive
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flush_planned: asyncio.TimerHandle | None = None
        self._failing = False

    def put(self, message: RoutedMessage, received_ns: int) -> bool:
        """Queue a message for the archive; raises `StorageError` while the archive cannot be written."""
        self._plan_flush()
        if self._failing:
            raise StorageError("the archive cannot be written now; the message is not kept")
        try:
            return self._archive.append(
                message.pubsub_topic, message.message, message.message_hash, received_ns=received_ns
            )
        except _FAULTS as error:
            self._failing = True
            raise StorageError(f"the archive cannot be written ({error}); the message may not be kept") from error

    def page(self, query: StoreQuery, cursor: bytes | None, visible: Visible) -> StorePage:
        """Return one page of the answer to a query; messages that are not visible are left out."""
        try:
            return page_of(self._archive, query, cursor, visible)
        except StoreQueryError:
            raise
        except _FAULTS as error:
            raise StoreQueryError(f"the archive cannot be read now ({error}); ask again") from error

    def close(self) -> None:
        """Write everything and close the archive."""
        if self._flush_planned is not None:
            self._flush_planned.cancel()
        try:
            self._archive.close()
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"the last messages could not be written to the archive: {error}") from error

    def _plan_flush(self) -> None:
        loop = asyncio.get_running_loop()
        # A flush that was scheduled in an ended event loop does not run.
        if self._flush_planned is None or self._loop is not loop:
            self._flush_planned, self._loop = loop.call_later(FLUSH_AFTER_S, self._flush), loop

    def _flush(self) -> None:
        self._flush_planned = None
        try:
            self._archive.flush()
        except _FAULTS:
            self._failing = True
            self._plan_flush()
        else:
            self._failing = False


def page_of(archive: PagedArchive, query: StoreQuery, cursor: bytes | None, visible: Visible) -> StorePage:
    """Return one page of the answer to a query; messages that are not visible are left out.

    Raises `StoreQueryError` for an unknown cursor, and the errors of reading the archive.
    """
    place = None if cursor is None else _place(archive, cursor)
    size = page_size(query)
    if query.message_hashes:
        rows = _found_by_hash(archive, query, place, size + 1)
    else:
        asked = PageQuery(
            start_ns=query.start_ns,
            end_ns=query.end_ns,
            beyond=place,
            newest_first=query.newest_first,
            pubsub_topic=query.pubsub_topic or None,
            content_topics=query.content_topics,
            rows=size + 1,
            page_bytes=PAGE_BYTES,
        )
        rows = archive.page(asked)
    more = len(rows) > size or sum(len(row.payload) for row in rows) >= PAGE_BYTES
    kept = rows[-size:] if query.newest_first else rows[:size]
    reached = kept[0 if query.newest_first else -1].message_hash if more else None
    return StorePage(messages=tuple(_routed(row) for row in kept if visible(row.message_hash)), cursor=reached)


def _found_by_hash(
    archive: PagedArchive, query: StoreQuery, beyond: ArchiveCursor | None, rows: int
) -> Sequence[ArchivedMessage]:
    """Return a page's worth, oldest first, and read no message that is not on it."""
    places: Sequence[ArchiveCursor] = archive.places(query.message_hashes)
    if beyond is not None:
        places = [place for place in places if (place < beyond if query.newest_first else place > beyond)]
    found: list[ArchivedMessage] = []
    size_bytes = 0
    for _, message_hash in (places[::-1] if query.newest_first else places)[:rows]:
        found += archive.find((message_hash,))
        size_bytes += len(found[-1].payload) if found else 0
        if size_bytes >= PAGE_BYTES:
            break
    return found[::-1] if query.newest_first else found


def _place(archive: PagedArchive, cursor: bytes) -> ArchiveCursor:
    for place in archive.places((cursor,)):
        return place
    raise unknown_cursor(cursor)


def _routed(row: ArchivedMessage) -> RoutedMessage:
    message = WakuMessage(
        payload=row.payload,
        content_topic=row.content_topic,
        version=row.version or None,
        timestamp_ns=row.timestamp_ns or None,
        meta=row.meta,
    )
    # The hash is that of the published message, which may have had no timestamp.
    return RoutedMessage(
        pubsub_topic=row.pubsub_topic,
        message=message,
        encoded=encode_waku_message(message),
        message_hash=row.message_hash,
    )
