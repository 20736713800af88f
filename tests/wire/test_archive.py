"""The byte layout of LIP-76 archives and their index."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.wire.archive import (
    ArchiveMetadata,
    IndexEntry,
    archive_messages,
    decode_index,
)
from fairway.wire.hashing import keccak256
from lip76_writing import encode_archive_message, encode_archive_metadata, encode_archive_padding, encode_index

METADATA = ArchiveMetadata(from_time=1, to_time=300, content_topics=("/a/1/b/proto",))
MESSAGES = [b"", b"one", bytes(500)]
ARCHIVE = b"".join(map(encode_archive_message, MESSAGES)) + encode_archive_metadata(METADATA)


def test_the_fields_have_the_numbers_of_the_specification():
    # version 1, metadata 2 {version 1, from 2, to 3, contentTopic 4}, messages 3
    assert encode_archive_metadata(METADATA) == bytes.fromhex("0801 1215 0801 1001 18ac02 220c") + b"/a/1/b/proto"
    assert encode_archive_message(b"abc") == bytes.fromhex("1a03") + b"abc"
    # archives 1 {key 1, value 2 {version 1, metadata 2, offset 3, num_pieces 4}}
    entry = IndexEntry(metadata=ArchiveMetadata(from_time=0, to_time=0), offset=7, pieces=2)
    value = bytes.fromhex("0801 1202 0801 1807 2002")
    key = b"0x" + keccak256(value).hex().encode()
    assert encode_index([entry]) == bytes.fromhex("0a50 0a42") + key + bytes.fromhex("120a") + value


def test_messages_are_read_in_their_order():
    assert list(archive_messages(ARCHIVE)) == MESSAGES


@pytest.mark.parametrize("zeros", [b"\0", bytes(10_000)])
def test_zero_bytes_behind_an_archive_end_it(zeros):
    assert list(archive_messages(ARCHIVE + zeros)) == MESSAGES


def test_fields_that_are_not_known_are_skipped():
    unknown = bytes.fromhex("5001 590102030405060708 6502030405 6a0161")
    assert list(archive_messages(unknown + ARCHIVE)) == MESSAGES


@given(st.integers(0, 5_000), st.integers(1, 700))
def test_padding_makes_whole_pieces_and_no_more_than_it_must(size, piece_bytes):
    padding = encode_archive_padding(size, piece_bytes)
    assert (size + len(padding)) % piece_bytes == 0
    assert list(archive_messages(padding)) == []
    # A gap that no padding fits takes further pieces: gaps of 1 and 130 bytes are such, so it is a few at most.
    assert len(padding) < piece_bytes + 132


def test_an_index_is_read_by_offset_and_equal_entries_have_equal_bytes():
    entries = [
        IndexEntry(metadata=METADATA, offset=offset, pieces=pieces) for offset, pieces in ((900, 2), (0, 9), (1100, 1))
    ]
    assert decode_index(encode_index(entries)) == tuple(sorted(entries, key=lambda entry: entry.offset))
    assert encode_index(entries) == encode_index(entries[::-1])


@pytest.mark.parametrize(
    ("cut", "whole", "why"), [(1, 3, "cut off"), (300, 2, "cut off"), (len(ARCHIVE) - 1, 0, "no number")]
)
def test_a_truncated_archive_raises_an_error_after_its_whole_messages(cut, whole, why):
    found = []
    with pytest.raises(DecodeError, match=why):
        found.extend(archive_messages(ARCHIVE[:-cut]))
    assert found == MESSAGES[:whole]
