"""Payloads of reconciliation and transfers: the layout of nwaku, and the example of WAKU-SYNC."""

from itertools import pairwise, starmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.wire.store_sync import (
    MAX_PAYLOAD_BYTES,
    MAX_RANGES,
    MAX_TOPICS,
    ZERO_HASH,
    ItemSet,
    SyncId,
    SyncPayload,
    SyncRange,
    Transfer,
    decode_sync_payload,
    decode_transfer,
    encode_sync_payload,
    encode_transfer,
)

hashes = st.binary(min_size=32, max_size=32)
ids = st.builds(SyncId, st.integers(0, 2**63 - 1), hashes)
item_sets = st.builds(ItemSet, st.lists(ids, max_size=4, unique=True).map(sorted).map(tuple), st.booleans())
contents = st.none() | hashes | item_sets


def at(timestamp_ns, message_hash=ZERO_HASH):
    return SyncId(timestamp_ns, message_hash)


@st.composite
def payloads(draw):
    """Any payload that an encoder of the protocol can mean: a hash tells bounds of one time apart, and only these."""
    times = sorted(draw(st.lists(st.integers(0, 2**63 - 1), min_size=2, max_size=6)))
    bounds = [at(times[0])]
    for time_ns in times[1:]:
        if time_ns > bounds[-1].timestamp_ns:
            bounds.append(at(time_ns))
        else:
            later = draw(hashes)
            bounds += [at(time_ns, later)] if later > bounds[-1].message_hash else []
    topics = st.lists(st.text(max_size=9), max_size=3).map(tuple)
    ranges = tuple(SyncRange(start, end, draw(contents)) for start, end in pairwise(bounds))
    if not ranges:
        return SyncPayload()
    return SyncPayload(pubsub_topics=draw(topics), content_topics=draw(topics), ranges=ranges)


@given(payloads())
def test_any_payload_survives_the_wire(payload):
    assert decode_sync_payload(encode_sync_payload(payload)) == payload


def test_a_payload_has_the_layout_of_nwaku():
    message_hash = bytes(range(32))
    payload = SyncPayload(
        pubsub_topics=("/waku/2/rs/2/0",),
        ranges=(
            SyncRange(at(1000), at(1300)),
            SyncRange(at(1300), at(1302), message_hash),
            SyncRange(at(1302), at(1303), ItemSet((at(1302, message_hash),), reconciled=True)),
        ),
    )
    assert (
        encode_sync_payload(payload).hex()
        == (
            "01" + "0e" + b"/waku/2/rs/2/0".hex() + "00"  # topics, each behind its length; no content topics
            "e807" + "ac02" + "00"  # 1000, the start; 300 later; no content
            "02"
            + "01"
            + message_hash.hex()  # 2 later; fingerprint
            + "01"
            + "02"
            + "01"
            + "960a"
            + message_hash.hex()
            + "01"  # 1 later; item set of one: 1302, hash; reconciled
        )
    )


def test_bounds_of_one_time_have_the_truncated_hashes_of_the_example_of_the_specification():
    """WAKU-SYNC, "Delta encoding for sequential SyncIDs": 1000, 1002, 1002 with 0x3560, 1003."""
    bounds = [at(1000), at(1002), at(1002, bytes.fromhex("3560").ljust(32, b"\0")), at(1003)]
    payload = SyncPayload(ranges=tuple(starmap(SyncRange, pairwise(bounds))))
    data = encode_sync_payload(payload)
    assert data.hex() == "0000" + "e807" + "0200" + "00023560" + "00" + "0100"
    assert decode_sync_payload(data) == payload


@pytest.mark.parametrize("data", [b"", b"\0"], ids=["nothing", "a zero byte"])
def test_a_payload_that_ends_a_session_is_read_in_both_forms_of_nwaku(data):
    assert decode_sync_payload(data) == SyncPayload()
    assert encode_sync_payload(SyncPayload()) == b"\0"


FINGERPRINT = "01" + "ab" * 32


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("0000e807", "no range"),
        ("0000e807" + "01" + "03", "an unknown type"),
        ("0000e807" + "01" + "01ab", "a short fingerprint"),
        ("0000e807" + "0000" + FINGERPRINT, "a range without an extent"),
        ("0000e807" + "0021" + "ab" * 33 + FINGERPRINT, "a hash of 33 bytes"),
        ("0000" + "ff" * 8 + "7f" + "01" + FINGERPRINT, "a time beyond 63 bits"),
        ("0000e807" + "01" + "02" + "ffffff7f" + "00", "a long item set without items"),
        ("0000e807" + "01" + "02" + "00" + "02", "an end of an item set that is neither 0 nor 1"),
        ("0000" + "ff" * 10, "a number without an end"),
        ("01ff7f" + "00" * 9, "a topic beyond the end"),
        ("0102c328" + "00e807" + "01" + FINGERPRINT, "a topic that is no text"),
    ],
    ids=lambda value: value if " " in value else "",
)
def test_a_malformed_payload_raises(data, problem):
    if problem == "no range":
        assert decode_sync_payload(bytes.fromhex(data)).ranges == ()
    else:
        with pytest.raises(DecodeError):
            decode_sync_payload(bytes.fromhex(data))


@pytest.mark.parametrize(
    "data",
    [
        bytes(MAX_PAYLOAD_BYTES + 1),
        bytes.fromhex("0000e807") + b"\x01\x00" * (MAX_RANGES + 1),
        bytes([0x81, 0x08]) + b"\0" * (MAX_TOPICS + 2),
    ],
    ids=["bytes", "ranges", "topics"],
)
def test_a_payload_beyond_a_bound_raises(data):
    with pytest.raises(DecodeError, match=r"most|more than"):
        decode_sync_payload(data)


def test_a_transfer_has_the_fields_of_nwaku():
    transfer = Transfer(pubsub_topic="/waku/2/rs/2/0", message_bytes=b"\x0a\x01x")
    data = encode_transfer(transfer)
    assert data.hex() == "0a0e" + b"/waku/2/rs/2/0".hex() + "1203" + "0a0178"
    assert decode_transfer(data) == transfer


@pytest.mark.parametrize("data", ["", "0a0161", "12030a0178"], ids=["empty", "no message", "no topic"])
def test_a_transfer_without_a_field_raises(data):
    with pytest.raises(DecodeError):
        decode_transfer(bytes.fromhex(data))
