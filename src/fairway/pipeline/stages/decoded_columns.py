"""SDS messages and segments as Arrow columns, from the objects of the codecs.

This module converts small batches and unusual messages; `fairway.pipeline.stages.canonical_columns` converts all
others, with `entry_lists` and `entry_sizes` of this module. Columns are built field by field, without an object for
each row; lists of entries are built from flat columns with offsets. Arrow and NumPy compute the size of an entry on the
wire from the lengths of its fields. It needs no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.protocol.sds.dependencies import MAX_CITATIONS_READ
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.segment import Segment

_Entries = tuple[HistoryEntry, ...]

_ONE_BYTE_LENGTH: Final = 128
ENTRY_FIELDS: Final = (
    ("message_id", pa.string()),
    ("retrieval_hint", pa.binary()),
    ("sender_id", pa.string()),
)
"""The fields of an entry, as its struct has them."""
_NO_MESSAGE: Final = SdsMessage(message_id="", sender_id="", channel_id="")
_NO_SEGMENT: Final = Segment(
    payload_hash=b"", index=0, data_count=0, parity_count=0, is_parity=False, payload=b"", payload_length=None
)


def message_columns(messages: Sequence[SdsMessage | None], *, with_filters: bool = False) -> dict[str, pa.Array]:
    """Return the columns of SDS messages; for None, lists are empty and all other columns null.

    They have the order of the table, because Spark identifies columns by their position. The columns ``bloom_filter``
    and ``vouches``, which are in no table, are included only ``with_filters``.
    """
    absent = _absent(messages)
    present = [message or _NO_MESSAGE for message in messages]
    histories = _values(present, "causal_history")
    looked_at = [_looked_at(history) for history in histories]
    cited, requested = _entries(histories), _entries(_values(present, "repair_request"))
    is_whole = all(one is other for one, other in zip(looked_at, histories, strict=True))
    contents = [content or None for content in _values(present, "content")]
    filters = [bloom or None for bloom in _values(present, "bloom_filter")]
    columns = {
        "kind": pa.array([message.kind.value for message in present], pa.string(), mask=absent),
        "sender_id": pa.array(_values(present, "sender_id"), pa.string(), mask=absent),
        "message_id": pa.array(_values(present, "message_id"), pa.string(), mask=absent),
        "channel_id": pa.array(_values(present, "channel_id"), pa.string(), mask=absent),
        "lamport": pa.array(_values(present, "lamport_timestamp"), pa.int64()),
        "causal_history": cited if is_whole else _entries(looked_at),
        "repair_request": requested,
        "history_bytes": pa.array(_sizes(cited), pa.int32(), mask=absent),
        "repair_bytes": pa.array(_sizes(requested), pa.int32(), mask=absent),
        "bloom_bytes": pa.array([len(bloom or b"") for bloom in filters], pa.int32(), mask=absent),
        "content_bytes": pa.array([len(content or b"") for content in contents], pa.int32(), mask=absent),
        "content": pa.array(contents, pa.binary()),
    }
    if with_filters:
        columns["bloom_filter"] = pa.array(filters, pa.binary())
        columns["vouches"] = pa.array(_values(present, "vouches"), pa.bool_(), mask=absent)
    return columns


def segment_columns(segments: Sequence[Segment | None]) -> dict[str, pa.Array]:
    """Return the columns of segment headers, null for None."""
    absent = _absent(segments)
    present = [segment or _NO_SEGMENT for segment in segments]
    return {
        "segment_hash": pa.array(_values(present, "payload_hash"), pa.binary(), mask=absent),
        "segment_index": pa.array(_values(present, "index"), pa.int32(), mask=absent),
        "is_parity": pa.array(_values(present, "is_parity"), pa.bool_(), mask=absent),
        "data_segments": pa.array(_values(present, "data_count"), pa.int32(), mask=absent),
        "parity_segments": pa.array(_values(present, "parity_count"), pa.int32(), mask=absent),
    }


def _absent(values: Sequence[object]) -> NDArray[np.bool_]:
    return np.array([value is None for value in values], np.bool_)


def _values(values: Iterable[object], name: str) -> list[Any]:
    """Return one attribute of each value; a tuple for each row would slow the garbage collector."""
    return list(map(attrgetter(name), values))


def _looked_at(history: _Entries) -> _Entries:
    """Return the entries of a causal history that count: the newest, and of several for one message the last.

    Spark would take quadratic time to make lists of structs distinct.
    """
    newest = history[-MAX_CITATIONS_READ:]  # the same tuple if that is all of them
    distinct = {entry.message_id: entry for entry in newest}
    return newest if len(distinct) == len(newest) else tuple(distinct.values())


def _entries(lists: Sequence[_Entries]) -> pa.ListArray:
    """Return a column of lists of entries."""
    flat = list(chain.from_iterable(lists))
    turned = zip(*flat, strict=True) if flat else ((),) * len(ENTRY_FIELDS)
    fields = [pa.array(values, kind) for (_, kind), values in zip(ENTRY_FIELDS, turned, strict=True)]
    return entry_lists(np.fromiter(map(len, lists), np.int64, len(lists)), fields)


def entry_lists(counts: NDArray[np.int64], fields: Sequence[pa.Array]) -> pa.ListArray:
    """Return a column of lists of entries: from the count of each message, and the concatenated fields."""
    structs = pa.StructArray.from_arrays(fields, names=[name for name, _ in ENTRY_FIELDS])
    return pa.ListArray.from_arrays(pa.array(_ends(counts), pa.int32()), structs)


def entry_sizes(counts: NDArray[np.int64], lengths: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return the size of the entries of each message on either wire: tags of one byte, lengths, and values.

    ``counts`` has the number of entries of each message, ``lengths`` the bytes of each field of all entries, 0 if
    absent.
    """
    inside = sum((np.where(field > 0, _field_bytes(field), 0) for field in lengths), np.zeros(1, np.int64))
    ends = _ends(_field_bytes(inside))
    behind = _ends(counts)
    sizes: NDArray[np.int64] = ends[behind[1:]] - ends[behind[:-1]]
    return sizes


def _sizes(lists: pa.ListArray) -> NDArray[np.int64]:
    """Return the size of the entries of each list."""
    fields = [lists.values.field(name) for name, _ in ENTRY_FIELDS]
    lengths = [pc.binary_length(field).fill_null(0).to_numpy().astype(np.int64) for field in fields]
    return entry_sizes(np.diff(lists.offsets.to_numpy()), lengths)


def _field_bytes(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return sizes + np.where(sizes < _ONE_BYTE_LENGTH, 2, 3)


def _ends(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offset of each message's first entry, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
