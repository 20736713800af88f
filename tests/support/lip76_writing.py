"""Writes a folder of message archives in the layout of LIP-76, for tests of its readers.

``data`` only grows, by whole archives of whole pieces ("Ensuring reproducible data pieces"). ``index`` is replaced in
one step after ``data`` is on disk. So a crash leaves the folder unchanged, or leaves bytes without an entry in
``data``. The next write cuts them off.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from fairway.errors import ConfigurationError
from fairway.storage.archive import ArchivedMessage
from fairway.wire.archive import (
    DEFAULT_PIECE_BYTES,
    ArchiveMetadata,
    IndexEntry,
    decode_index,
)
from fairway.wire.hashing import keccak256
from fairway.wire.proto import archive_pb2
from fairway.wire.varint import encode_uvarint, length_prefixed
from fairway.wire.waku_message import WakuMessage, encode_waku_message

_MESSAGE_TAG: Final = b"\x1a"  # field 3, length-delimited
_PADDING_TAG: Final = b"\x22"  # field 4, length-delimited
_MAX_VARINT_BYTES: Final = 10
PERIOD_NS: Final = 7 * 86_400 * 1_000_000_000
"""LIP-76: each archive holds "a time range of seven days"."""


def write_lip76(
    folder: str | os.PathLike[str],
    messages: Iterable[ArchivedMessage],
    *,
    piece_bytes: int = DEFAULT_PIECE_BYTES,
) -> int:
    """Add messages, ordered by time, to a folder, and return the number of new archives.

    Each archive has the messages of one `PERIOD_NS`, counted from the Unix epoch. A missing folder is created; existing
    archives are not changed. Raises `ConfigurationError` if they have pieces of another length.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    index_path = path / "index"
    entries = list(decode_index(index_path.read_bytes())) if index_path.is_file() else []
    before = len(entries)
    with (path / "data").open("ab") as data:
        offset = _appendable_end(entries, piece_bytes, data.tell(), path)
        data.truncate(offset)
        for period, group in groupby(messages, lambda message: message.timestamp_ns // PERIOD_NS):
            topics: dict[str, None] = {}
            size = 0
            for message in group:
                topics.setdefault(message.content_topic)
                size += data.write(encode_archive_message(_encoded(message)))
            metadata = ArchiveMetadata(
                from_time=max(0, period * PERIOD_NS),
                to_time=max(0, (period + 1) * PERIOD_NS - 1),
                content_topics=tuple(sorted(topics)),
            )
            size += data.write(encode_archive_metadata(metadata))
            size += data.write(encode_archive_padding(size, piece_bytes))
            entries.append(IndexEntry(metadata=metadata, offset=offset, pieces=size // piece_bytes))
            offset += size
        data.flush()
        os.fsync(data.fileno())
    partial = path / "index.part"
    partial.write_bytes(encode_index(entries))
    partial.replace(index_path)
    return len(entries) - before


def _encoded(message: ArchivedMessage) -> bytes:
    return encode_waku_message(
        WakuMessage(
            payload=message.payload,
            content_topic=message.content_topic,
            version=message.version or None,
            timestamp_ns=message.timestamp_ns,
            meta=message.meta,
            rate_limit_proof=message.rate_limit_proof,
        )
    )


def _appendable_end(entries: Sequence[IndexEntry], piece_bytes: int, size: int, folder: Path) -> int:
    """Return the offset of the next archive: the end of the last whole one. A crash may have left other bytes there."""
    end = 0
    for entry in entries:
        if entry.offset != end:
            raise ConfigurationError(
                f"{folder}: was not written in pieces of {piece_bytes} bytes without gaps; its own writer can add to it"
            )
        end += entry.pieces * piece_bytes
    if end > size:
        raise ConfigurationError(f"{folder}: 'data' has {size} bytes, its index tells of {end}; it is not whole")
    return end


def index_key(entry: IndexEntry) -> str:
    """Return the key of an entry in the index: Keccak-256 of its encoding in hexadecimal with ``0x``."""
    return f"0x{keccak256(_entry(entry).SerializeToString(deterministic=True)).hex()}"


def encode_index(entries: Iterable[IndexEntry]) -> bytes:
    """Return the index file over ``entries``; equal entries give equal bytes."""
    index = archive_pb2.WakuMessageArchiveIndex()
    for entry in entries:
        index.archives[index_key(entry)].CopyFrom(_entry(entry))
    return index.SerializeToString(deterministic=True)


def encode_archive_metadata(metadata: ArchiveMetadata) -> bytes:
    """Return the metadata of an archive. It follows the messages, because its topics are known only then."""
    return archive_pb2.WakuMessageArchive(version=1, metadata=_metadata(metadata)).SerializeToString(deterministic=True)


def encode_archive_message(message: bytes) -> bytes:
    """Return one encoded WakuMessage as a member of an archive."""
    return _MESSAGE_TAG + length_prefixed(message)


def encode_archive_padding(size: int, piece_bytes: int = DEFAULT_PIECE_BYTES) -> bytes:
    """Return the ``padding`` field that fills an archive of ``size`` bytes to whole pieces, or nothing."""
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
