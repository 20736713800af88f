"""Message archives as files: the ``WakuMessageArchive`` of LIP-76 and the index over them.

A ``data`` file is archives one after the other, each padded to whole pieces (what BitTorrent cuts files into); an
``index`` file says where each begins and which time it covers. Invariant: what is decoded here is read message by
message, so that memory is bounded by one message and a malformed one costs itself only.

LIP-76 leaves the length of a piece open. The writers that exist use 100 KiB, and some of them put the zero bytes behind
the archive instead of into its ``padding`` field; a reader need not know either, because archives follow each other
without a gap and a tag of zero ends one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.hashing import keccak256
from fairway.wire.proto import archive_pb2
from fairway.wire.protobuf import parse
from fairway.wire.varint import encode_uvarint, length_prefixed

DEFAULT_PIECE_BYTES: Final = 102_400
"""What an archive is padded to a multiple of."""
MAX_INDEX_BYTES: Final = 67_108_864
"""Longer indexes are not parsed; an entry has some hundred bytes and stands for a week."""

_MESSAGE_TAG: Final = b"\x1a"  # field 3, length-delimited
_PADDING_TAG: Final = b"\x22"  # field 4, length-delimited
_MESSAGE_FIELD: Final = 3
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveMetadata:
    """What one archive covers (LIP-76, WakuMessageArchiveMetadata)."""

    from_time: int
    """Lowest timestamp; nanoseconds as in a WakuMessage, though seconds occur."""
    to_time: int
    """Highest timestamp."""
    content_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """Where an archive lies (LIP-76, WakuMessageArchiveIndexMetadata)."""

    metadata: ArchiveMetadata
    offset: int
    """Position of its first byte in the data file."""
    pieces: int
    """Length in pieces; some writers put the length in bytes here."""

    @property
    def key(self) -> str:
        """Return what the index calls it: Keccak-256 of this entry's encoding, as Ethereum spells hashes."""
        return f"0x{keccak256(_entry(self).SerializeToString(deterministic=True)).hex()}"


def encode_index(entries: Iterable[IndexEntry]) -> bytes:
    """Return the index file over ``entries``; equal entries give equal bytes."""
    index = archive_pb2.WakuMessageArchiveIndex()
    for entry in entries:
        index.archives[entry.key].CopyFrom(_entry(entry))
    return index.SerializeToString(deterministic=True)


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


def encode_archive_metadata(metadata: ArchiveMetadata) -> bytes:
    """Return what an archive says of itself; protobuf lets it follow the messages, when its topics are known."""
    return archive_pb2.WakuMessageArchive(version=1, metadata=_metadata(metadata)).SerializeToString(deterministic=True)


def encode_archive_message(message: bytes) -> bytes:
    """Return one encoded WakuMessage as a member of an archive."""
    return _MESSAGE_TAG + length_prefixed(message)


def encode_archive_padding(size: int, piece_bytes: int = DEFAULT_PIECE_BYTES) -> bytes:
    """Return what makes an archive of ``size`` bytes whole pieces long: its ``padding`` field, or nothing."""
    if piece_bytes < 1:
        raise ConfigurationError(f"a piece must have at least 1 byte, not {piece_bytes}")
    gap = -size % piece_bytes
    if not gap:
        return b""
    while True:
        # Tag and length take room themselves, and a few gaps fit no padding at all: then it is a piece longer.
        for length_bytes in range(1, _MAX_VARINT_BYTES):
            zeros = gap - 1 - length_bytes
            if zeros >= 0 and len(encode_uvarint(zeros)) == length_bytes:
                return _PADDING_TAG + length_prefixed(bytes(zeros))
        gap += piece_bytes


def archive_messages(data: bytes | memoryview) -> Iterator[bytes]:
    """Yield the encoded messages of one archive, in its order.

    Raises `DecodeError` where the archive is cut off or is no protobuf, after the messages before that place.
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
    """Return where the value of a field begins and ends."""
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


def _entry(entry: IndexEntry) -> archive_pb2.WakuMessageArchiveIndexMetadata:
    return archive_pb2.WakuMessageArchiveIndexMetadata(
        version=1, metadata=_metadata(entry.metadata), offset=entry.offset, num_pieces=entry.pieces
    )


def _metadata(metadata: ArchiveMetadata) -> archive_pb2.WakuMessageArchiveMetadata:
    return archive_pb2.WakuMessageArchiveMetadata(
        version=1,
        from_time=metadata.from_time,
        to_time=metadata.to_time,
        content_topic=[topic.encode() for topic in metadata.content_topics],
    )
