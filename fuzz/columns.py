"""What is read of many messages at once is what the codecs read of each.

Promises: nothing is raised. A message that counts as canonical is decoded by its codec, to the same fields, unless an
id is no UTF-8; the same holds for segments. What surely is a whole message is no segment. And no bytes change what is
read of the messages beside them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from fairway.errors import DecodeError
from fairway.pipeline.columnar.cursor import SPARE_BYTES, BytesColumn, Packed
from fairway.pipeline.columnar.sds import EntryColumns, SdsColumns, read_sds
from fairway.pipeline.columnar.segment import read_segments, surely_whole
from fairway.wire.sds import NIM_SDS, WAKU_SDS, HistoryEntry, SdsCodec, SdsMessage
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment, SegmentFormat
from fuzz.decoders import BrokenPromiseError

_MOST_ENTRIES: Final = 50
_BESIDE: Final = 8
"""Messages on either side: fewer are not worth a step in a long list, and would not be canonical."""
_ENTRIES: Final = (HistoryEntry("a", bytes(32), "bob"), HistoryEntry("b", None, None))
_MESSAGE: Final = SdsMessage(
    message_id="d",
    sender_id="alice",
    channel_id="team",
    lamport_timestamp=1_700_000_000_000,
    causal_history=_ENTRIES,
    repair_request=_ENTRIES[1:],
    content=b"hello",
)
_SEGMENTS: Final = {
    WAKU_SEGMENTS: Segment(
        payload_hash=bytes(range(32)),
        index=1,
        data_count=3,
        parity_count=0,
        is_parity=False,
        payload=b"piece",
        payload_length=None,
    ),
    LIP_243: Segment(
        payload_hash=bytes(range(32)),
        index=0,
        data_count=3,
        parity_count=2,
        is_parity=True,
        payload=b"piece",
        payload_length=12,
    ),
}


class _Read(NamedTuple):
    """The fields of a message that both ways tell."""

    ids: tuple[bytes, ...]
    lamport: int | None
    causal_history: tuple[HistoryEntry | None, ...]
    repair_request: tuple[HistoryEntry | None, ...]
    bloom: bytes
    content: bytes


def check_columns(data: bytes) -> None:
    """Raise if what is read of these bytes in columns is not what the codecs read."""
    for codec in (WAKU_SDS, NIM_SDS):
        _check_sds(codec, data)
    for segment_format, beside in _SEGMENTS.items():
        _check_segments(segment_format, segment_format.encode(beside), data)


def _check_sds(codec: SdsCodec, data: bytes) -> None:
    honest = codec.encode(_MESSAGE)
    messages = _packed([honest] * _BESIDE + [data] + [honest] * _BESIDE)
    columns = read_sds(codec, messages, _MOST_ENTRIES)
    for row, is_canonical in enumerate(columns.canonical.tolist()):
        given = data if row == _BESIDE else honest
        if not is_canonical:
            if row != _BESIDE:
                raise BrokenPromiseError(f"{data!r} keeps another message from being read in columns")
            continue
        found = _read(columns, messages, row)
        try:
            expected = _told(codec.decode(given))
        except DecodeError as error:
            if _is_text(found):
                raise BrokenPromiseError(f"{given!r} is canonical, and the codec refuses it: {error}") from error
            continue
        if found != expected:
            raise BrokenPromiseError(f"{given!r}: {found!r} in columns, {expected!r} by the codec")


def _check_segments(segment_format: SegmentFormat, honest: bytes, data: bytes) -> None:
    contents = _packed([honest, data, honest])
    columns = read_segments(segment_format, contents)
    rows = columns.rows.tolist()
    if not {0, 2} <= set(rows):
        raise BrokenPromiseError(f"{data!r} keeps another segment from being read in columns")
    for place, row in enumerate(rows):
        segment = segment_format.decode((honest, data, honest)[row])
        start = int(columns.hash_starts[place])
        found = (
            contents.data[start : start + len(segment.payload_hash)].tobytes(),
            int(columns.index[place]),
            bool(columns.is_parity[place]),
            int(columns.data_count[place]),
            int(columns.parity_count[place]),
        )
        expected = (
            segment.payload_hash,
            segment.index,
            segment.is_parity,
            segment.data_count,
            segment.parity_count,
        )
        if found != expected:
            raise BrokenPromiseError(f"{data!r}: {found!r} in columns, {expected!r} by the codec")
    if surely_whole(segment_format, contents)[1] and segment_format.is_segment(data):
        raise BrokenPromiseError(f"{data!r} is a segment, and counts as surely whole")


def _packed(messages: list[bytes]) -> Packed:
    lengths = np.array([len(message) for message in messages], np.int64)
    ends = np.cumsum(lengths)
    return Packed(np.frombuffer(b"".join(messages) + bytes(SPARE_BYTES), np.uint8), ends - lengths, ends)


def _read(columns: SdsColumns, messages: Packed, row: int) -> _Read:
    return _Read(
        ids=tuple(_bytes(messages, column, row) or b"" for column in columns.ids.values()),
        lamport=int(columns.lamport.values[row]) if columns.lamport.present[row] else None,
        causal_history=_entries(messages, columns.lists["causal_history"], row),
        repair_request=_entries(messages, columns.lists["repair_request"], row),
        bloom=_bytes(messages, columns.bloom, row) or b"",
        content=_bytes(messages, columns.content, row) or b"",
    )


def _told(message: SdsMessage) -> _Read:
    return _Read(
        ids=(message.sender_id.encode(), message.message_id.encode(), message.channel_id.encode()),
        lamport=message.lamport_timestamp,
        causal_history=message.causal_history,
        repair_request=message.repair_request,
        bloom=message.bloom_filter or b"",
        content=message.content or b"",
    )


def _entries(messages: Packed, entries: EntryColumns, row: int) -> tuple[HistoryEntry | None, ...]:
    """Return the entries of a message; None stands for one whose ids are no text."""
    found: list[HistoryEntry | None] = []
    for place in np.flatnonzero(entries.owners == row).tolist():
        message_id, sender_id = (_bytes(messages, ids, place) for ids in (entries.message_id, entries.sender_id))
        try:
            found.append(
                HistoryEntry(
                    (message_id or b"").decode(),
                    _bytes(messages, entries.retrieval_hint, place),
                    None if sender_id is None else sender_id.decode(),
                )
            )
        except UnicodeDecodeError:
            found.append(None)
    return tuple(found)


def _bytes(messages: Packed, column: BytesColumn, place: int) -> bytes | None:
    if not column.present[place]:
        return None
    start = int(column.starts[place])
    return messages.data[start : start + int(column.lengths[place])].tobytes()


def _is_text(read: _Read) -> bool:
    """Return whether all ids are UTF-8, which is left to whoever makes text of them."""
    try:
        for value in read.ids:
            value.decode()
    except UnicodeDecodeError:
        return False
    return None not in (*read.causal_history, *read.repair_request)
