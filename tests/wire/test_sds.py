import json
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.bloom import BloomFilter, BloomParameters
from fairway.wire.sds import (
    MAX_ENTRIES,
    MAX_NAME_LENGTH,
    MAX_SDS_BYTES,
    NIM_SDS,
    WAKU_SDS,
    HistoryEntry,
    Kind,
    SdsMessage,
    codec_named,
)

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "sds.json").read_text())
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
)


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


def message_of(fields):
    """Return the message that a known answer describes, its bloom filter from the bits that are set."""

    def entries_of(key):
        return tuple(
            HistoryEntry(
                entry["messageId"],
                None if entry["retrievalHint"] is None else bytes.fromhex(entry["retrievalHint"]),
                entry["senderId"],
            )
            for entry in fields[key]
        )

    bloom = None
    if fields.get("bloomFilter_len"):
        whole = BloomFilter(DEFAULT)
        whole.set(fields["bloom_bits"])
        bloom = bytes(whole)
    lamport, content = fields["lamportTimestamp"], fields["content"]
    return SdsMessage(
        message_id=fields["messageId"],
        sender_id=fields["senderId"],
        channel_id=fields["channelId"],
        lamport_timestamp=None if lamport is None else int(lamport),
        causal_history=entries_of("causalHistory"),
        bloom_filter=bloom,
        repair_request=entries_of("repairRequest"),
        content=None if content is None else bytes.fromhex(content),
    )


JS_MESSAGES = [v for v in VECTORS["messages"] if v["decoded"] is not None and "zero-length" not in v["name"]]


@pytest.mark.parametrize("vector", JS_MESSAGES, ids=lambda v: v["name"])
def test_messages_are_encoded_as_js_waku_encodes_them_to_the_byte(vector):
    encoded = WAKU_SDS.encode(message_of(vector["decoded"]))
    assert len(encoded) == vector["length"]
    assert sha256(encoded).hexdigest() == vector["sha256"]
    assert encoded.hex() == vector.get("hex", encoded.hex())


@pytest.mark.parametrize("vector", JS_MESSAGES, ids=lambda v: v["name"])
def test_messages_of_js_waku_are_decoded_to_what_it_sent(vector):
    message = message_of(vector["decoded"])
    assert WAKU_SDS.decode(WAKU_SDS.encode(message)) == message
    assert message.kind.value == vector["decoded"]["kind"]


def test_content_of_no_length_makes_a_sync_message_as_in_js_waku():
    vector = next(v for v in VECTORS["messages"] if "zero-length" in v["name"])
    message = WAKU_SDS.decode(bytes.fromhex(vector["hex"]))
    assert message.kind is Kind.SYNC
    assert message.content == b""


@pytest.mark.parametrize("vector", VECTORS["decode_only"], ids=lambda v: v["name"])
def test_odd_bytes_are_read_as_js_waku_reads_them(vector):
    data = bytes.fromhex(vector["hex"])
    if vector["decoded"] is None:
        with pytest.raises(DecodeError):
            WAKU_SDS.decode(data)
    else:
        assert WAKU_SDS.decode(data) == message_of(vector["decoded"])


def test_one_message_has_the_bytes_of_the_specification_and_of_nim_sds():
    common = {
        "message_id": "m2",
        "sender_id": "alice",
        "channel_id": "ch",
        "content": b"hi",
        "causal_history": (HistoryEntry("m1", b"\1\2", "bob"),),
        "repair_request": (HistoryEntry("m0", None, "bob"),),
    }
    spec = SdsMessage(**common, lamport_timestamp=1_700_000_001_000)
    nim = SdsMessage(**common, lamport_timestamp=1_700_000_001, bloom_filter=b"")
    for codec, message, key in ((WAKU_SDS, spec, "spec_js"), (NIM_SDS, nim, "nim_sds")):
        data = bytes.fromhex(VECTORS["nim_wire"][key])
        assert codec.encode(message) == data
        assert codec.decode(data) == message


@settings(deadline=None)
@given(content_messages | ephemeral_messages)
def test_a_message_survives_the_waku_wire(message):
    if message.lamport_timestamp is None and not message.content:
        return
    assert WAKU_SDS.decode(WAKU_SDS.encode(message)) == message


@settings(deadline=None)
@given(nim_messages)
def test_a_message_survives_the_logos_wire(message):
    assert NIM_SDS.decode(NIM_SDS.encode(message)) == message


def test_what_is_present_and_empty_is_not_what_is_absent():
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
def test_timestamp_and_content_alone_decide_what_a_message_is(lamport, content, kind):
    message = SdsMessage(
        message_id="m", sender_id="s", channel_id="c", lamport_timestamp=lamport, content=content, bloom_filter=b"b"
    )
    assert WAKU_SDS.decode(WAKU_SDS.encode(message)).kind is kind


@pytest.mark.parametrize("content", [None, b""])
def test_a_message_with_neither_timestamp_nor_content_is_refused(content):
    message = SdsMessage(message_id="m", sender_id="s", channel_id="c", content=content)
    with pytest.raises(DecodeError, match="neither"):
        WAKU_SDS.decode(WAKU_SDS.encode(message))


@pytest.mark.parametrize("number", [1, 2, 4, 5])
def test_a_nim_message_lacks_none_of_its_required_fields(number):
    wanted = {1: b"m1", 2: 5, 4: b"ch", 5: b"hi"}
    del wanted[number]
    with pytest.raises(DecodeError, match="required"):
        NIM_SDS.decode(b"".join(field(n, value) for n, value in wanted.items()))


def test_nim_sds_knows_no_ephemeral_messages_so_that_one_carries_the_timestamp_zero():
    message = SdsMessage(message_id="m", sender_id="s", channel_id="c", content=b"x")
    decoded = NIM_SDS.decode(NIM_SDS.encode(message))
    assert decoded.kind is Kind.CONTENT
    assert decoded.lamport_timestamp == 0


def test_history_entries_of_the_first_nim_sds_are_bare_ids():
    bare = "9" * 64  # as an entry, this would be a truncated field
    assert NIM_SDS.decode(nim_bytes(field(3, bare.encode()))).causal_history == (HistoryEntry(bare),)
    with pytest.raises(DecodeError, match="neither an entry nor a bare id"):
        NIM_SDS.decode(nim_bytes(field(3, b"\xff\xfe")))
    with pytest.raises(DecodeError, match="no message id"):
        NIM_SDS.decode(nim_bytes(field(3, field(2, b"hint"))))


@pytest.mark.parametrize(("codec", "message"), [(WAKU_SDS, waku_bytes), (NIM_SDS, nim_bytes)], ids=["waku", "nim"])
def test_unknown_fields_are_skipped(codec, message):
    unknown = field(99, b"later") + field(77, 12345) + varint(88 << 3 | 1) + bytes(8) + varint(88 << 3 | 5) + bytes(4)
    assert codec.decode(message(unknown)) == codec.decode(message())


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (WAKU_SDS, field(1, b"bob") + waku_bytes(content=b"old") + waku_bytes()),
        (NIM_SDS, field(7, b"bob") + nim_bytes(content=b"old") + nim_bytes()),
    ],
    ids=["waku", "nim"],
)
def test_of_a_field_that_comes_twice_the_last_counts(codec, data):
    message = codec.decode(data)
    assert message.content == b"hi"
    assert message.message_id == "m1"


@pytest.mark.parametrize(
    ("codec", "message", "number"),
    [(WAKU_SDS, waku_bytes, n) for n in (1, 2, 3, 11, 12, 13, 20)]
    + [(NIM_SDS, nim_bytes, n) for n in (1, 3, 4, 5, 6, 7, 13)],
)
def test_a_known_field_of_another_wire_type_is_taken_for_an_unknown_one(codec, message, number):
    assert codec.decode(message(field(number, 7))) == codec.decode(message())


@pytest.mark.parametrize(("codec", "number"), [(WAKU_SDS, 10), (NIM_SDS, 2)], ids=["waku", "nim"])
def test_a_timestamp_that_is_text_is_no_timestamp(codec, number):
    message = waku_bytes if codec is WAKU_SDS else nim_bytes
    assert codec.decode(message(field(number, b"5"))).lamport_timestamp == 5


@pytest.mark.parametrize("codec", [WAKU_SDS, NIM_SDS], ids=["waku", "nim"])
def test_a_message_cut_off_anywhere_is_decoded_as_what_is_left_or_refused(codec):
    whole = SdsMessage(
        message_id="m2",
        sender_id="alice",
        channel_id="ch",
        lamport_timestamp=1_700_000_000_000,
        causal_history=(HistoryEntry("m1", b"\1\2", "bob"), HistoryEntry("m0", None, "bob")),
        bloom_filter=bytes(range(50)),
        repair_request=(HistoryEntry("m9", b"\3", "carol"),),
        content=b"some content",
    )
    data = codec.encode(whole)
    refused = 0
    for length in range(len(data)):
        try:
            message = codec.decode(data[:length])
        except DecodeError:
            refused += 1
            continue
        assert message != whole
        assert whole.causal_history[: len(message.causal_history)] == message.causal_history
    assert refused > len(data) / 2


@pytest.mark.parametrize("lamport", [2**63, 2**64 - 1])
@pytest.mark.parametrize(("codec", "message"), [(WAKU_SDS, waku_bytes), (NIM_SDS, nim_bytes)], ids=["waku", "nim"])
def test_the_largest_timestamps_are_read_as_they_stand(codec, message, lamport):
    assert codec.decode(message(lamport=lamport)).lamport_timestamp == lamport


@pytest.mark.parametrize("lamport", [-1, 2**64])
@pytest.mark.parametrize("codec", [WAKU_SDS, NIM_SDS], ids=["waku", "nim"])
def test_a_timestamp_beyond_64_bits_is_not_written(codec, lamport):
    message = SdsMessage(
        message_id="m", sender_id="s", channel_id="c", lamport_timestamp=lamport, bloom_filter=b"", content=b"x"
    )
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        codec.encode(message)


@pytest.mark.parametrize("codec", [WAKU_SDS, NIM_SDS], ids=["waku", "nim"])
@pytest.mark.parametrize("broken", ["channel_id", "causal_history"])
def test_text_that_is_not_unicode_is_not_written(codec, broken):
    fields = {"message_id": "m", "sender_id": "s", "channel_id": "c", "lamport_timestamp": 1, "content": b"x"}
    fields[broken] = "\ud800" if broken == "channel_id" else (HistoryEntry("\ud800"),)
    with pytest.raises(ConfigurationError, match="cannot be encoded"):
        codec.encode(SdsMessage(**fields))


@pytest.mark.parametrize(("codec", "message"), [(WAKU_SDS, waku_bytes), (NIM_SDS, nim_bytes)], ids=["waku", "nim"])
def test_text_that_is_not_utf8_is_refused(codec, message):
    with pytest.raises(DecodeError):
        codec.decode(message(field(1, b"\xff\xfe")))


@pytest.mark.parametrize(("codec", "number"), [(WAKU_SDS, 11), (WAKU_SDS, 13), (NIM_SDS, 3), (NIM_SDS, 13)])
def test_a_million_history_entries_are_refused_unread_and_fewer_are_counted(codec, number):
    message = waku_bytes if codec is WAKU_SDS else nim_bytes
    with pytest.raises(DecodeError, match="bytes, at most"):
        codec.decode(message(field(number, field(1, b"a")) * 1_000_000))
    with pytest.raises(DecodeError, match=f"{MAX_ENTRIES + 1} entries, at most"):
        codec.decode(message(field(number, field(1, b"a")) * (MAX_ENTRIES + 1)))
    assert len(codec.decode(message(field(number, field(1, b"a")) * MAX_ENTRIES)).channel_id) == 2


@pytest.mark.parametrize(("codec", "number"), [(WAKU_SDS, 12), (NIM_SDS, 6)], ids=["waku", "nim"])
def test_a_bloom_field_of_any_length_is_no_error_unless_the_message_grows_too_long(codec, number):
    message = waku_bytes if codec is WAKU_SDS else nim_bytes
    for length in (0, 1, 18_751, 18_752, 100_000):
        bloom = codec.decode(message(field(number, bytes(length)))).bloom_filter
        assert bloom == bytes(length)
        usable = codec is WAKU_SDS and length >= 18_752
        assert (codec.read_bloom(bloom, DEFAULT) is not None) == usable
    with pytest.raises(DecodeError, match="at most"):
        codec.decode(message(field(number, bytes(10**7))))


@pytest.mark.parametrize("codec", [WAKU_SDS, NIM_SDS], ids=["waku", "nim"])
def test_a_length_of_a_gigabyte_costs_nothing(codec):
    for number in (1, 3, 11, 20):
        with pytest.raises(DecodeError):
            codec.decode(varint(number << 3 | 2) + varint(10**9) + b"short")


@pytest.mark.parametrize("codec", [WAKU_SDS, NIM_SDS], ids=["waku", "nim"])
def test_more_bytes_than_a_waku_message_can_carry_are_refused_unread(codec):
    with pytest.raises(DecodeError, match="at most"):
        codec.decode(bytes(MAX_SDS_BYTES + 1))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_ids_that_would_be_kept_for_ever_are_bounded_on_the_waku_wire(number):
    longest = b"a" * MAX_NAME_LENGTH
    assert WAKU_SDS.decode(waku_bytes(field(number, longest)))
    assert WAKU_SDS.decode(waku_bytes(field(11, field(number, longest))))
    with pytest.raises(DecodeError, match="more than"):
        WAKU_SDS.decode(waku_bytes(field(number, longest + b"a")))
    with pytest.raises(DecodeError, match="more than"):
        WAKU_SDS.decode(waku_bytes(field(11, field(number, longest + b"a"))))


@pytest.mark.parametrize("number", [1, 4, 7])
def test_ids_that_would_be_kept_for_ever_are_bounded_on_the_logos_wire(number):
    longest = b"a" * MAX_NAME_LENGTH
    assert NIM_SDS.decode(nim_bytes(field(number, longest)))
    with pytest.raises(DecodeError, match="more than"):
        NIM_SDS.decode(nim_bytes(field(number, longest + b"a")))
    with pytest.raises(DecodeError, match="more than"):
        NIM_SDS.decode(nim_bytes(field(3, field(1, longest + b"a"))))
    with pytest.raises(DecodeError, match="more than"):
        NIM_SDS.decode(nim_bytes(field(3, b"9" * (MAX_NAME_LENGTH + 1))))


@settings(deadline=None)
@given(st.binary(max_size=300), st.sampled_from([WAKU_SDS, NIM_SDS]))
def test_any_bytes_are_a_message_or_a_decode_error(data, codec):
    try:
        message = codec.decode(data)
    except DecodeError:
        return
    assert codec.decode(codec.encode(message)) == message


@settings(deadline=None)
@given(st.data(), st.sampled_from([WAKU_SDS, NIM_SDS]))
def test_a_message_with_some_bytes_changed_is_a_message_or_a_decode_error(data, codec):
    encoded = bytearray(codec.encode(data.draw(nim_messages)))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = codec.decode(bytes(encoded))
    except DecodeError:
        return
    assert message.kind in Kind


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_any_bytes_are_a_bloom_filter_or_none_on_the_logos_wire(data):
    received = NIM_SDS.read_bloom(data, DEFAULT)
    assert received is None or received.parameters.bit_count <= 8 * len(received.words)


def test_a_bloom_filter_on_the_logos_wire_says_how_it_is_made():
    parameters = BloomParameters.of(12_000, 0.001)
    bloom = BloomFilter(parameters, NIM_SDS.bloom)
    bloom.insert("m1")
    received = NIM_SDS.read_bloom(NIM_SDS.write_bloom(bytes(bloom), parameters), DEFAULT)
    assert received.words == bytes(bloom)
    assert received.parameters == parameters
    assert "m1" in BloomFilter(received.parameters, NIM_SDS.bloom, received.words)


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


def test_on_the_waku_wire_a_bloom_filter_is_its_words():
    bloom = BloomFilter(DEFAULT)
    bloom.insert("m1")
    assert WAKU_SDS.write_bloom(bytes(bloom), DEFAULT) == bytes(bloom)
    assert WAKU_SDS.read_bloom(bytes(bloom) + b"more", DEFAULT).words == bytes(bloom) + b"more"


def test_codecs_go_by_the_names_of_the_profiles():
    assert codec_named("waku") is WAKU_SDS
    assert codec_named("logos") is NIM_SDS
    with pytest.raises(ConfigurationError, match="'waku' and 'logos'"):
        codec_named("matrix")
