"""`canonical_columns`: the columns of many SDS messages at once, without an object for each.

`fairway.pipeline.columnar` finds the fields. Arrow then cuts each column out of the buffer in one call.
The columns are those of `fairway.pipeline.stages.decoded_columns`, of canonical messages alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.options import Profile
from fairway.pipeline.columnar.cursor import Bytes, BytesColumn, Mask, Numbers, Packed, Rows, rows_of
from fairway.pipeline.columnar.sds import EntryColumns, SdsColumns, read_sds
from fairway.pipeline.columnar.segment import SegmentColumns, read_segments, surely_whole
from fairway.pipeline.stages.decoded_columns import ENTRY_FIELDS, entry_lists, entry_sizes
from fairway.protocol.sds.dependencies import MAX_CITATIONS_READ
from fairway.wire.sds import Kind
from fairway.wire.segment import HASH_BYTES, SegmentFormat

_ASCII_END: Final = 0x80


def canonical_columns(
    messages: Packed, profile: Profile, *, with_filters: bool = False
) -> tuple[Mask, dict[str, pa.Array]]:
    """Return which messages are canonical, and the columns of these.

    ``bloom_filter`` and ``vouches`` are included only ``with_filters``. `BatchDecoder` decodes each canonical message
    with status ok.
    """
    found = read_sds(profile.codec, messages, MAX_CITATIONS_READ)
    canonical = found.canonical
    segments = _read_segments(messages.data, found, profile.segments)
    while True:
        cutter = _Cutter(messages.data, canonical)
        columns = _message_columns(cutter, found)
        if with_filters:
            columns["bloom_filter"] = cutter.content(found.bloom)
            columns["vouches"] = pa.array(found.vouches[cutter.rows])
        columns |= _segment_columns(cutter, found, segments)
        if not cutter.doubtful.any():
            return canonical, columns
        canonical &= ~cutter.doubtful


def canonical_ids(messages: Packed, profile: Profile) -> tuple[Mask, dict[str, pa.Array]]:
    """Return which messages are canonical SDS messages, whatever their contents, and the columns of their ids alone."""
    found = read_sds(profile.codec, messages, MAX_CITATIONS_READ)
    canonical = found.canonical
    while True:
        cutter = _Cutter(messages.data, canonical)
        columns = {name: cutter.text(found.ids[name]) for name in ("channel_id", "message_id")}
        if not cutter.doubtful.any():
            return canonical, columns
        canonical &= ~cutter.doubtful


def _read_segments(data: Bytes, found: SdsColumns, segment_format: SegmentFormat) -> SegmentColumns:
    """Read the segments of the messages; mark messages with a possibly broken segment as not canonical."""
    starts, ends = found.content.starts, found.content.starts + found.content.lengths
    contents = Packed(data, starts, ends)
    segments = read_segments(segment_format, contents)
    is_other = found.canonical & (found.content.lengths > 0)
    is_other[segments.rows] = False
    others = rows_of(is_other)
    others = others[~surely_whole(segment_format, contents.only(others))]
    buffer = data.data
    for row, start, end in zip(others.tolist(), starts[others].tolist(), ends[others].tolist(), strict=True):
        if segment_format.is_segment(bytes(buffer[start:end])):
            found.canonical[row] = False
    return segments


class _Cutter:
    """Cuts columns of the canonical messages out of the buffer, and notes doubtful messages."""

    def __init__(self, data: Bytes, canonical: Mask) -> None:
        self._buffer = pa.py_buffer(data)
        self._canonical = canonical
        self.rows = _selection(canonical)
        """The canonical messages."""
        self.doubtful: Mask = np.zeros(len(canonical), np.bool_)
        """Messages with text that may not be UTF-8, or a history that lists an id twice; with any, no column may be
        used."""

    def content(self, column: BytesColumn) -> pa.Array:
        """Return a column of bytes, null if absent."""
        starts, lengths = column.starts[self.rows], column.lengths[self.rows]
        return _slices(self._buffer, starts, lengths, lengths > 0)

    def text(self, column: BytesColumn) -> pa.Array:
        """Return a column of text, empty if absent."""
        texts = _slices(self._buffer, column.starts[self.rows], column.lengths[self.rows])
        self._note_text(texts, rows_of(self._canonical))
        return texts.view(pa.string())

    def entries(self, entries: EntryColumns, *, distinct: bool) -> tuple[pa.ListArray, Numbers]:
        """Return a column of lists of entries, and the size of each list on the wire.

        With ``distinct``, messages that list an id twice are doubtful.
        """
        kept = _selection(self._canonical[entries.owners])
        owners = entries.owners[kept]
        fields, lengths = [], []
        for name, kind in ENTRY_FIELDS:
            column: BytesColumn = getattr(entries, name)
            lengths.append(column.lengths[kept])
            values = _slices(self._buffer, column.starts[kept], lengths[-1], column.present[kept])
            if kind == pa.string():
                self._note_text(values, owners)
            fields.append(values.view(kind))
            if distinct and name == "message_id":
                self._note_repeats(values, owners)
        counts = np.bincount(owners, minlength=len(self._canonical))[self.rows]
        return entry_lists(counts, fields), entry_sizes(counts, lengths)

    def _note_text(self, texts: pa.Array, owners: Rows) -> None:
        """Note the messages whose text may not be UTF-8."""
        values = texts.buffers()[2]
        if values is None or not (np.frombuffer(values, np.uint8) >= _ASCII_END).any():
            return
        try:
            texts.cast(pa.string())  # the cast checks the text, a view does not
        except pa.ArrowInvalid:
            is_ascii = pc.string_is_ascii(texts.view(pa.string())).fill_null(True)
            self.doubtful[owners[~is_ascii.to_numpy(zero_copy_only=False)]] = True

    def _note_repeats(self, ids: pa.Array, owners: Rows) -> None:
        """Note the messages that list an id twice."""
        numbered = ids.dictionary_encode()
        width = max(1, len(numbered.dictionary))
        pairs = owners * width + numbered.indices.to_numpy()
        pairs.sort()
        self.doubtful[pairs[1:][pairs[1:] == pairs[:-1]] // width] = True


def _message_columns(cutter: _Cutter, found: SdsColumns) -> dict[str, pa.Array]:
    rows = cutter.rows
    has_lamport, content_bytes = found.lamport.present[rows], found.content.lengths[rows]
    # Of several entries for one message a history keeps the last; `decoded_columns` does that.
    history, history_bytes = cutter.entries(found.lists["causal_history"], distinct=True)
    request, repair_bytes = cutter.entries(found.lists["repair_request"], distinct=False)
    return {
        "kind": _kinds(has_lamport, content_bytes > 0),
        **{name: cutter.text(column) for name, column in found.ids.items()},
        "lamport": pa.array(found.lamport.values[rows], mask=~has_lamport),
        "causal_history": history,
        "repair_request": request,
        "history_bytes": pa.array(history_bytes, pa.int32()),
        "repair_bytes": pa.array(repair_bytes, pa.int32()),
        "bloom_bytes": pa.array(found.bloom.lengths[rows], pa.int32()),
        "content_bytes": pa.array(content_bytes, pa.int32()),
        "content": cutter.content(found.content),
    }


def _segment_columns(cutter: _Cutter, found: SdsColumns, segments: SegmentColumns) -> dict[str, pa.Array]:
    """Return the columns of segment headers, null for a whole message."""
    is_segment = np.zeros(len(found.canonical), np.bool_)
    is_segment[segments.rows] = True
    absent = ~is_segment[cutter.rows]
    hash_starts = found.content.starts.copy()
    hash_starts[segments.rows] = segments.hash_starts
    hashes = BytesColumn(hash_starts, np.where(is_segment, HASH_BYTES, 0), is_segment)

    def spread(values: Numbers | Mask, kind: pa.DataType) -> pa.Array:
        column = np.zeros(len(is_segment), values.dtype)
        column[segments.rows] = values
        return pa.array(column[cutter.rows], kind, mask=absent)

    return {
        "segment_hash": cutter.content(hashes),
        "segment_index": spread(segments.index, pa.int32()),
        "is_parity": spread(segments.is_parity, pa.bool_()),
        "data_segments": spread(segments.data_count, pa.int32()),
        "parity_segments": spread(segments.parity_count, pa.int32()),
    }


def _kinds(has_lamport: Mask, has_content: Mask) -> pa.Array:
    """Return the kind of each message, as `SdsMessage.kind` has it."""
    kinds = (Kind.SYNC, Kind.CONTENT, Kind.EPHEMERAL)
    codes = np.where(has_content, np.where(has_lamport, 1, 2), 0).astype(np.int8)
    return pa.DictionaryArray.from_arrays(codes, pa.array([kind.value for kind in kinds])).dictionary_decode()


def _selection(mask: Mask) -> Rows | slice:
    """Return the rows of a mask, or the slice of all rows, which NumPy reads several times faster."""
    return slice(None) if mask.all() else rows_of(mask)


def _slices(buffer: pa.Buffer, starts: Numbers, lengths: Numbers, present: Mask | None = None) -> pa.Array:
    """Return ascending slices of a buffer as a binary column, null where ``present`` is false.

    The slices and the gaps between them form a column without a copy; Arrow takes every second value of it.
    """
    if not len(starts):
        return pa.array([], pa.binary())
    bounds = np.empty(2 * len(starts), np.int32)
    bounds[0::2], bounds[1::2] = starts, starts + lengths
    with_gaps = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), buffer])
    absent = None if present is None or present.all() else ~present
    return with_gaps.take(pa.array(np.arange(0, len(bounds), 2, dtype=np.int32), mask=absent))
