"""An archive in which everything is wrong that anybody can put there: nothing raises, and every row is accounted for.

Whoever is on the network writes what he likes into stores, and a file of rows may come from anywhere. One run over it
serves all tests; the balance and the tables are held against what was put in.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.options import IdRule, Profile, SegmentationConfig
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run import run
from fairway.protocol.encryption import AesGcm
from fairway.protocol.encryption.hook import encrypt_at_once
from fairway.protocol.sds.message_id import make_message_id
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.sds import NIM_SDS, WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment
from fairway.wire.waku_message import WakuMessage, message_hash

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.usefixtures("compiled")]

SHARD = "/waku/2/rs/1/0"
TOPIC = "/app/1/team/proto"
START_NS = 1_760_000_000_000_000_000
RIGHT_KEY, WRONG_KEY = bytes(range(32)), bytes(range(1, 33))
FAR = 2**63 - 1
SCHEMA = pa.schema(
    [
        ("message_hash", pa.binary()),
        ("pubsub_topic", pa.string()),
        ("content_topic", pa.string()),
        ("payload", pa.binary()),
        ("version", pa.int32()),
        ("timestamp_ns", pa.int64()),
        ("meta", pa.binary()),
        ("source", pa.string()),
    ]
)
HOSTILE_NAMES = (
    "\0",
    "\x01\x02\x1b[31m red",
    "a\nb\r\n\tc",
    "\u202edrow",
    "🛶" * 64,
    "x" * 256,
    "'; DROP TABLE messages; --",
    "../../up",
    "%00",
    "null",
    " ",
    "a=b/c=d",
    "__HIVE_DEFAULT_PARTITION__",
)


@dataclass
class Poison:
    """Rows, and how many of them were put in under which heading."""

    rows: list = field(default_factory=list)
    put: Counter = field(default_factory=Counter)

    def add(self, heading, payload, **columns):
        number = len(self.rows)
        row = {
            "pubsub_topic": SHARD,
            "content_topic": TOPIC,
            "payload": payload,
            "version": 0,
            "timestamp_ns": START_NS + number * 1_000_000,
            "meta": None,
            "rate_limit_proof": None,
            "source": "store",
        } | columns
        if "message_hash" not in row:
            message = WakuMessage(
                payload=row["payload"] or b"",
                content_topic=row["content_topic"] or "",
                timestamp_ns=row["timestamp_ns"],
                meta=row["meta"],
            )
            row["message_hash"] = message_hash(row["pubsub_topic"] or "", message)
        self.rows.append(row)
        self.put[heading] += 1

    def sds(self, heading, codec=WAKU_SDS, columns=None, **fields):
        told = {
            "message_id": f"id-{len(self.rows)}",
            "sender_id": "eve",
            "channel_id": "team",
            "lamport_timestamp": len(self.rows) + 1,
            "content": b"said %d" % len(self.rows),
        } | fields
        if codec is NIM_SDS and told["content"]:
            told["content"] = Segmenter(SegmentationConfig(), LIP_243).split(told["content"]).segments[0].content
        meta = Profile.LOGOS.marker if codec is NIM_SDS else None
        self.add(heading, codec.encode(SdsMessage(**told)), **({"meta": meta} | (columns or {})))
        return told


def segment(**changes):
    fields = {
        "payload_hash": b"k" * 32,
        "index": 0,
        "data_count": 3,
        "parity_count": 0,
        "is_parity": False,
        "payload": b"piece" * 20,
        "payload_length": None,
    }
    return WAKU_SEGMENTS.encode(Segment(**(fields | changes)))


def random_bytes(poison, rng):
    """Bytes that no message begins with, so that it is certain what becomes of them, and others."""
    for size in range(300):
        poison.add("not-sds", b"\x07" + rng.randbytes(size))
    for size in range(200):
        poison.add("anything", rng.randbytes(size), meta=rng.choice([None, Profile.LOGOS.marker, rng.randbytes(30)]))


def truncated(poison, rng):
    message = SdsMessage(
        message_id="whole",
        sender_id="alice",
        channel_id="truncated",
        lamport_timestamp=7,
        causal_history=tuple(HistoryEntry(f"parent-{number}", b"hint", "bob") for number in range(5)),
        bloom_filter=bytes(40),
        repair_request=(HistoryEntry("lost", b"hint", "bob"),),
        content=b"content",
    )
    for codec, meta in ((WAKU_SDS, None), (NIM_SDS, Profile.LOGOS.marker)):
        encoded = codec.encode(message)
        for size in range(len(encoded)):
            poison.add("anything", encoded[:size], meta=meta)
        for _ in range(100):
            place = rng.randrange(len(encoded))
            flipped = bytes([encoded[place] ^ 1 << rng.randrange(8)])
            poison.add("anything", encoded[:place] + flipped + encoded[place + 1 :], meta=meta)


def hostile_ids(poison):
    for codec in (WAKU_SDS, NIM_SDS):
        for name in HOSTILE_NAMES:
            poison.sds("ok" if codec is WAKU_SDS else "forged", codec, message_id=name)  # it is there already
            poison.sds("ok", codec, channel_id=name)
            poison.sds("ok", codec, sender_id=name)
            poison.sds("ok", codec, causal_history=(HistoryEntry(name, b"\0" * 256, name),))
        for empty in ("message_id", "channel_id"):
            poison.sds("no-id", codec, **{empty: ""})
        poison.sds("ok", codec, sender_id="")
        for name in ("message_id", "sender_id", "channel_id"):
            poison.sds("not-sds", codec, **{name: "y" * 257})
        poison.sds("lamport-range", codec, lamport_timestamp=2**64 - 1)
        poison.sds("ok", codec, lamport_timestamp=FAR)
        poison.sds("ok", codec, lamport_timestamp=0)
    for sender in ("alice", "bob", "carol", "eve"):
        poison.sds("ok" if sender == "alice" else "forged", message_id="the same", sender_id=sender, content=b"x")
    for _ in range(2):
        poison.sds("ok", message_id="the same", sender_id="alice", content=b"x")
    true = {"sender_id": "alice", "lamport_timestamp": 77, "content": b"what alice said"}
    name = make_message_id(IdRule.UNIQUE, sender_id="alice", lamport=77, content=true["content"], now_ms=0, sequence=0)
    poison.sds("forged", message_id=name, **true | {"content": b"what she did not say"})
    poison.sds("forged", message_id=name, content=None, causal_history=(HistoryEntry("myself"),))
    poison.sds("ok", message_id=name, **true)
    for channel in ("one", "two", "three"):
        poison.sds("ok", message_id="the same", channel_id=channel)
    poison.sds("ok", message_id="myself", causal_history=(HistoryEntry("myself"),))
    poison.sds("ok", message_id="chicken", causal_history=(HistoryEntry("egg"),))
    poison.sds("ok", message_id="egg", causal_history=(HistoryEntry("chicken"), HistoryEntry("")))
    poison.sds("ok", causal_history=(HistoryEntry("sync-of-a-peer"),))


def hostile_rows(poison):
    """What no message has, but a row of a file may."""
    poison.add("not-sds", None, message_hash=b"no payload")
    poison.add("not-sds", b"", message_hash=b"empty payload")
    for stamp in (-(2**63), -1, 0, FAR):
        poison.sds("ok", columns={"timestamp_ns": stamp, "content_topic": "\0\n🛶"})
        poison.sds("ok", content=None, causal_history=(HistoryEntry("id-1"),), columns={"timestamp_ns": stamp})
    for name in ("content_topic", "pubsub_topic", "source"):
        poison.sds("ok", columns={name: None})
    poison.sds("ok", columns={"version": -(2**31)})
    for number in range(5):
        poison.sds("liar", columns={"message_hash": b"one hash for several messages"}, content=b"lie %d" % number)
    first = poison.rows[0]
    for _ in range(7):
        poison.put["copy"] += 1
        poison.rows.append(dict(first))


def segments(poison, rng):
    poison.sds("bad-segment", content=segment(data_count=300))
    poison.sds("ok", sender_id="a", content=segment())
    poison.sds("ok", sender_id="a", content=segment(index=1, data_count=200))
    poison.sds("ok", sender_id="a", content=segment(index=2, payload=b""))
    poison.sds("ok", sender_id="a", content=segment(index=1))
    poison.sds("ok", sender_id="b", content=segment())
    poison.sds("ok", sender_id="c", content=segment(index=0, data_count=0, parity_count=2, is_parity=True))
    for count in range(2, 60):
        poison.sds("ok", sender_id="d", content=segment(index=count - 1, data_count=count))
    parts = Segmenter(SegmentationConfig(segment_size_bytes=128), WAKU_SEGMENTS).split(rng.randbytes(1_200)).segments
    for number, part in enumerate(parts):
        header = WAKU_SEGMENTS.decode(part.content)
        forged = WAKU_SEGMENTS.encode(replace(header, payload=rng.randbytes(len(header.payload))))
        poison.sds("ok", sender_id="forger", message_id=f"forged-{number}", content=forged)
        poison.sds("ok", sender_id="honest", message_id=f"honest-{number}", content=part.content)
    lying = Segment(
        payload_hash=b"l" * 32,
        index=0,
        data_count=1,
        parity_count=0,
        is_parity=False,
        payload=b"short",
        payload_length=2**40,
    )
    message = SdsMessage(
        message_id="lying", sender_id="e", channel_id="team", lamport_timestamp=3, content=LIP_243.encode(lying)
    )
    poison.add("anything", NIM_SDS.encode(message), meta=Profile.LOGOS.marker)


def long_histories(poison):
    ids = [f"long-{number:04}" for number in range(260)]
    for number, message_id in enumerate(ids):
        cited = tuple(HistoryEntry(other, b"h" * 32, "alice") for other in ids[max(0, number - 200) : number])
        if number % 50 != 49:
            poison.sds("ok", message_id=message_id, channel_id="long", sender_id="alice", causal_history=cited)
    many = tuple(HistoryEntry(f"never-{number}") for number in range(9_999))
    poison.sds("ok", channel_id="long", causal_history=many)
    again = (HistoryEntry("long-0099", b"one hint"), HistoryEntry("long-0099"), HistoryEntry("long-0099", b"another"))
    poison.sds("ok", channel_id="long", causal_history=again)
    poison.sds("not-sds", causal_history=(*many, HistoryEntry("a"), HistoryEntry("b")))


def encrypted(poison):
    said = WAKU_SDS.encode(
        SdsMessage(message_id="s", sender_id="alice", channel_id="sealed", lamport_timestamp=1, content=b"secret")
    )
    poison.add("ok", encrypt_at_once(AesGcm(RIGHT_KEY), said))
    for _ in range(20):
        poison.add("not-for-us", encrypt_at_once(AesGcm(WRONG_KEY), said), content_topic="/app/1/sealed/proto")
    poison.add("not-for-us", said, content_topic="/app/1/sealed/proto")
    poison.sds("not-for-us", channel_id="sealed", message_id="in clear")


def one_loud_sender(poison):
    """More than half of all rows are of one sender in one channel."""
    for number in range(2 * len(poison.rows)):
        poison.sds("ok", channel_id="loud", sender_id="shouter", content=b"!" * (number % 50 + 1))


@pytest.fixture(scope="module")
def poisoned():
    poison, rng = Poison(), random.Random(7)
    random_bytes(poison, rng)
    truncated(poison, rng)
    hostile_ids(poison)
    hostile_rows(poison)
    segments(poison, rng)
    long_histories(poison)
    encrypted(poison)
    one_loud_sender(poison)
    return poison


@pytest.fixture(scope="module")
def survived(poisoned, spark, tmp_path_factory):
    """Run everything over it once; return the summary, and a reader of tables."""
    folder = tmp_path_factory.mktemp("poisoned")
    rows = random.Random(8).sample(poisoned.rows, len(poisoned.rows))
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "rows.parquet")
    keys = ChannelKeys.from_mapping({"sealed": {"cipher": "aes-256-gcm", "key": RIGHT_KEY.hex()}})
    summary = run(
        [f"store=parquet:{folder / 'rows.parquet'}"],
        folder / "out",
        keys=keys,
        blooms=True,
        rate_limit=100,
        spark=spark,
    )

    def read(name):
        return pq.read_table(folder / "out" / "tables" / name).to_pylist()

    return summary, read


def test_nothing_raises_and_every_row_is_accounted_for(poisoned, survived):
    summary, _ = survived
    assert summary.balance.rows_in == len(poisoned.rows)
    assert summary.balance.adds_up, str(summary.balance)


def test_every_row_with_the_same_hash_is_a_duplicate(poisoned, survived):
    summary, read = survived
    hashes = Counter(row["message_hash"] for row in poisoned.rows)
    assert summary.balance.duplicates == len(poisoned.rows) - len(hashes)
    assert {row["message_hash"]: row["copies"] for row in read("waku_messages")} == hashes


def test_what_cannot_be_read_is_in_quarantine_for_its_reason(poisoned, survived):
    _, read = survived
    # Where there are keys, what none of them opens and what is nothing cannot be told apart.
    found = Counter(row["status"].replace("not-sds", "not-for-us") for row in read("quarantine"))
    put = Counter()
    for status in ("not-sds", "no-id", "lamport-range", "bad-segment", "not-for-us", "forged"):
        assert poisoned.put[status]
        put[status.replace("not-sds", "not-for-us")] += poisoned.put[status]
    assert put <= found
    assert (found - put).total() <= poisoned.put["anything"]
    assert all(row["error"] for row in read("quarantine"))


def test_what_can_be_read_is_read_whatever_its_names_are(poisoned, survived):
    _, read = survived
    messages = read("sds_messages")
    liars = 1
    assert poisoned.put["ok"] + liars <= len(messages) <= poisoned.put["ok"] + liars + poisoned.put["anything"]
    for name in HOSTILE_NAMES:
        assert {name} <= {row["message_id"] for row in messages}
        assert {name} <= {row["sender_id"] for row in messages}
        assert {name} <= {row["channel_id"] for row in messages}


def test_equal_ids_are_one_message_in_a_channel_and_the_first_stands(survived):
    _, read = survived
    same = [row for row in read("sds_messages") if row["message_id"] == "the same"]
    assert Counter(row["channel_id"] for row in same) == {"team": 1, "one": 1, "two": 1, "three": 1}
    again = [row for row in read("repeats") if row["message_id"] == "the same"]
    assert [(row["channel_id"], row["sender_id"]) for row in again] == [("team", "alice")] * 2


def test_nobody_makes_a_message_vanish_by_being_quicker_under_its_id(survived):
    _, read = survived
    assert b"what alice said" in {row["payload"] for row in read("delivered")}
    assert b"what she did not say" not in {row["payload"] for row in read("delivered")}


def test_nobody_spoils_a_strangers_message(survived):
    _, read = survived
    honest = [row for row in read("delivered") if row["sender_id"] == "honest"]
    assert [(row["segments"], row["size_bytes"]) for row in honest] == [(10, 1_200)]
    outcomes = {row["sender_id"]: row["outcome"] for row in read("incomplete")}
    assert outcomes["forger"] == "hash-mismatch"
    assert (outcomes["b"], outcomes["c"]) == ("incomplete", "discarded")


def test_a_message_that_cites_itself_or_a_circle_misses_nothing(survived):
    _, read = survived
    missing = {row["message_id"] for row in read("missing_messages") if row["channel_id"] == "team"}
    assert not missing & {"myself", "chicken", "egg"}
    log = {row["message_id"]: row for row in read("sds_ordered") if row["channel_id"] == "team"}
    assert {"myself", "chicken", "egg"} <= log.keys()
    assert {name for name, row in log.items() if row["status"] == "circular"} == {"chicken", "egg"}
    assert sorted(row["position"] for row in log.values()) == list(range(1, len(log) + 1))


def test_what_can_never_come_is_not_missed(survived):
    """As in the live core: nobody waits for an empty id, nor for a sync message, which nobody needs to have."""
    _, read = survived
    missing = {row["message_id"] for row in read("missing_messages")}
    assert not missing & {"", "sync-of-a-peer"}


def test_gaps_of_long_histories_are_exact(survived):
    _, read = survived
    missing = {row["message_id"]: row["cited_by"] for row in read("missing_messages") if row["channel_id"] == "long"}
    gaps = {f"long-{number:04}" for number in range(49, 260, 50)}
    # As in the live core, the newest 1,000 entries of a history count.
    never = {f"never-{number}" for number in range(8_999, 9_999)}
    assert missing.keys() == gaps | never
    # 200 messages after it cite it, as far as there are so many, and those that are missing themselves do not.
    assert missing["long-0049"] == 200 - 4
    assert missing["long-0099"] == 160 - 3 + 1
    assert missing["long-0249"] == 10
    log = {row["message_id"]: row["status"] for row in read("sds_ordered") if row["message_id"].startswith("long-")}
    assert {status for name, status in log.items() if name < "long-0049"} == {"complete"}
    assert {status for name, status in log.items() if name > "long-0049"} == {"waiting"}


def test_wrong_keys_open_nothing(survived):
    _, read = survived
    sealed = [row["payload"] for row in read("delivered") if row["channel_id"] == "sealed"]
    assert sealed == [b"secret"]


def test_a_channel_of_more_than_half_of_all_rows_is_one_channel_among_others(poisoned, survived):
    _, read = survived
    (loud,) = [row for row in read("channel_stats") if row["channel_id"] == "loud"]
    assert loud["content"] == loud["delivered"] > len(poisoned.rows) / 2
    assert loud["senders"] == 1
    positions = [row["position"] for row in read("sds_ordered") if row["channel_id"] == "loud"]
    assert sorted(positions) == list(range(1, loud["content"] + 1))


def test_bandwidth_adds_up_to_all_that_could_be_read(survived):
    _, read = survived
    told = sum(row["bytes"] for row in read("bandwidth"))
    assert told == sum(row["payload_bytes"] for name in ("sds_messages", "repeats") for row in read(name))
