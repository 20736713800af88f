"""The core of a channel in a stream, without Spark: what it says, once, whatever order things come in."""

from __future__ import annotations

import hashlib
import random
from collections import Counter

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row
from pyspark.sql.streaming.tws_tester import TwsTester

from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.schema import columns_of, exact_ddl
from fairway.pipeline.streaming import channel_core
from fairway.pipeline.streaming.channel_core import EMITTED, ChannelCore, StreamedMessage
from fairway.pipeline.streaming.gaps import MAX_MISSING, MAX_SEEN, Gaps
from fairway.pipeline.streaming.processor import ChannelProcessor
from fairway.protocol.segmentation.open_sets import Quotas
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS, Segment
from segment_sets import reassembled

COLUMNS = columns_of(exact_ddl(EMITTED))
SMALL = SegmentationConfig(segment_size_bytes=128, parity_rate=0.5)


class Stream:
    """A channel whose core is made anew for each micro-batch, out of what the one before wrote."""

    def __init__(self, channel_id="team"):
        self.channel_id = channel_id
        self.summary = None
        self.rows = {}
        self.loads = 0
        self.written = {}

    def batch(self, *arrivals):
        def load():
            self.loads += 1
            return list(self.rows.items())

        core = ChannelCore(self.channel_id, self.summary, load)
        said = [dict(zip(COLUMNS, row, strict=True)) for row in core.take(arrivals)]
        changes = core.changes()
        self.summary, self.written = changes.summary, dict(changes.rows)
        for key, row in changes.rows.items():
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        return said


def message(name, content=b"hello", *, sender="alice", kind="content", lamport=1, timestamp=1, cited=()):
    return StreamedMessage(name, sender, kind, lamport, timestamp, "waku", content, None, None, tuple(cited))


def pieces(payload, *, sender="alice", first=100, config=SMALL, profile=Profile.WAKU):
    """Return the segments of one sending, of which the timestamps say nothing about their order."""
    segment_format = LIP_243 if profile is Profile.LOGOS else WAKU_SEGMENTS
    parts = Segmenter(config, segment_format).split(payload).segments
    made = []
    for part in parts:
        segment = segment_format.decode(part.content)
        lamport = first + part.order
        made.append(
            StreamedMessage(
                f"{sender}-{lamport}",
                sender,
                "content",
                lamport,
                10_000 - lamport,
                profile.value,
                part.content,
                segment.payload_hash,
                segment.is_parity,
                (),
            )
        )
    return made


def only(said, what="delivered"):
    return [row for row in said if row["what"] == what]


def test_a_whole_message_is_delivered_when_it_comes():
    stream = Stream()
    (row,) = stream.batch(message("one", b"hello", lamport=7, timestamp=9))
    assert row == {
        "what": "delivered",
        "channel_id": "team",
        "sender_id": "alice",
        "message_id": hashlib.sha256(b"hello").hexdigest(),
        "lamport": 7,
        "sds_ids": ["one"],
        "timestamp_ns": 9,
        "segments": 1,
        "recovered": False,
        "size_bytes": 5,
        "payload": b"hello",
    }
    assert stream.loads == 0


def test_a_sync_message_is_none_and_an_ephemeral_one_is():
    said = Stream().batch(
        message("sync", None, kind="sync"), message("passing", b"now", kind="ephemeral", lamport=None)
    )
    assert [(row["sds_ids"], row["lamport"]) for row in said] == [(["passing"], None)]


@pytest.mark.parametrize("profile", list(Profile))
def test_segments_that_come_in_different_micro_batches_are_one_message(profile):
    payload = random.Random(1).randbytes(500)
    config = SMALL if profile is Profile.WAKU else SegmentationConfig(segment_size_bytes=256, parity_rate=0.5)
    parts = [part for part in pieces(payload, config=config, profile=profile) if not part.is_parity]
    assert len(parts) > 1
    stream = Stream()
    for part in parts[:0:-1]:
        assert stream.batch(part) == []
    (row,) = stream.batch(parts[0])
    assert (row["payload"], row["segments"], row["recovered"]) == (payload, len(parts), False)
    assert row["sds_ids"] == [part.message_id for part in parts]
    assert (row["lamport"], row["timestamp_ns"]) == (parts[0].lamport, parts[0].timestamp_ns)


def test_parity_fills_in_for_data_and_late_data_delivers_nothing_again():
    payload = random.Random(2).randbytes(500)
    parts = pieces(payload)
    data, parity = [p for p in parts if not p.is_parity], [p for p in parts if p.is_parity]
    stream = Stream()
    said = stream.batch(*data[1:], parity[0])
    assert [(row["payload"], row["recovered"]) for row in only(said)] == [(payload, True)]
    assert stream.batch(data[0], *parity[1:]) == []


def test_the_same_payload_sent_again_is_delivered_again():
    payload = random.Random(3).randbytes(300)
    stream = Stream()
    for first in (100, 500):
        said = stream.batch(*[part for part in pieces(payload, first=first) if not part.is_parity])
        assert [row["payload"] for row in said] == [payload]


def batch_answer(arrivals):
    """Return the complete messages that the stage of a run makes of segments."""
    rows = [
        {
            "channel_id": "team",
            "sender_id": one.sender_id,
            "segment_hash": one.segment_hash,
            "message_id": one.message_id,
            "lamport": one.lamport,
            "timestamp_ns": one.timestamp_ns,
            "is_parity": one.is_parity,
            "segment_index": WAKU_SEGMENTS.decode(one.content).index,
            "content": one.content,
        }
        for one in arrivals
    ]
    complete = Counter()
    for row in reassembled(rows, Profile.WAKU):
        complete[row["sender_id"], row["payload"]] += row["outcome"] == "complete"
    return +complete


@pytest.mark.parametrize("nth", range(20))
def test_in_any_order_and_any_cut_the_messages_are_those_of_a_run(seed, nth):
    rng = random.Random(seed + nth)
    arrivals = []
    for number in range(12):
        payload = rng.randbytes(rng.randint(150, 900))
        for sending in range(rng.choice([1, 1, 2])):
            sender = rng.choice(["alice", "bob"]) if not sending else "alice"
            arrivals += pieces(payload, sender=sender, first=1_000 * number + 500 * sending)
    arrivals = list({one.message_id: one for one in arrivals if rng.random() > 0.1}.values())
    rng.shuffle(arrivals)
    stream, found = Stream(), Counter()
    place = 0
    while place < len(arrivals):
        step = rng.randint(1, 9)
        for row in only(stream.batch(*arrivals[place : place + step])):
            found[row["sender_id"], row["payload"]] += 1
        place += step
    assert found == batch_answer(arrivals)


def test_a_micro_batch_writes_what_it_changed_and_no_more():
    stream = Stream()
    for number in range(50):
        stream.batch(*pieces(random.Random(number).randbytes(300), first=1_000 * number)[:2])
    assert len(stream.rows) >= 100
    stream.batch(pieces(random.Random(99).randbytes(300), first=99_000)[0])
    assert len(stream.written) == 3  # the segment, its set, and the set's times


def test_a_flood_of_sets_that_never_end_is_forgotten(monkeypatch):
    quotas = Quotas(sets_per_sender=20, bytes_per_sender=100_000, all_bytes=1_000_000, ended_sets=10)
    monkeypatch.setattr(channel_core, "STREAM_QUOTAS", quotas)
    stream = Stream()
    honest = [part for part in pieces(b"honest" * 60, sender="alice") if not part.is_parity]
    stream.batch(*honest[:-1])
    for number in range(300):
        stream.batch(pieces(random.Random(number).randbytes(300), sender="mallory", first=1_000 * number)[0])
    assert len(stream.rows) <= 3 * 20 + 3 * len(honest) + quotas.ended_sets
    (row,) = stream.batch(honest[-1])
    assert row["payload"] == b"honest" * 60


@pytest.mark.full
def test_segments_that_do_not_make_what_they_promise_give_nothing_and_are_bounded():
    stream = Stream()
    liar = Segment(
        payload_hash=bytes(32),
        index=1,
        data_count=2,
        parity_count=0,
        is_parity=False,
        payload=b"x",
        payload_length=None,
    )
    content = WAKU_SEGMENTS.encode(liar)
    first = StreamedMessage("one", "mallory", "content", 1, 1, "waku", content, bytes(32), False, ())
    stream.batch(first)
    other = Segment(
        payload_hash=bytes(32),
        index=0,
        data_count=2,
        parity_count=0,
        is_parity=False,
        payload=b"y",
        payload_length=None,
    )
    for number in range(1_100):
        assert stream.batch(first._replace(message_id=f"two {number}", content=WAKU_SEGMENTS.encode(other))) == []
    assert (
        len(stream.rows) <= 4 * 1_000
    )  # a sender has at most 1,000 sets of segments, of three rows each, and a few rows of sets that ended


def test_what_was_set_aside_in_one_micro_batch_counts_in_the_next():
    payload = random.Random(4).randbytes(519)
    parts = pieces(payload, config=SegmentationConfig(segment_size_bytes=128, parity_rate=0.5))
    stream = Stream()
    for part in (*parts[5:], *parts[3:5]):  # of seven: two of parity first, which may be enough for all that they tell
        assert stream.batch(part) == []
    (row,) = stream.batch(parts[0])
    assert (row["payload"], row["recovered"]) == (payload, True)
    assert (row["lamport"], row["timestamp_ns"]) == (parts[0].lamport, max(part.timestamp_ns for part in parts))
    assert not any(key.startswith("aside") for key in stream.rows)


def test_what_is_cited_and_not_there_is_missing_until_it_comes():
    stream = Stream()
    said = stream.batch(
        message("two", cited=["one", "two", "", "sync-9"], timestamp=5), message("three", cited=["two"])
    )
    assert [(row["message_id"], row["timestamp_ns"]) for row in only(said, "missing")] == [("one", 5)]
    assert only(stream.batch(message("four", cited=["one"])), "missing") == []
    assert [row["message_id"] for row in only(stream.batch(message("one")), "found")] == ["one"]
    assert only(stream.batch(message("five", cited=["one"])), "missing") == []


def test_what_is_ephemeral_waits_for_nothing():
    said = Stream().batch(message("now", kind="ephemeral", lamport=None, cited=["gone"]))
    assert only(said, "missing") == []


def test_the_memory_of_gaps_has_an_end():
    gaps = Gaps()
    for number in range(MAX_SEEN + MAX_MISSING):
        gaps.came("content", f"here {number}")
        gaps.cited("content", f"here {number}", [f"gone {number}"])
    assert (len(gaps.seen), len(gaps.missing)) == (8 * MAX_SEEN, 8 * MAX_MISSING)
    again = Gaps(gaps.seen, gaps.missing)
    assert again.cited("content", "last", [f"here {MAX_SEEN + MAX_MISSING - 1}"]) == []
    assert again.came("content", f"gone {MAX_SEEN + MAX_MISSING - 1}")
    assert not again.came("content", "gone 0")


def spark_row(arrival):
    return Row(channel_id="team", **arrival._asdict())


def test_the_operator_keeps_a_channel_from_one_micro_batch_to_the_next():
    payload = random.Random(4).randbytes(300)
    parts = [spark_row(part) for part in pieces(payload) if not part.is_parity]
    tester = TwsTester(ChannelProcessor())
    assert tester.test("team", parts[:-1]) == []
    assert len(tester.peekMapState("rows", "team")) == len(parts) - 1 + 2
    assert tester.test("other", parts[-1:]) == []
    (row,) = tester.test("team", parts[-1:])
    assert (row.what, row.payload, row.channel_id) == ("delivered", payload, "team")
    assert len(tester.peekMapState("rows", "team")) == 1  # that it is complete
