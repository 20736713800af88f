"""`read_sds`: the positions of the fields of many SDS messages, on either wire.

The order, numbers and types of the fields are those of the schemas. A canonical message obeys all rules of
`SdsCodec.decode` except one: the caller must check that ids are UTF-8.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.message import Message

from fairway.pipeline.columnar.cursor import (
    Bytes,
    BytesColumn,
    FieldCursor,
    Mask,
    NumberColumn,
    Packed,
    RepeatedColumn,
    Rows,
    tags_of,
)
from fairway.wire.proto import sds_pb2
from fairway.wire.sds import MAX_ENTRIES, MAX_NAME_LENGTH, MAX_SDS_BYTES, NIM_SDS, WAKU_SDS, SdsCodec

IDS: Final = ("sender_id", "message_id", "channel_id")
LISTS: Final = ("causal_history", "repair_request")
_LAMPORT: Final = "lamport_timestamp"
_VOUCHES: Final = "vouches"


class _Wire:
    """The tags of one wire, each in ascending order of the fields' numbers."""

    def __init__(self, message: type[Message], entry: type[Message], required: tuple[str, ...]) -> None:
        self.message = tags_of(message)
        self.entry = tags_of(entry)
        self.required = required
        """Fields that every message must have."""


_WIRES: Final = {
    WAKU_SDS: _Wire(sds_pb2.SdsMessage, sds_pb2.HistoryEntry, ()),
    NIM_SDS: _Wire(sds_pb2.NimSdsMessage, sds_pb2.NimHistoryEntry, (_LAMPORT, "content")),
}


class EntryColumns(NamedTuple):
    """The entries of one list field, message by message."""

    owners: Rows
    """The message of each entry."""
    message_id: BytesColumn
    retrieval_hint: BytesColumn
    sender_id: BytesColumn


class SdsColumns(NamedTuple):
    """The positions of the fields of SDS messages; those of a message that is not canonical are undefined."""

    canonical: Mask
    ids: dict[str, BytesColumn]
    lists: dict[str, EntryColumns]
    lamport: NumberColumn
    bloom: BytesColumn
    content: BytesColumn
    vouches: Mask


def read_sds(codec: SdsCodec, messages: Packed, most_entries: int) -> SdsColumns:
    """Read the messages of one wire; a canonical one has at most ``most_entries`` entries in each list."""
    wire = _WIRES[codec]
    # The scalar codec counts both lists together.
    most_entries = min(most_entries, MAX_ENTRIES // len(LISTS))
    cursor = FieldCursor(messages)
    cursor.canonical &= messages.ends - messages.starts <= MAX_SDS_BYTES
    found: dict[str, BytesColumn] = {}
    listed: dict[str, RepeatedColumn] = {}
    for name, tag in wire.message.items():
        if name == _LAMPORT:
            lamport = cursor.varint(tag)
        elif name == _VOUCHES:
            vouches = cursor.varint(tag).values
        elif name in LISTS:
            listed[name] = cursor.repeated(tag, most_entries)
        else:
            found[name] = cursor.length_delimited(tag)
    canonical = cursor.finish() & (vouches <= 1)
    ids = {name: found[name] for name in IDS}
    content = found["content"]
    canonical &= (ids["message_id"].lengths > 0) & (ids["channel_id"].lengths > 0)
    canonical &= lamport.present | (content.lengths > 0)
    for column in ids.values():
        canonical &= column.lengths <= MAX_NAME_LENGTH
    for name in wire.required:
        canonical &= (lamport if name == _LAMPORT else found[name]).present
    lists = {name: _entries(wire, messages.data, elements, canonical) for name, elements in listed.items()}
    return SdsColumns(canonical, ids, lists, lamport, found["bloom_filter"], content, vouches > 0)


def _entries(wire: _Wire, data: Bytes, elements: RepeatedColumn, canonical: Mask) -> EntryColumns:
    """Read the entries of a list, and remove the messages with entries that are not canonical from the mask.

    A canonical entry has an id and no empty field, because an empty field has different meanings on the two wires.
    """
    cursor = FieldCursor(Packed(data, elements.starts, elements.starts + elements.lengths))
    columns = {name: cursor.length_delimited(tag) for name, tag in wire.entry.items()}
    good = cursor.finish()
    for column in columns.values():
        good &= (column.lengths <= MAX_NAME_LENGTH) & ((column.lengths > 0) == column.present)
    good &= columns["message_id"].present
    canonical[elements.owners[~good]] = False
    return EntryColumns(elements.owners, **columns)
