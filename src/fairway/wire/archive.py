"""Message archives as files: the ``WakuMessageArchive`` of LIP-76 and the index over them.

A ``data`` file is a sequence of archives, each padded to a whole number of BitTorrent pieces. An ``index`` file has the
position and the time of each archive. Invariant: messages are decoded one by one, so memory is bounded by one message,
and a malformed message affects no other.

LIP-76 does not define the length of a piece. Existing writers use 100 KiB. Some of them write the padding after the
archive, not into its ``padding`` field. A reader does not need the length: archives follow each other without a gap,
and a tag of zero ends an archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from fairway.errors import DecodeError
from fairway.wire.proto import archive_pb2
from fairway.wire.protobuf import parse

DEFAULT_PIECE_BYTES: Final = 102_400
"""Length of a piece; the size of a padded archive is a multiple of it."""
MAX_INDEX_BYTES: Final = 67_108_864
"""Size of the longest index that is parsed; an entry has some hundred bytes and covers a week."""

_MESSAGE_FIELD: Final = 3
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMetadata:
    """The time and topics of an archive (LIP-76, WakuMessageArchiveMetadata)."""

    from_time: int
    """Lowest timestamp, in nanoseconds as in a WakuMessage; some writers use seconds."""
    to_time: int
    """Highest timestamp."""
    content_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """The position of an archive (LIP-76, WakuMessageArchiveIndexMetadata)."""

    metadata: ArchiveMetadata
    offset: int
    """Position of its first byte in the data file."""
    pieces: int
    """Length in pieces; some writers use bytes."""


def decode_index(data: bytes) -> tuple[IndexEntry, ...]:
    """Return the entries of an index file by offset, or raise `DecodeError`."""
    index = parse(archive_pb2.WakuMessageArchiveIndex, data, max_bytes=MAX_INDEX_BYTES)
    entries = [
        IndexEntry(
            metadata=ArchiveMetadata(
                from_time=entry.metadata.from_time,
                to_time=entry.metadata.to_time,
                content_topics=tuple(topic.decode(errors="replace") for topic in entry.metadata.content_topic),
            ),
            offset=entry.offset,
            pieces=entry.num_pieces,
        )
        for entry in index.archives.values()
    ]
    return tuple(sorted(entries, key=lambda entry: entry.offset))


def archive_messages(data: bytes | memoryview) -> Iterator[bytes]:
    """Yield the encoded messages of one archive, in its order.

    Raises `DecodeError` if the archive is truncated or is not protobuf, after the messages before that position.
    """
    view = memoryview(data)
    position = 0
    while position < len(view):
        tag, position = _varint(view, position)
        if tag == 0:  # zero bytes between this archive and the next
            return
        position, end = _extent(view, tag & 7, position)
        if tag == _MESSAGE_FIELD << 3 | _LENGTH:
            yield bytes(view[position:end])
        position = end


def _extent(view: memoryview, wire_type: int, position: int) -> tuple[int, int]:
    """Return the start and end of a field's value."""
    if wire_type == _VARINT:
        return position, _varint(view, position)[1]
    if wire_type == _LENGTH:
        length, position = _varint(view, position)
    elif wire_type in {_FIXED64, _FIXED32}:
        length = 8 if wire_type == _FIXED64 else 4
    else:
        raise DecodeError(f"WakuMessageArchive: no protobuf at byte {position} (wire type {wire_type})")
    end = position + length
    if end > len(view):
        raise DecodeError(f"WakuMessageArchive: cut off at byte {len(view)}, the field at {position} ends at {end}")
    return position, end


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(view[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position + count + 1
    raise DecodeError(f"WakuMessageArchive: no number at byte {position}")
