"""Each message once, whatever its copies are like: the functions of the stages, without a Spark."""

from __future__ import annotations

import hashlib
from collections import defaultdict

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fairway.options import IdRule
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.sources import WAKU_MESSAGES
from fairway.pipeline.stages.decoded import DECODED
from fairway.pipeline.stages.deduplicated import DEDUPLICATED, each_once
from fairway.pipeline.stages.quarantine import forged
from fairway.pipeline.stages.sds_messages import copies_of, first_copies, further_copies
from fairway.protocol.sds.message_id import make_message_id
from fairway.storage.lip76 import Shards
from fairway.wire.waku_message import WakuMessage, message_hash

WAKU = exact_schema(WAKU_MESSAGES)
SDS = exact_schema(DECODED)

SHARD = "/waku/2/rs/1/0"
INTACT = {"pubsub_topic": SHARD, "content_topic": "a", "payload": b"x", "timestamp_ns": 1, "meta": None}
HASH = message_hash(SHARD, WakuMessage(payload=b"x", content_topic="a", timestamp_ns=1))

few_texts = st.none() | st.sampled_from(["", "a", "b", "é"])
few_bytes = st.none() | st.sampled_from([b"", b"x", b"\xff", b"xx"])
waku_rows = st.lists(
    st.fixed_dictionaries(
        {
            "message_hash": st.sampled_from([HASH, HASH, b"2", b"3" * 32, b""]),
            "pubsub_topic": few_texts,
            "content_topic": few_texts,
            "payload": few_bytes,
            "version": st.none() | st.integers(-1, 1),
            "timestamp_ns": st.none() | st.integers(-1, 1),
            "meta": few_bytes,
            "rate_limit_proof": few_bytes,
            "source": st.sampled_from(["", "a", "b", "é"]),
        }
    ).flatmap(lambda row: st.sampled_from([row, row | INTACT, row | INTACT | {"pubsub_topic": None}])),
    max_size=20,
)
ORDER = ("timestamp_ns", "source", "content_topic", "pubsub_topic", "version", "payload", "meta", "rate_limit_proof")


def fit_of(row):
    """Return 0 for a row with the hash of its contents, 1 if it does not say enough to know, else 2."""
    if len(row["message_hash"]) != 32:
        return 2
    content_topic = row["content_topic"] or ""
    for timestamp_ns in (row["timestamp_ns"], None):
        for zero in ("include", "omit"):
            message = WakuMessage(
                payload=row["payload"] or b"", content_topic=content_topic, timestamp_ns=timestamp_ns, meta=row["meta"]
            )
            topic = row["pubsub_topic"] or Shards().of(content_topic)
            if row["message_hash"] == message_hash(topic, message, zero_timestamp=zero):
                return 0
    return 2 if row["pubsub_topic"] else 1


def stores(rows):
    return sorted({row["source"] for row in rows} - {None}, key=str.encode)


def in_chunks(rows, schema, chunks):
    """Return rows as a table of several chunks, as blobs give it."""
    size = max(1, -(-len(rows) // chunks))
    parts = [pa.Table.from_pylist(rows[start : start + size], schema) for start in range(0, len(rows), size)]
    return pa.concat_tables([schema.empty_table(), *parts])


def place_in(order, row):
    """Return where a row sorts, as SQL sorts it: null first, text by its bytes."""
    values = (row[name] for name in order)
    return [(value is not None, value.encode() if isinstance(value, str) else value) for value in values]


@given(waku_rows, st.integers(1, 3), st.sampled_from([1, 100, 1 << 20]))
def test_of_the_copies_the_first_with_the_right_hash_stays_and_every_store_is_named(rows, chunks, piece_bytes):
    found = pa.concat_tables(
        [exact_schema(DEDUPLICATED).empty_table(), *each_once(in_chunks(rows, WAKU, chunks), piece_bytes=piece_bytes)]
    )
    copies = defaultdict(list)
    for row in rows:
        copies[row["message_hash"]].append(row)
    expected = {}
    for digest, same in copies.items():
        first = dict(min(same, key=lambda row: (fit_of(row), place_in(ORDER, row))))
        del first["source"]
        named = {
            "sources": stores(row for row in same if fit_of(row) < 2),
            "damaged": stores(row for row in same if fit_of(row) == 2),
        }
        first["rate_limit_proof"] = min(
            (row["rate_limit_proof"] for row in same if row["rate_limit_proof"] is not None), default=None
        )
        expected[digest] = first | named | {"copies": len(same)}
    assert found.num_rows == len(expected)
    assert {row["message_hash"]: row for row in found.to_pylist()} == expected


@st.composite
def sds_rows(draw):
    """Rows under few ids; some ids are a digest of one of the contents."""
    senders, contents, lamports = ("alice", "bob"), (None, b"x", b"y"), (None, 1, 2**63 - 1)
    digests = [
        make_message_id(rule, sender_id="alice", lamport=lamport or 0, content=b"x", now_ms=0, sequence=0)
        for rule, lamport in ((IdRule.UNIQUE, 1), (IdRule.UNIQUE, None), (IdRule.PAYLOAD, 1))
    ]
    numbers = draw(st.permutations(range(12)))
    return [
        {
            "message_hash": b"%02d" % number,
            "pubsub_topic": draw(st.sampled_from(["shard 0", "shard 1"])),
            "timestamp_ns": draw(st.integers(-1, 1)),
            "sources": ["store"],
            "status": "ok",
            "kind": draw(st.sampled_from(["content", "sync", "ephemeral"])),
            "channel_id": draw(st.sampled_from(["one", "other"])),
            "message_id": draw(st.sampled_from(["m", *digests])),
            "sender_id": draw(st.sampled_from(senders)),
            "content": draw(st.sampled_from(contents)),
            "lamport": draw(st.sampled_from(lamports)),
            "payload_bytes": draw(st.integers(7, 8)),
        }
        for number in numbers[: draw(st.integers(0, 12))]
    ]


def proven(row):
    content, lamport = row["content"] or b"", (row["lamport"] or 0).to_bytes(8)
    digests = (content, row["sender_id"].encode() + b"\0" + lamport + content)
    return row["kind"] == "content" and row["message_id"] in {hashlib.sha256(text).hexdigest() for text in digests}


@given(sds_rows(), st.integers(1, 3), st.sampled_from([1, 200, 1 << 20]))
def test_the_first_copy_stands_for_its_message_and_what_else_stands_under_its_id_is_forged(rows, chunks, piece_bytes):
    table = in_chunks(rows, SDS, chunks)
    copies = copies_of(table, piece_bytes=piece_bytes)
    kept = [row for part in first_copies(table, copies.is_first, piece_bytes=piece_bytes) for row in part.to_pylist()]
    same = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["timestamp_ns"], row["message_hash"])):
        same[row["channel_id"], row["message_id"]].append(row)
    expected: dict[bytes, str | None] = {}
    for alike in same.values():
        true = min(alike, key=lambda row: (not proven(row), row["kind"] != "content"))
        first, *further = (row for row in alike if said(row) == said(true))
        expected[first["message_hash"]] = None
        shards = {sending(first): first["pubsub_topic"]}
        for row in further:
            is_elsewhere = shards.setdefault(sending(row), row["pubsub_topic"]) != row["pubsub_topic"]
            expected[row["message_hash"]] = "other-shard" if is_elsewhere else "retransmission"
    assert [row["message_hash"] for row in kept] == [
        row["message_hash"] for row in rows if expected.get(row["message_hash"], "") is None
    ]
    repeats = further_copies(table, copies).to_pylist()
    assert {row["message_hash"]: row["reason"] for row in repeats} == {
        digest: reason for digest, reason in expected.items() if reason is not None
    }
    told = forged(table.filter(pa.array(~copies.is_honest))).to_pylist()
    assert {row["message_hash"]: row["error"] for row in told} == {
        row["message_hash"]: f"another message stands under the id {row['message_id']}"
        for row in rows
        if row["message_hash"] not in expected
    }
    assert all((row["status"], row["sources"]) == ("forged", ["store"]) for row in told)


def sending(row):
    return row["timestamp_ns"], row["payload_bytes"]


def said(row):
    return row["sender_id"], row["content"] or b""


@pytest.fixture
def pool():
    """Memory that Arrow takes from now on, and the most that it ever had."""
    before = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(before)
    pa.set_memory_pool(counted)
    yield counted
    pa.set_memory_pool(before)


def test_a_message_of_thousands_of_copies_takes_pieces_of_memory_and_not_all_of_it(rng, pool):
    """One hash in nearly every row, then one SDS message: of 30 MB one is worked on at a time."""
    count, content = 3_000, rng.randbytes(10_000)
    hashes = [b"the same"] * count
    hashes[rng.randrange(count)] = b"another"
    chunk = [{"payload": content, "timestamp_ns": 1, "source": "s"}] * 100
    table = pa.concat_tables([pa.Table.from_pylist(chunk, WAKU)] * 30)
    table = table.set_column(0, "message_hash", pa.array(hashes))
    before = pool.max_memory()
    kept = [part.select(["message_hash", "copies"]).to_pylist() for part in each_once(table, piece_bytes=1 << 20)]
    assert {row["message_hash"]: row["copies"] for part in kept for row in part} == {
        b"the same": count - 1,
        b"another": 1,
    }
    assert before < pool.max_memory() < 6 << 20


def test_an_sds_message_of_thousands_of_copies_as_well(rng, pool):
    count, content = 3_000, rng.randbytes(10_000)
    row = {"channel_id": "team", "message_id": "m", "sender_id": "a", "kind": "content", "content": content}
    chunk = [row | {"timestamp_ns": number % 30} for number in range(100)]
    table = pa.concat_tables([pa.Table.from_pylist(chunk, SDS)] * 30)
    table = table.set_column(0, "message_hash", pa.array([b"%04d" % number for number in range(count)]))
    before = pool.max_memory()
    copies = copies_of(table, piece_bytes=1 << 20)
    kept = [part["message_hash"].to_pylist() for part in first_copies(table, copies.is_first, piece_bytes=1 << 20)]
    assert [digest for part in kept for digest in part] == [b"0000"]
    assert copies.is_honest.all()
    assert before < pool.max_memory() < 6 << 20
