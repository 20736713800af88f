"""Rows that are read in columns are what the codecs make of them one by one, whatever is wrong with them."""

from __future__ import annotations

import random
import sys
from itertools import product

import pytest

pytest.importorskip("pyspark")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import made_messages
from examples import examples
from fairway.options import Profile
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.packing import packed
from fairway.pipeline.stages.canonical_columns import canonical_columns
from fairway.pipeline.stages.decoding import BatchDecoder
from fairway.protocol.encryption import AesGcm
from fairway.protocol.encryption.hook import encrypt_at_once
from fairway.wire.sds import MAX_SDS_BYTES, HistoryEntry, SdsMessage
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment
from fairway.wire.signature import with_signature, with_signer_key
from made_messages import message

TOPIC = "/app/1/team/proto"
LOGOS = Profile.LOGOS.marker
METAS = {Profile.WAKU: None, Profile.LOGOS: LOGOS}


def batch_of(pairs, topics=None):
    """Return rows of (payload, meta)."""
    count = len(pairs)
    return pa.RecordBatch.from_pydict(
        {
            "message_hash": pa.array([b"%032d" % number for number in range(count)], pa.binary()),
            "timestamp_ns": pa.array(range(count), pa.int64()),
            "content_topic": pa.array(topics or [TOPIC] * count, pa.string()),
            "payload": pa.array([payload for payload, _ in pairs], pa.binary()),
            "meta": pa.array([meta for _, meta in pairs], pa.binary()),
        }
    )


def held_to_the_codecs(batch, *, profile=None, encryption=None, keys=None):
    """Decode a batch in columns and row by row, and return the rows, which must be the same."""
    decoders = [
        BatchDecoder(profile, encryption, keys and ChannelKeys.from_mapping(keys), few_rows=few, with_filters=True)
        for few in (1, sys.maxsize)
    ]
    columns, rows = (decoder.batch(batch) for decoder in decoders)
    columns.validate(full=True)
    assert columns.schema == rows.schema
    for number, (one, other) in enumerate(zip(columns.to_pylist(), rows.to_pylist(), strict=True)):
        assert one == other, f"row {number}: {batch.column('payload')[number].as_py()!r}"
    assert columns.equals(rows)
    is_ok = pa.compute.equal(columns["status"], "ok")
    for decoder in decoders:
        ids = pa.RecordBatch.from_pydict(decoder.ids(batch))
        assert ids.filter(is_ok).equals(columns.select(ids.schema.names).filter(is_ok))
    return columns


def read_in_columns(profile, *payloads):
    """Return which payloads are read in columns, and not row by row."""
    canonical, _ = canonical_columns(packed(pa.array(payloads, pa.binary())), profile)
    return canonical.tolist()


def segment(**changes):
    return made_messages.segment(**({"payload_length": 12} | changes))


def wire(profile, **changes):
    if profile is Profile.LOGOS and "content" not in changes:
        changes["content"] = LIP_243.encode(segment())
    return profile.codec.encode(message(**changes))


# What a message may have in it: text of every length and alphabet, also none.
NAMES = st.one_of(
    st.text(st.characters(codec="ascii"), min_size=1, max_size=12),
    st.sampled_from(["m", "m1", "m2", "a" * 255, "a" * 256, "a" * 257, "ä" * 128, "ä" * 129, "🛶" * 64, "\0", ""]),
)
ENTRIES = st.lists(
    st.builds(HistoryEntry, NAMES, st.none() | st.binary(max_size=40), st.none() | NAMES), max_size=5
).map(tuple)
COUNTS = st.sampled_from([0, 1, 2, 3, 200, 255, 256, 257, 2**31, 2**32 - 1])
SEGMENTS = st.builds(
    Segment,
    payload_hash=st.sampled_from([b"k" * 32] * 5 + [b"k" * 31, b"k" * 20, b""]),
    index=COUNTS,
    data_count=COUNTS,
    parity_count=COUNTS,
    is_parity=st.booleans(),
    payload=st.binary(max_size=30),
    payload_length=COUNTS,
)
CONTENTS = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.text(max_size=60).map(str.encode),
    SEGMENTS.map(WAKU_SEGMENTS.encode),
    SEGMENTS.map(LIP_243.encode),
)
MESSAGES = st.builds(
    SdsMessage,
    message_id=NAMES,
    sender_id=NAMES,
    channel_id=NAMES,
    lamport_timestamp=st.none() | st.integers(0, 2**64 - 1),
    causal_history=ENTRIES,
    bloom_filter=st.none() | st.binary(max_size=40),
    repair_request=ENTRIES,
    content=CONTENTS,
    vouches=st.booleans(),
)
ROWS = st.tuples(MESSAGES, st.sampled_from(Profile)).map(lambda pair: (pair[1].codec.encode(pair[0]), METAS[pair[1]]))


@examples(1)
@given(pairs=st.lists(ROWS, max_size=8))
def test_messages_of_both_wires_are_what_the_codecs_decode(pairs):
    held_to_the_codecs(batch_of(pairs))


def varint(number, size=1):
    """Return a varint of at least so many bytes."""
    found = b""
    while number > 127 or len(found) + 1 < size:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def framed(field, content, size=1):
    return varint(field << 3 | 2) + varint(len(content), size) + content


def fields_in(payload):
    """Return the fields of a message as (tag, what follows it up to the value, value)."""
    found, place = [], 0

    def read():
        nonlocal place
        number = shift = 0
        while True:
            byte = payload[place]
            place += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number

    while place < len(payload):
        tag = read()
        value = read()
        if tag & 7 == 2:
            found.append((tag, payload[place : place + value]))
            place += value
        else:
            found.append((tag, value))
    return found


def joined(fields, rng=None):
    """Return the bytes of fields, with ``rng`` in longer varints than need be."""
    found = b""
    for tag, value in fields:
        sizes = [rng.choice((1, 1, 1, 2, 3, 4, 9, 10)) if rng else 1 for _ in range(2)]
        found += varint(tag, sizes[0])
        found += varint(value, sizes[1]) if isinstance(value, int) else varint(len(value), sizes[1]) + value
    return found


def damaged(payload, rng, depth=0):
    """Return a payload with something wrong in it, often something that the codecs put up with."""
    fields = fields_in(payload)
    place = rng.randrange(len(fields))
    match rng.randrange(11):
        case 0:
            return payload[: rng.randrange(len(payload) + 1)]
        case 1:
            changed = bytearray(payload)
            for _ in range(rng.randint(1, 3)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            return bytes(changed)
        case 2:
            rng.shuffle(fields)
            return joined(fields)
        case 3:
            fields.insert(rng.randrange(len(fields) + 1), rng.choice(fields))
            return joined(fields)
        case 4:
            strange = rng.choice([(0x78, 5), (0x7A, b"new"), (0x08, 1), (0xA2 | 1 << 14, b""), (0x52, b"x")])
            fields.insert(rng.randrange(len(fields) + 1), strange)
            return joined(fields)
        case 5:
            return joined(fields, rng)
        case 6:
            del fields[place]
            return joined(fields)
        case 7:
            tag, value = fields[place]
            odd = rng.choice([0, 2**31, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 1])
            fields[place] = (
                tag,
                odd if isinstance(value, int) else value + rng.choice([b"\xff", b"\xed\xa0\x80", b"x" * 300]),
            )
            return joined(fields)
        case 8:
            # The length of a field says more than is there, also much more.
            tag, value = fields[place]
            if isinstance(value, int):
                return payload
            rest = joined(fields[place + 1 :])
            size = rng.choice([len(value) + len(rest) + 1, 2**20, 2**31, 2**40])
            return joined(fields[:place]) + varint(tag) + varint(size) + value + rest
        case 9 if depth == 0:
            # The same within a history entry or a content, of which not all are messages themselves.
            within = [number for number, (_, value) in enumerate(fields) if isinstance(value, bytes) and value]
            for number in rng.sample(within, len(within)):
                try:
                    inner = damaged(fields[number][1], rng, depth=1)
                except (IndexError, ValueError):
                    continue
                fields[number] = (fields[number][0], inner)
                break
            return joined(fields)
        case _:
            return payload + rng.choice([b"\0", b"\x0b", b"\x0c", b"\x0b\x0c", b"\x07", b"\x80" * 11, b"\x5a\x00" * 20])


def drawn_payload(rng, profile):
    """Return the payload of an ordinary message, drawn fast."""

    def entries():
        ids = [f"{rng.randrange(50):064x}" for _ in range(rng.randrange(4))]
        return tuple(HistoryEntry(one, rng.choice([None, bytes(32)]), rng.choice([None, "alice"])) for one in ids)

    form = rng.choice([WAKU_SEGMENTS, LIP_243])
    is_parity = rng.random() < 0.5
    piece = segment(is_parity=is_parity, parity_count=2 * is_parity, payload=rng.randbytes(rng.randrange(300)))
    plain = rng.choice([b"hello", rng.randbytes(100), b'{"type": "text", "body": "%s"}' % (b"x" * 120), None])
    return wire(
        profile,
        message_id=f"{rng.randrange(10**9):x}",
        lamport_timestamp=rng.choice([None, 0, 1, 1_760_000_000_000, 2**63 - 1]),
        causal_history=entries(),
        repair_request=entries(),
        bloom_filter=rng.choice([None, b"", bytes(200)]),
        content=rng.choice([plain, form.encode(piece)]),
        vouches=rng.random() < 0.5,
    )


@examples(0.3)
@given(draw=st.integers(0, 2**32))
def test_damaged_messages_among_whole_ones_are_what_the_codecs_say(draw):
    rng = random.Random(draw)
    pairs = []
    for _ in range(rng.choice([1, 5, 60])):
        profile = rng.choice(list(Profile))
        payload = drawn_payload(rng, profile)
        pairs.append((damaged(payload, rng) if rng.random() < 0.6 else payload, METAS[profile]))
        if rng.random() < 0.05:
            pairs.append((rng.choice([None, b"", rng.randbytes(60)]), rng.choice([None, LOGOS, b"else"])))
    for profile in (None, *Profile):
        held_to_the_codecs(batch_of(pairs), profile=profile)


@examples(1)
@given(payloads=st.lists(st.binary(max_size=80), max_size=8))
def test_any_bytes_are_what_the_codecs_say(payloads):
    for profile in Profile:
        held_to_the_codecs(batch_of([(payload, None) for payload in payloads]), profile=profile)


@pytest.mark.parametrize("profile", Profile)
def test_what_encoders_write_is_read_in_columns(profile):
    clean = [
        wire(profile),
        wire(profile, content=b"" if profile is Profile.LOGOS else None),
        wire(profile, causal_history=(), repair_request=(), bloom_filter=None),
        wire(profile, sender_id=""),
        wire(profile, sender_id="Zoë", message_id="ä" * 128, causal_history=(HistoryEntry("é", b"h", "ñ"),)),
        wire(profile, lamport_timestamp=2**63 - 1),
        wire(profile, causal_history=tuple(HistoryEntry(f"{number:064x}") for number in range(15))),
        wire(profile, content=profile.segments.encode(segment())),
        wire(profile, content=profile.segments.encode(segment(is_parity=True, data_count=4, parity_count=2)))
        if profile is Profile.LOGOS
        else wire(profile, lamport_timestamp=None, content=b"gone at once"),
    ]
    assert read_in_columns(profile, *clean) == [True] * len(clean)
    held_to_the_codecs(batch_of([(payload, None) for payload in clean]), profile=profile)


@pytest.mark.parametrize("profile", list(Profile), ids=[profile.value for profile in Profile])
def test_a_signed_message_is_read_in_columns_as_without_its_signature(profile):
    unsigned = wire(profile, causal_history=(HistoryEntry("m0", b"h" * 32, "bob"),), vouches=True)
    signed = [with_signature(covered, b"s" * 64) for covered in (unsigned, with_signer_key(unsigned, b"k" * 32))]
    assert read_in_columns(profile, *signed) == [True, True]
    columns = held_to_the_codecs(batch_of([(each, METAS[profile]) for each in (unsigned, *signed)]), profile=profile)
    rows = [{**row, "message_hash": b"", "timestamp_ns": 0, "payload_bytes": 0} for row in columns.to_pylist()]
    assert rows[0]["status"] == "ok"
    assert rows[1] == rows[2] == rows[0]


BAD_TEXT = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xe2\x82", b"x" * 257, b"")
GOOD_TEXT = ("é".encode(), "\U0010ffff".encode(), b"\0", b"x" * 256)
TEXT_FIELDS = {Profile.WAKU: (1, 2, 3), Profile.LOGOS: (1, 4, 7)}


@pytest.mark.parametrize("profile", Profile)
def test_text_that_is_none_costs_its_neighbours_nothing(profile):
    payloads = []
    for text, place in product(BAD_TEXT + GOOD_TEXT, range(5)):
        fields = fields_in(wire(profile))
        lists = {11, 13} if profile is Profile.WAKU else {3, 13}
        for number, (tag, value) in enumerate(fields):
            if place < 3 and tag >> 3 == TEXT_FIELDS[profile][place]:
                fields[number] = (tag, text)
            elif place >= 3 and tag >> 3 in lists:
                fields[number] = (
                    tag,
                    joined(
                        [(inner, text if inner >> 3 == (1, 3)[place - 3] else old) for inner, old in fields_in(value)]
                    ),
                )
        payloads += [joined(fields), wire(profile, sender_id="Zoë")]
    found = held_to_the_codecs(batch_of([(payload, None) for payload in payloads]), profile=profile)
    assert {"ok", "not-sds"} <= set(found.column("status").to_pylist())


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("size", [999, 1_000, 1_001, 5_001, 10_001])
def test_of_long_histories_the_newest_count(profile, size):
    entries = tuple(HistoryEntry(f"m{number}") for number in range(size))
    payloads = [wire(profile)] * 20 + [
        wire(profile, causal_history=entries),
        wire(profile, repair_request=entries),
        wire(profile, causal_history=entries, repair_request=entries),
        wire(profile, causal_history=entries + entries[:3]),
    ]
    found = held_to_the_codecs(batch_of([(payload, None) for payload in payloads]), profile=profile)
    cited = found.column("causal_history")[20].as_py()
    assert [entry["message_id"] for entry in cited] == [f"m{number}" for number in range(size)][-1_000:] * (
        size <= 10_000
    )


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("name", ["m", "m1", "1234567", "12345678", "123456789", "x" * 64, "é", "x" * 256])
def test_of_several_entries_for_one_message_the_last_counts(profile, name):
    twice = (HistoryEntry(name, b"first"), HistoryEntry("other"), HistoryEntry(name, b"last", "bob"))
    payloads = [wire(profile), wire(profile, causal_history=twice), wire(profile, repair_request=twice), wire(profile)]
    found = held_to_the_codecs(batch_of([(payload, None) for payload in payloads]), profile=profile)
    cited = found.column("causal_history")[1].as_py()
    assert [(entry["message_id"], entry["retrieval_hint"]) for entry in cited] == [(name, b"last"), ("other", None)]
    assert len(found.column("repair_request")[2].as_py()) == 3
    assert read_in_columns(profile, *payloads) == [True, False, True, True]


@pytest.mark.parametrize("profile", Profile)
def test_a_message_of_a_megabyte_is_read_and_a_longer_one_refused(profile):
    room = MAX_SDS_BYTES - len(wire(profile, bloom_filter=bytes(2**20 - 2_000))) + 2**20 - 2_000
    pairs = [(wire(profile, bloom_filter=bytes(room + more)), None) for more in (-1, 0, 1, 2**20)]
    found = held_to_the_codecs(batch_of(pairs), profile=profile)
    assert found.column("status").to_pylist() == ["ok", "ok", "not-sds", "not-sds"]


def test_entries_of_neighbours_are_not_taken_for_one_message():
    same = (HistoryEntry("m0"),)
    assert read_in_columns(Profile.WAKU, *[wire(Profile.WAKU, causal_history=same)] * 300) == [True] * 300


@pytest.mark.parametrize("profile", Profile)
def test_segments_within_and_beyond_the_limit(profile):
    contents = [
        form.encode(segment(index=index, data_count=count, parity_count=parity, is_parity=is_parity))
        for form in (WAKU_SEGMENTS, LIP_243)
        for index, count, parity in product((0, 1, 255, 2**31), (0, 1, 2, 4, 256, 257, 2**32 - 1), (0, 1, 3, 2**32 - 1))
        for is_parity in (False, True)
    ]
    pairs = [(wire(profile, content=content), None) for content in contents]
    found = held_to_the_codecs(batch_of(pairs), profile=profile)
    assert {"bad-segment", "ok"} <= set(found.column("status").to_pylist())


@pytest.mark.parametrize("profile", Profile)
def test_what_follows_a_varint_that_is_too_long_is_no_field(profile):
    whole = wire(profile, sender_id="") if profile is Profile.WAKU else wire(profile)
    after_lamport = whole[whole.index(b"\x5a" if profile is Profile.WAKU else b"\x1a") :]
    before_lamport = whole[: whole.index(b"\x50\x07" if profile is Profile.WAKU else b"\x10\x07") + 1]
    payloads = [b"\x0a\x80\x80\x80" + whole, before_lamport + b"\x80" * 9 + after_lamport, whole]
    found = held_to_the_codecs(batch_of([(payload, None) for payload in payloads]), profile=profile)
    assert found.column("status").to_pylist() == ["not-sds", "not-sds", "ok"]


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("entry", [b"", framed(2, b"hint"), framed(1, b""), framed(1, b"m") + framed(2, b""), b"bare"])
def test_an_entry_that_lacks_something_is_for_the_codec_to_judge(profile, entry):
    fields = fields_in(wire(profile))
    for number, (tag, value) in enumerate(fields):
        if tag >> 3 in {3, 11, 13} and value != b"team":
            fields[number] = (tag, entry)
    payloads = [joined(fields), wire(profile)]
    held_to_the_codecs(batch_of([(payload, None) for payload in payloads]), profile=profile)
    assert read_in_columns(profile, *payloads) == [False, True]


RIGHT, WRONG, OLD = (bytes([number]) * 32 for number in range(3))


def key_of(key):
    return {"cipher": "aes-256-gcm", "key": key.hex()}


KEYS = {
    "of a topic": {TOPIC: [key_of(RIGHT), key_of(OLD)]},
    "of a channel": {"team": key_of(RIGHT)},
    "of another channel": {"others": key_of(RIGHT)},
    "of a topic and its channel": {TOPIC: key_of(RIGHT), "team": key_of(OLD)},
    "of another topic": {"/app/1/others/proto": key_of(RIGHT)},
    "of two channels, the same": {"team": key_of(RIGHT), "others": key_of(RIGHT)},
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("profile", Profile)
def test_encrypted_messages_are_opened_or_refused_as_one_by_one(profile, keys, seed):
    rng = random.Random(seed)
    pairs, topics = [], []
    for _ in range(60):
        clear = wire(profile, channel_id=rng.choice(["team", "others", "third"]), message_id=f"{rng.random()}")
        if rng.random() < 0.3:
            clear = damaged(clear, rng)
        key = rng.choice([RIGHT, RIGHT, WRONG, OLD, None])
        encrypted = clear if key is None else encrypt_at_once(AesGcm(key, random_bytes=rng.randbytes), clear)
        pairs.append((rng.choice([encrypted] * 9 + [encrypted[:-1], b"", None]), METAS[profile]))
        topics.append(rng.choice([TOPIC, TOPIC, "/app/1/others/proto", None]))
    found = held_to_the_codecs(batch_of(pairs, topics), keys=KEYS[keys])
    assert {"ok", "not-for-us"} <= set(found.column("status").to_pylist()), f"seed {seed}"


class Inflating:
    """A cipher whose plaintexts are as long as it likes."""

    def encrypt(self, plaintext):
        return plaintext

    def decrypt(self, ciphertext):
        if ciphertext.startswith(b"!"):
            raise ValueError("not mine")
        return ciphertext * 40_000 if ciphertext.startswith(b"?") else ciphertext


def test_a_cipher_of_ones_own_may_refuse_and_inflate():
    clear = wire(Profile.WAKU)
    payloads = [clear, b"!", b"?" * 40, clear, None, b"? "]
    found = held_to_the_codecs(batch_of([(one, None) for one in payloads]), encryption=Inflating())
    assert found.column("status").to_pylist() == ["ok", "not-for-us", "not-sds", "ok", "not-sds", "not-sds"]


KINDS = (pa.binary(), pa.large_binary(), pa.binary_view())


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(("start", "rows"), [(0, 40), (3, 30), (39, 1), (40, 0)])
def test_slices_of_batches_and_other_types_of_bytes(kind, start, rows, seed):
    rng = random.Random(seed)
    profiles = [rng.choice(list(Profile)) for _ in range(40)]
    pairs = [(drawn_payload(rng, profile), METAS[profile]) for profile in profiles]
    pairs[5] = pairs[20] = (None, None)
    whole = batch_of(pairs)
    other = whole.set_column(3, "payload", whole.column("payload").cast(kind))
    assert held_to_the_codecs(other.slice(start, rows)).equals(held_to_the_codecs(whole.slice(start, rows)))


def test_bytes_behind_null_are_not_read():
    payload = wire(Profile.WAKU)
    offsets = pa.py_buffer(np.array([0, len(payload), 2 * len(payload)], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(payload * 2)])
    batch = batch_of([(payload, None)] * 2)
    found = held_to_the_codecs(batch.set_column(3, "payload", column))
    assert found.column("status").to_pylist() == ["not-sds", "ok"]


@pytest.mark.parametrize("rows", [0, 1, 256, 3_000])
def test_the_parts_of_a_batch_are_its_rows_each_once(rows, seed):
    rng = random.Random(seed)
    drawn = [(drawn_payload(rng, profile), METAS[profile]) for profile in [*Profile] * 50]
    batch = batch_of([drawn[number % 100] for number in range(rows)])
    numbered = batch.set_column(0, "message_hash", pa.array([b"%06d" % number for number in range(rows)], pa.binary()))
    decoder = BatchDecoder(None, None, None)
    parts = list(decoder.parts(numbered))
    whole = decoder.batch(numbered)
    assert pa.Table.from_batches(parts, whole.schema).sort_by("message_hash").equals(pa.Table.from_batches([whole]))
    mixed = [part for part in parts if set(part.column("status").to_pylist()) - {"ok"}]
    assert len(mixed) <= 1
