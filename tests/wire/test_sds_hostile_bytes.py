"""Bytes that nobody should send: every one of them is a message or a `DecodeError`, and none costs much."""

import pytest

from fairway.errors import DecodeError
from fairway.wire.bloom import BloomParameters
from fairway.wire.sds import (
    MAX_NAME_LENGTH,
    NIM_SDS,
    WAKU_SDS,
    HistoryEntry,
    SdsMessage,
)

DEFAULT = BloomParameters.of(10_000, 0.001)


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number, data):
    """Return a protobuf field: bytes length-delimited, integers as varint."""
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    return varint(number << 3 | 2) + varint(len(data)) + data


def waku_bytes(*further, content=b"hi", lamport=5):
    return b"".join(
        (field(1, b"alice"), field(2, b"m1"), field(3, b"ch"), field(10, lamport), field(20, content), *further)
    )


def nim_bytes(*further, content=b"hi", lamport=5):
    return b"".join((field(1, b"m1"), field(2, lamport), field(4, b"ch"), field(5, content), *further))


@pytest.mark.parametrize("number", [1, 2, 4, 5])
def test_a_nim_message_lacks_none_of_its_required_fields(number):
    wanted = {1: b"m1", 2: 5, 4: b"ch", 5: b"hi"}
    del wanted[number]
    with pytest.raises(DecodeError, match="required"):
        NIM_SDS.decode(b"".join(field(n, value) for n, value in wanted.items()))


def test_history_entries_of_the_first_nim_sds_are_bare_ids():
    bare = "9" * 64  # as an entry, this would be a truncated field
    assert NIM_SDS.decode(nim_bytes(field(3, bare.encode()))).causal_history == (HistoryEntry(bare),)
    with pytest.raises(DecodeError, match="neither an entry nor a bare id"):
        NIM_SDS.decode(nim_bytes(field(3, b"\xff\xfe")))
    with pytest.raises(DecodeError, match="no message id"):
        NIM_SDS.decode(nim_bytes(field(3, field(2, b"hint"))))


@pytest.mark.parametrize(
    ("codec", "message", "number"),
    [(WAKU_SDS, waku_bytes, n) for n in (1, 2, 3, 11, 12, 13, 20)]
    + [(NIM_SDS, nim_bytes, n) for n in (1, 3, 4, 5, 6, 7, 13)],
)
def test_a_known_field_of_another_wire_type_is_skipped(codec, message, number):
    assert codec.decode(message(field(number, 7))) == codec.decode(message())


@pytest.mark.parametrize("number", [1, 2, 3])
def test_stored_ids_are_bounded_on_the_waku_wire(number):
    longest = b"a" * MAX_NAME_LENGTH
    assert WAKU_SDS.decode(waku_bytes(field(number, longest)))
    assert WAKU_SDS.decode(waku_bytes(field(11, field(number, longest))))
    with pytest.raises(DecodeError, match="more than"):
        WAKU_SDS.decode(waku_bytes(field(number, longest + b"a")))
    with pytest.raises(DecodeError, match="more than"):
        WAKU_SDS.decode(waku_bytes(field(11, field(number, longest + b"a"))))


def test_nothing_without_an_id_is_cited_on_the_logos_wire_for_readers_would_refuse_the_whole_message():
    message = SdsMessage(
        message_id="m",
        sender_id="s",
        channel_id="c",
        lamport_timestamp=1,
        causal_history=(HistoryEntry(""), HistoryEntry("m0")),
        repair_request=(HistoryEntry("", None, "zoe"),),
        content=b"x",
    )
    decoded = NIM_SDS.decode(NIM_SDS.encode(message))
    assert decoded.causal_history == (HistoryEntry("m0"),)
    assert decoded.repair_request == ()


@pytest.mark.parametrize("number", [1, 4, 7])
def test_stored_ids_are_bounded_on_the_logos_wire(number):
    longest = b"a" * MAX_NAME_LENGTH
    assert NIM_SDS.decode(nim_bytes(field(number, longest)))
    with pytest.raises(DecodeError, match="more than"):
        NIM_SDS.decode(nim_bytes(field(number, longest + b"a")))
    with pytest.raises(DecodeError, match="more than"):
        NIM_SDS.decode(nim_bytes(field(3, field(1, longest + b"a"))))
    with pytest.raises(DecodeError, match="more than"):
        NIM_SDS.decode(nim_bytes(field(3, b"9" * (MAX_NAME_LENGTH + 1))))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_bloom_filter_on_the_logos_wire_lacks_none_of_its_fields(number):
    wanted = {1: bytes(16), 2: 10, 3: 1_000, 4: 3, 5: 100}
    whole = b"".join(field(n, value) for n, value in wanted.items())
    assert NIM_SDS.read_bloom(whole, DEFAULT) is not None
    del wanted[number]
    assert NIM_SDS.read_bloom(b"".join(field(n, value) for n, value in wanted.items()), DEFAULT) is None


@pytest.mark.parametrize("changed", [{4: 0}, {4: 65}, {4: 2**64 - 1}, {5: 0}, {5: 129}, {5: 2**64 - 1}, {1: b""}])
def test_a_bloom_filter_on_the_logos_wire_cannot_claim_the_impossible(changed):
    wanted = {1: bytes(16), 2: 10, 3: 1_000, 4: 3, 5: 100} | changed
    assert NIM_SDS.read_bloom(b"".join(field(n, value) for n, value in wanted.items()), DEFAULT) is None
