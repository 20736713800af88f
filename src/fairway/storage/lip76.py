"""Reads and writes a folder of message archives in the layout of LIP-76: the files ``data`` and ``index``.

``data`` only grows, by whole archives of whole pieces ("Ensuring reproducible data pieces"). ``index`` is replaced in
one step after ``data`` is on disk. So after a crash the folder is unchanged, or ``data`` has bytes without an entry.
The next write cuts them off.

The message hash depends on the pubsub topic, which a WakuMessage does not contain. The caller gives it, or autosharding
(RELAY-SHARDING) computes it from the content topic, by default for The Waku Network.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.storage.archive import ArchivedMessage
from fairway.wire.archive import (
    DEFAULT_PIECE_BYTES,
    IndexEntry,
    archive_messages,
    decode_index,
)
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, decode_waku_message, message_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_SECONDS_END: Final = 10**11
"""A smaller time in the index is in seconds, as some writers have it: in nanoseconds it would lie in the first two
minutes of 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shards:
    """Determines the pubsub topic of a message from its content topic."""

    pubsub_topic: str | None = None
    """The pubsub topic of all messages; None: by autosharding."""
    cluster_id: int = 1
    shard_count: int = 8
    _known: dict[str, str] = field(default_factory=dict, compare=False, repr=False)

    def of(self, content_topic: str) -> str:
        """Return the pubsub topic; empty for a content topic that autosharding does not accept."""
        if self.pubsub_topic is not None:
            return self.pubsub_topic
        known = self._known.get(content_topic)
        if known is None:
            try:
                known = autoshard(content_topic, self.cluster_id, self.shard_count)
            except ConfigurationError:
                known = ""
            self._known[content_topic] = known
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArchive:
    """One archive of the folder."""

    offset: int
    end: int
    """Position after its last byte."""
    start_ns: int
    """Lowest timestamp in the index."""
    end_ns: int
    """Highest timestamp in the index."""

    def may_hold(self, start_ns: int | None, end_ns: int | None) -> bool:
        """Return whether the archive may have a message of this range of time."""
        return (start_ns is None or self.end_ns >= start_ns) and (end_ns is None or self.start_ns <= end_ns)


class Lip76Archive:
    """Reads a folder. Can be pickled, and keeps no file open between calls.

    Raises `ConfigurationError` if the folder or one of its files is missing, `DecodeError` if a file is damaged.
    """

    def __init__(self, folder: str | os.PathLike[str], *, shards: Shards | None = None) -> None:
        self.folder: Final = Path(folder)
        self.shards: Final = shards or Shards()
        for path in (self._index_path, self._data_path):
            if not path.is_file():
                raise ConfigurationError(
                    f"{self.folder}: has no file '{path.name}'; a LIP-76 folder has 'data' and 'index'"
                )

    @property
    def _data_path(self) -> Path:
        return self.folder / "data"

    @property
    def _index_path(self) -> Path:
        return self.folder / "index"

    def archives(self) -> tuple[StoredArchive, ...]:
        """Return the archives that the index lists, in the order of the file."""
        entries = decode_index(self._index_path.read_bytes())
        size = self._data_path.stat().st_size
        ends = [entry.offset for entry in entries[1:]]
        return tuple(
            StoredArchive(
                offset=entry.offset,
                end=end,
                start_ns=_nanoseconds(entry.metadata.from_time),
                end_ns=_nanoseconds(entry.metadata.to_time, last=True),
            )
            for entry, end in zip(entries, [*ends, _last_end(entries, size)], strict=False)
        )

    def messages(self, archive: StoredArchive) -> Iterator[ArchivedMessage]:
        """Yield the messages of one archive in its order.

        Bytes that are no WakuMessage become a message with these bytes as payload, their SHA-256 as hash, no topics,
        and the archive's lowest timestamp. Raises `DecodeError` if the file ends too early or is damaged.
        """
        for encoded in self._encoded(archive):
            yield self._message(encoded, archive)

    def count(self, archive: StoredArchive) -> int:
        """Return how many messages one archive has, without decoding them; raises what `messages` raises."""
        return sum(1 for _ in self._encoded(archive))

    def _encoded(self, archive: StoredArchive) -> Iterator[bytes]:
        if archive.end <= archive.offset:
            return
        with self._data_path.open("rb") as file:
            # The garbage collector closes it: closing fails while the traceback of an error holds a view of it.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if archive.end > len(data):
            raise DecodeError(f"{self._data_path}: ends at {len(data)}, an archive is said to end at {archive.end}")
        try:
            yield from archive_messages(memoryview(data)[archive.offset : archive.end])
        except DecodeError as error:
            raise DecodeError(f"{self._data_path}, archive at {archive.offset}: {error}") from error

    def _message(self, encoded: bytes, archive: StoredArchive) -> ArchivedMessage:
        try:
            message = decode_waku_message(encoded)
        except DecodeError:
            message = WakuMessage()
        if not message.content_topic:
            return ArchivedMessage(
                message_hash=sha256(encoded).digest(),
                pubsub_topic="",
                content_topic="",
                payload=encoded,
                version=0,
                timestamp_ns=archive.start_ns,
                meta=None,
            )
        pubsub_topic = self.shards.of(message.content_topic)
        return ArchivedMessage(
            message_hash=message_hash(pubsub_topic, message),
            pubsub_topic=pubsub_topic,
            content_topic=message.content_topic,
            payload=message.payload,
            version=message.version or 0,
            timestamp_ns=message.timestamp_ns or 0,
            meta=message.meta or None,
            rate_limit_proof=message.rate_limit_proof or None,
        )


def _last_end(entries: Sequence[IndexEntry], size: int) -> int:
    """Return where the last archive ends: after its pieces if their length is known, else at the end of the file."""
    if not entries:
        return size
    last = entries[-1]
    lengths = {
        divmod(following.offset - entry.offset, entry.pieces or 1) for entry, following in pairwise(entries)
    } or {(DEFAULT_PIECE_BYTES, 0)}
    piece_bytes, rest = lengths.pop()
    end = last.offset + last.pieces * piece_bytes
    return end if not lengths and not rest and last.offset < end <= size else size


def _nanoseconds(time: int, *, last: bool = False) -> int:
    """Return a time of the index in nanoseconds; a ``last`` one in seconds means the end of that second."""
    if not 0 < time < _SECONDS_END:
        return time
    return (time + 1) * 1_000_000_000 - 1 if last else time * 1_000_000_000
