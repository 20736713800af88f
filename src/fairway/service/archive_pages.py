"""`page_of`: one page of the answer to a store query, from an archive in a file or a database."""

from __future__ import annotations

from collections.abc import Sequence

from fairway.nodes.message_store import PAGE_BYTES, page_size, unknown_cursor
from fairway.nodes.node import RoutedMessage, StorePage, StoreQuery
from fairway.storage.archive import ArchiveCursor, ArchivedMessage, PagedArchive, PageQuery
from fairway.wire.waku_message import WakuMessage, encode_waku_message


def page_of(archive: PagedArchive, query: StoreQuery, cursor: bytes | None) -> StorePage:
    """Return one page of the answer to a query.

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
    return StorePage(messages=tuple(map(_routed, kept)), cursor=reached)


def _found_by_hash(
    archive: PagedArchive, query: StoreQuery, beyond: ArchiveCursor | None, rows: int
) -> Sequence[ArchivedMessage]:
    """Return the messages of one page, oldest first, and read no others."""
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
