"""Archives that somebody made to hurt: what no encoder writes, mutated worlds, odd types in files, a flood of segments.

Beside `test_poisoned`, whose rows are made with the codecs. What runs on executors is called as Spark would call it;
one run over everything shows that Spark takes it too. FAIRWAY_POISON_ROWS=1000000 has one sender flood a channel with
so many rows.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.errors import ConfigurationError, DecodeError, SegmentError
from fairway.options import Profile
from fairway.pipeline.run import run
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, Selection
from fairway.pipeline.stages.decoded import decoding_mapper
from fairway.pipeline.stages.decoding import Status
from fairway.pipeline.stages.message_hashes import message_hashes
from fairway.simulation import Plan, World
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.segment import WAKU_SEGMENTS, Segment
from segment_sets import reassembled

FLOOD = int(os.environ.get("FAIRWAY_POISON_ROWS", "2000"))
SHARD = "/waku/2/rs/1/0"
START_NS = 1_760_000_000_000_000_000
FOREIGN = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    "\ufeff".encode(),
    "\U0010ffff".encode(),
    b"x" * 257,
    b"x" * 10_000_000,
)
"""Ids: invalid UTF-8, a surrogate, an overlong zero, beyond Unicode, and what is too long."""
NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
HEADER = Segment(
    payload_hash=b"k" * 32,
    index=0,
    data_count=3,
    parity_count=0,
    is_parity=False,
    payload=b"piece",
    payload_length=None,
)


def varint(number):
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def framed(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def numbered(field, number):
    return varint(field << 3) + varint(number)


BASES = {
    None: framed(1, b"eve") + framed(2, b"id") + framed(3, b"team") + numbered(10, 5) + framed(20, b"hi"),
    Profile.LOGOS.marker: framed(1, b"id") + numbered(2, 5) + framed(4, b"team") + framed(5, b"hi") + framed(7, b"eve"),
}


def crafted():
    """Payloads in which one field of a message is what it must not be, in both wires."""
    for meta, base in BASES.items():
        for field in (*range(1, 14), 20):
            for text in FOREIGN if field < 8 else FOREIGN[:-1]:
                yield base + framed(field, text), meta
                yield base + framed(field, framed(1, text) + framed(2, b"hint") + framed(3, text)), meta
            for number in NUMBERS:
                yield base + numbered(field, number), meta
        for odd in (b"\x0b" * 10_000, b"\x80" * 11, framed(1, b"") * 50_000, numbered(10, 1) * 50_000):
            yield base + odd, meta
        # Headers of segments: fields 1 to 8 with numbers that no set of segments has.
        for field in range(1, 9):
            for number in NUMBERS:
                told = (
                    framed(1, b"h" * 32)
                    + numbered(2, 1)
                    + numbered(3, 3)
                    + framed(4, b"piece")
                    + numbered(field, number)
                )
                yield framed(1, b"eve") + framed(2, b"id") + framed(3, b"team") + framed(20, told), None


def batch_of(pairs):
    payloads, metas = zip(*pairs, strict=True)
    columns = {
        "pubsub_topic": [SHARD] * len(pairs),
        "content_topic": ["/app/1/team/proto"] * len(pairs),
        "payload": payloads,
        "version": [0] * len(pairs),
        "timestamp_ns": [START_NS + number for number in range(len(pairs))],
        "meta": metas,
        "rate_limit_proof": payloads,
        "source": ["store"] * len(pairs),
    }
    rows = pa.RecordBatch.from_pydict(columns | {"message_hash": [b""] * len(pairs)}, schema=ARROW_SCHEMA)
    return rows.set_column(0, ARROW_SCHEMA.field(0), message_hashes(rows))


def decoded(pairs):
    """Return the rows of `sds_messages` over some payloads, each of which must come out."""
    found = pa.Table.from_batches(decoding_mapper()(iter([batch_of(pairs)])))
    found.validate(full=True)
    assert found.num_rows == len(pairs)
    assert {status.value for status in Status} >= set(found.column("status").to_pylist())
    return found


def test_what_no_encoder_writes_is_decoded_or_quarantined():
    pairs = [*crafted()]
    statuses = Counter()
    for start in range(0, len(pairs), 60):
        statuses.update(decoded(pairs[start : start + 60]).column("status").to_pylist())
    assert statuses.total() == len(pairs)
    assert statuses["ok"]
    assert statuses["not-sds"] > statuses["lamport-range"] > 0
    assert statuses["bad-segment"]


def world_payloads(seed):
    """What the store of a small world with files in segments holds."""
    profile = (Profile.WAKU, Profile.LOGOS)[seed % 2]
    plan = Plan(participants=4, duration_ms=60_000, seed=seed, profile=profile, messages_per_hour=240)
    options = plan.options()
    segmentation = replace(options.segmentation, segment_size_bytes=300, parity_rate=0.5)
    options = replace(options, segmentation=segmentation, sds=replace(options.sds, bloom_capacity=100))
    world = World(plan, options=options)
    world.run()
    return [(kept.message.payload, kept.message.meta) for kept in world.stored]


def mutated(pairs, rng):
    """Yield a payload as it was, cut, with bits changed, spliced with another, or under the other wire's name."""
    for payload, meta in pairs:
        match rng.randrange(5):
            case 0:
                yield payload, meta
            case 1:
                yield payload[: rng.randrange(len(payload) + 1)], meta
            case 2:
                changed = bytearray(payload)
                for _ in range(rng.randint(1, 4)):
                    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
                yield bytes(changed), meta
            case 3:
                other, _ = rng.choice(pairs)
                yield payload[: rng.randrange(len(payload))] + other[rng.randrange(len(other)) :], meta
            case 4:
                yield payload, None if meta == Profile.LOGOS.marker else Profile.LOGOS.marker


@pytest.mark.full
@pytest.mark.parametrize("shape", ["the same", "new payloads", "all counts", "parity alone", "every piece wrong"])
def test_a_flood_of_segments_of_one_hash_costs_its_sender_and_nobody_else(shape):
    flood = min(FLOOD, 100_000)
    shapes = {
        "the same": lambda _: HEADER,
        "new payloads": lambda number: replace(HEADER, payload=b"%d" % number),
        "all counts": lambda number: replace(HEADER, index=number % (2 + number % 250), data_count=2 + number % 250),
        "parity alone": lambda number: replace(
            HEADER, index=number % 10, data_count=0, parity_count=10, is_parity=True, payload=b"%5d" % number
        ),
        "every piece wrong": lambda number: replace(HEADER, index=number % 3, payload=b"%5d" % number),
    }
    contents = [WAKU_SEGMENTS.encode(shapes[shape](number)) for number in range(flood)]
    headers = []
    for content in contents:
        try:
            headers.append(WAKU_SEGMENTS.decode(content))
        except SegmentError:
            headers.append(None)
    read = [(content, header) for content, header in zip(contents, headers, strict=True) if header is not None]
    found = reassembled(
        {
            "channel_id": "team",
            "sender_id": "eve",
            "segment_hash": header.payload_hash,
            "profile": "waku",
            "message_id": f"id-{number}",
            "lamport": number % 7,
            "timestamp_ns": number,
            "is_parity": header.is_parity,
            "segment_index": header.index,
            "content": content,
            "causal_history": [{"message_id": f"id-{number + step}", "sender_id": "eve"} for step in (-2, -1, 0, 1)],
        }
        for number, (content, header) in enumerate(read)
    )
    assert sum(row["held"] for row in found) == len(read) > flood / 2
    assert "complete" not in {row["outcome"] for row in found}


def odd_archive(path, **changes):
    NwakuArchive(path).close()
    database = sqlite3.connect(path)
    for number in range(3):
        row = {
            "messageHash": bytes([number + 1]) * 32,
            "pubsubTopic": b"t",
            "contentTopic": b"c",
            "payload": b"x",
            "version": 0,
            "timestamp": number,
            "meta": None,
        } | (changes if number == 1 else {})
        database.execute(f"INSERT INTO Message VALUES ({', '.join(f':{name}' for name in row)})", row)
    database.commit()
    database.close()
    scan = scan_of(f"sqlite:{path}", Selection())
    return [row for part in scan.plan(2) for batch in scan.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "changes",
    [
        {"messageHash": "text"},
        {"messageHash": b""},
        {"messageHash": 7},
        {"payload": "text"},
        {"payload": 7},
        {"payload": 1.5},
        {"version": 2**40},
        {"version": -(2**40)},
        {"version": "text"},
        {"timestamp": 1.5},
        {"timestamp": -(2**63)},
        {"timestamp": 2**63 - 1},
        {"meta": 5},
        {"contentTopic": b"\xff\xfe"},
        {"pubsubTopic": 2.5},
    ],
    ids=str,
)
def test_whatever_sqlite_keeps_in_a_column_its_row_is_read(tmp_path, changes):
    assert len(odd_archive(tmp_path / "odd.db", **changes)) == 3


@pytest.mark.parametrize("timestamp", ["text", b"blob", 1e300, -1e300])
def test_a_time_that_no_range_holds_is_not_left_out_silently(tmp_path, timestamp):
    with pytest.raises(DecodeError, match="no integer of 64 bits"):
        odd_archive(tmp_path / "odd.db", timestamp=timestamp)


@pytest.mark.full
@pytest.mark.spark
def test_a_run_over_all_of_it_accounts_for_every_row(spark, tmp_path, seed, rng):
    pairs = [pair for pair in crafted() if len(pair[0]) < 1_000_000]
    pairs += mutated(world_payloads(seed), rng)
    flood = BASES[None].replace(b"\x12\x02id", b"")
    pairs += [(flood + framed(2, b"flood-%d" % number), None) for number in range(FLOOD)]
    rows = batch_of(pairs).to_pylist()
    # What no message lacks, a row of a file may.
    rows += [rows[0] | {name: None} for name in rows[0]]
    rows += [
        rows[0] | {"message_hash": None, "payload": b"other", "timestamp_ns": stamp} for stamp in (None, -1, 2**63 - 1)
    ]
    segment = next(row for row, (payload, _) in zip(rows, pairs, strict=False) if b"h" * 32 in payload)
    rows += [segment | {"message_hash": b"no time", "timestamp_ns": None}]
    pq.write_table(pa.Table.from_pylist(rows, schema=ARROW_SCHEMA), tmp_path / "rows.parquet")
    summary = run([f"parquet:{tmp_path / 'rows.parquet'}"], tmp_path / "run", spark=spark, blooms=FLOOD < 10_000)
    assert summary.balance.rows_in == len(rows)
    assert summary.balance.adds_up, str(summary.balance)
    (eve,) = (
        row
        for row in pq.read_table(tmp_path / "run" / "tables" / "sender_stats").to_pylist()
        if (row["channel_id"], row["sender_id"]) == ("team", "eve")
    )
    assert eve["content"] >= FLOOD


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("timestamp_ns", pa.array([1.5])),
        ("payload", pa.array([7])),
        ("message_hash", pa.array([7])),
        ("version", pa.array([b"one"])),
    ],
)
def test_a_table_with_other_columns_than_messages_have_is_refused(spark, tmp_path, column, values):
    table = pa.Table.from_batches([batch_of([(b"x", None)])])
    changed = table.set_column(table.column_names.index(column), column, values)
    pq.write_table(changed, tmp_path / "rows.parquet")
    with pytest.raises(ConfigurationError, match=f"its column {column} is"):
        run([f"parquet:{tmp_path / 'rows.parquet'}"], tmp_path / "run", spark=spark)
