"""Computes and checks the message hashes of many rows of ``waku_messages``.

14/WAKU2-MESSAGE, "Deterministic message hashing": SHA-256 over pubsub topic, payload, content topic, meta and
timestamp. So the hash shows which of several copies of a message is intact. A store dates a message without a timestamp
by its arrival; its hash covers the timestamp 0 or, from some nodes, no timestamp. All of these are accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from hashlib import sha256
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fairway.storage.archive import HASH_BYTES
from fairway.storage.lip76 import Shards

HASHED: Final = ("pubsub_topic", "payload", "content_topic", "meta", "timestamp_ns")
"""The columns that a message hash covers."""
HASH_INPUT: Final = ("message_hash", *HASHED)
"""The columns that `fits_of` reads."""
_STAMP_BYTES: Final = 8
_NO_STAMPS: Final = (bytes(_STAMP_BYTES), b"")


class Fit(IntEnum):
    """Whether the hash of a row matches its contents; the least value is the best."""

    FITS = 0
    UNKNOWN = 1
    """The row has no pubsub topic, and the hash does not match with the shard of its content topic."""
    DAMAGED = 2


def fits_of(rows: pa.Table | pa.RecordBatch) -> NDArray[np.int8]:
    """Return the `Fit` of each row, from the columns `HASH_INPUT`."""
    parts = _parts(rows)
    given = _values(rows, "message_hash")
    fits = np.where(list(map(bytes.__eq__, given, _hashes(*parts))), np.int8(Fit.FITS), np.int8(Fit.DAMAGED))
    for row in np.flatnonzero(fits).tolist():
        fits[row] = _fit_otherwise(given[row], *(column[row] for column in parts))
    return fits


def message_hashes(rows: pa.Table | pa.RecordBatch) -> pa.Array:
    """Return the message hash of each row, from the columns `HASHED`; a row without a pubsub topic is autosharded."""
    topics, payloads, content_topics, metas, stamps = _parts(rows)
    routed = [topic or _shard_of(content) for topic, content in zip(topics, content_topics, strict=True)]
    return pa.array(_hashes(routed, payloads, content_topics, metas, stamps), pa.binary())


_Columns = tuple[Sequence[bytes], Sequence[bytes], Sequence[bytes], Sequence[bytes], Sequence[bytes]]


def _hashes(
    topics: Sequence[bytes],
    payloads: Sequence[bytes],
    content_topics: Sequence[bytes],
    metas: Sequence[bytes],
    stamps: Sequence[bytes],
) -> list[bytes]:
    joined = map(b"".join, zip(topics, payloads, content_topics, metas, stamps, strict=True))
    return [sha256(message).digest() for message in joined]


def _fit_otherwise(
    message_hash: bytes, topic: bytes, payload: bytes, content_topic: bytes, meta: bytes, stamp: bytes
) -> Fit:
    if len(message_hash) != HASH_BYTES:
        return Fit.DAMAGED
    shard = topic or _shard_of(content_topic)
    candidates = [(shard, payload, content_topic, meta, other) for other in (stamp, *_NO_STAMPS)]
    if any(message_hash == sha256(b"".join(parts)).digest() for parts in candidates):
        return Fit.FITS
    return Fit.DAMAGED if topic else Fit.UNKNOWN


def _parts(rows: pa.Table | pa.RecordBatch) -> _Columns:
    stamps = rows.column("timestamp_ns").fill_null(0)
    stamps = stamps.combine_chunks() if isinstance(stamps, pa.ChunkedArray) else stamps
    data = stamps.to_numpy(zero_copy_only=False).astype(">i8").tobytes()
    return (
        _texts(rows, "pubsub_topic"),
        _values(rows, "payload"),
        _texts(rows, "content_topic"),
        _values(rows, "meta"),
        [data[start : start + _STAMP_BYTES] for start in range(0, len(data), _STAMP_BYTES)],
    )


def _values(rows: pa.Table | pa.RecordBatch, name: str) -> list[bytes]:
    column = rows.column(name)
    values: list[bytes] = (column.fill_null(b"") if column.null_count else column).to_pylist()
    return values


def _texts(rows: pa.Table | pa.RecordBatch, name: str) -> list[bytes]:
    """Return a column of text as bytes; it usually has few distinct values."""
    column = rows.column(name)
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded: Any = column.dictionary_encode()
    known = [*(value or b"" for value in encoded.dictionary.cast(pa.large_binary()).to_pylist()), b""]
    return [known[number] for number in encoded.indices.fill_null(len(known) - 1).to_pylist()]


@cache
def _shard_of(content_topic: bytes) -> bytes:
    return Shards().of(content_topic.decode(errors="replace")).encode()
