"""Writes a folder of message archives in the layout of LIP-76, for tests of what reads one.

``data`` only grows, by whole archives of whole pieces ("Ensuring reproducible data pieces"). ``index`` is replaced in
one step after ``data`` is on disk. So a crash leaves the folder as it was, or with bytes in ``data`` that no entry
refers to, which the next write cuts off.
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
    encode_archive_message,
    encode_archive_metadata,
    encode_archive_padding,
    encode_index,
)
from fairway.wire.waku_message import WakuMessage, encode_waku_message

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
        )
    )


def _appendable_end(entries: Sequence[IndexEntry], piece_bytes: int, size: int, folder: Path) -> int:
    """Return where the next archive begins: after the last whole one, where a crash may have left other bytes."""
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
