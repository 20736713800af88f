import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.bloom import BloomFilter, BloomParameters
from fairway.wire.sds import (
    NIM_SDS,
    WAKU_SDS,
    HistoryEntry,
    Kind,
    SdsMessage,
)

DEFAULT = BloomParameters.of(10_000, 0.001)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
timestamps = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])
entries = st.builds(HistoryEntry, names, st.none() | st.binary(max_size=40), st.none() | names)
nim_entries = st.builds(
    HistoryEntry, names.filter(bool), st.none() | st.binary(min_size=1, max_size=40), st.none() | names.filter(bool)
)


def history_of(entry):
    return st.lists(entry, max_size=5).map(tuple)


content_messages = st.builds(
    SdsMessage,
    message_id=names,
    sender_id=names,
    channel_id=names,
    lamport_timestamp=timestamps,
    causal_history=history_of(entries),
    bloom_filter=st.none() | st.binary(max_size=100),
    repair_request=history_of(entries),
    content=st.none() | st.binary(max_size=100),
    vouches=st.booleans(),
    leaves=st.booleans(),
)
ephemeral_messages = st.builds(
    SdsMessage, message_id=names, sender_id=names, channel_id=names, content=st.binary(min_size=1, max_size=100)
)
nim_messages = st.builds(
    SdsMessage,
    message_id=names,
    sender_id=names,
    channel_id=names,
    lamport_timestamp=timestamps,
    causal_history=history_of(nim_entries),
    bloom_filter=st.binary(max_size=100),
    repair_request=history_of(nim_entries),
    content=st.binary(max_size=100),
    vouches=st.booleans(),
    leaves=st.booleans(),
)


@given(content_messages | ephemeral_messages)
def test_a_message_survives_the_waku_wire(message):
    if message.lamport_timestamp is None and not message.content:
        return
    assert WAKU_SDS.decode(WAKU_SDS.encode(message)) == message


@given(nim_messages)
def test_a_message_survives_the_logos_wire(message):
    assert NIM_SDS.decode(NIM_SDS.encode(message)) == message


def test_present_and_empty_fields_differ_from_absent_ones():
    empty = SdsMessage(
        message_id="m",
        sender_id="s",
        channel_id="c",
        lamport_timestamp=0,
        bloom_filter=b"",
        causal_history=(HistoryEntry("a", b"", ""),),
        content=b"x",
    )
    absent = SdsMessage(
        message_id="m", sender_id="s", channel_id="c", causal_history=(HistoryEntry("a"),), content=b"x"
    )
    encoded = WAKU_SDS.encode(empty).hex()
    assert all(tag in encoded for tag in ("5000", "6200", "12001a00"))
    assert WAKU_SDS.decode(WAKU_SDS.encode(empty)) == empty
    assert WAKU_SDS.decode(WAKU_SDS.encode(absent)) == absent
    assert (empty.kind, absent.kind) == (Kind.CONTENT, Kind.EPHEMERAL)


@pytest.mark.parametrize(
    ("lamport", "content", "kind"),
    [
        (0, b"x", Kind.CONTENT),
        (5, b"x", Kind.CONTENT),
        (None, b"x", Kind.EPHEMERAL),
        (0, b"", Kind.SYNC),
        (5, None, Kind.SYNC),
    ],
)
def test_timestamp_and_content_decide_the_kind_of_a_message(lamport, content, kind):
    message = SdsMessage(
        message_id="m", sender_id="s", channel_id="c", lamport_timestamp=lamport, content=content, bloom_filter=b"b"
    )
    assert WAKU_SDS.decode(WAKU_SDS.encode(message)).kind is kind


@pytest.mark.parametrize("content", [None, b""])
def test_a_message_with_neither_timestamp_nor_content_is_refused(content):
    message = SdsMessage(message_id="m", sender_id="s", channel_id="c", content=content)
    with pytest.raises(DecodeError, match="neither"):
        WAKU_SDS.decode(WAKU_SDS.encode(message))


def test_nim_sds_knows_no_ephemeral_messages_so_that_one_carries_the_timestamp_zero():
    message = SdsMessage(message_id="m", sender_id="s", channel_id="c", content=b"x")
    decoded = NIM_SDS.decode(NIM_SDS.encode(message))
    assert decoded.kind is Kind.CONTENT
    assert decoded.lamport_timestamp == 0


@pytest.mark.parametrize("lamport", [-1, 2**64])
@pytest.mark.parametrize("codec", [WAKU_SDS, NIM_SDS], ids=["waku", "nim"])
def test_a_timestamp_beyond_64_bits_is_not_written(codec, lamport):
    message = SdsMessage(
        message_id="m", sender_id="s", channel_id="c", lamport_timestamp=lamport, bloom_filter=b"", content=b"x"
    )
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        codec.encode(message)


def test_a_bloom_filter_on_the_logos_wire_carries_its_parameters():
    parameters = BloomParameters.of(12_000, 0.001)
    bloom = BloomFilter(parameters, NIM_SDS.bloom)
    bloom.insert("m1")
    received = NIM_SDS.read_bloom(NIM_SDS.write_bloom(bytes(bloom), parameters), DEFAULT)
    assert received.words == bytes(bloom)
    assert received.parameters == parameters
    assert "m1" in BloomFilter(received.parameters, NIM_SDS.bloom, received.words)
