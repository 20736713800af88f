"""`reassembled` without a JVM: groups of segments are Arrow tables."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.options import IdRule, Profile, SegmentationConfig
from fairway.pipeline.stages.lost_segments import SIBLINGS_CITED
from fairway.pipeline.stages.reassembled import (
    ARCHIVE_SEGMENTATION,
    SEGMENTS,
    segments_in,
)
from fairway.protocol.sds.message_id import make_message_id
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS
from segment_sets import as_sds, reassembled

CONFIG = SegmentationConfig(segment_size_bytes=256)
FORMATS = {Profile.WAKU: WAKU_SEGMENTS, Profile.LOGOS: LIP_243}
SECOND = 1_000_000_000


def sending(
    payload: bytes, *, lamport: int = 1_000, profile: Profile = Profile.WAKU, config: SegmentationConfig = CONFIG
) -> list[dict]:
    """Return the rows of one sending, in the order in which it was made."""
    segment_format = FORMATS[profile]
    rows = []
    for part in Segmenter(config, segment_format).split(payload).segments:
        stamp = lamport + part.order
        header = segment_format.decode(part.content)
        rows.append(
            {
                "channel_id": "team",
                "sender_id": "alice",
                "segment_hash": header.payload_hash,
                "message_id": make_message_id(
                    IdRule.UNIQUE, sender_id="alice", lamport=stamp, content=part.content, now_ms=0, sequence=0
                ),
                "lamport": stamp,
                "timestamp_ns": stamp * SECOND,
                "is_parity": header.is_parity,
                "segment_index": header.index,
                "content": part.content,
                "causal_history": [{"message_id": row["message_id"], "sender_id": "alice"} for row in rows[-2:]],
            }
        )
    return rows


def reassemble(
    rows: list[dict], profile: Profile = Profile.WAKU, config: SegmentationConfig = ARCHIVE_SEGMENTATION
) -> list[dict]:
    shuffled = random.Random(4).sample(rows, len(rows))
    return reassembled(shuffled, profile, config)


def renamed(rows: list[dict]) -> list[dict]:
    """Return the rows of a sender whose ids follow from nothing."""
    names = {row["message_id"]: f"id-{place}" for place, row in enumerate(rows)}
    return [
        row
        | {
            "message_id": names[row["message_id"]],
            "causal_history": [
                entry | {"message_id": names.get(entry["message_id"], entry["message_id"])}
                for entry in row["causal_history"]
            ],
        }
        for row in rows
    ]


PAYLOAD = random.Random(5).randbytes(2_500)  # 10 data segments and 1 of parity


def test_segments_give_their_payload():
    rows = sending(PAYLOAD)
    assert reassemble(rows) == [
        {
            "channel_id": "team",
            "sender_id": "alice",
            "segment_hash": rows[0]["segment_hash"],
            "outcome": "complete",
            "payload": PAYLOAD,
            "recovered": False,
            "held": 11,
            "data_segments": 10,
            "sds_ids": [row["message_id"] for row in rows],
            "rebuilt_ids": [],
            "guessed_ids": [],
            "lamport": 1_000,
            "first_seen_ns": 1_000 * SECOND,
            "last_seen_ns": 1_010 * SECOND,
        }
    ]


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("lost", [0, 4, 9])
def test_parity_makes_up_for_a_lost_segment_and_its_id_is_known(profile, lost):
    rows = sending(PAYLOAD, profile=profile)
    (result,) = reassemble(rows[:lost] + rows[lost + 1 :], profile)
    assert (result["outcome"], result["payload"], result["recovered"]) == ("complete", PAYLOAD, True)
    assert result["rebuilt_ids"] == [rows[lost]["message_id"]]


def test_a_message_in_a_single_segment_is_whole_at_once():
    rows = sending(b"short", profile=Profile.LOGOS)
    (result,) = reassemble(rows, Profile.LOGOS)
    assert (result["outcome"], result["payload"], result["data_segments"]) == ("complete", b"short", 1)
    assert result["rebuilt_ids"] == []


@pytest.mark.parametrize("profile", list(Profile))
@pytest.mark.parametrize("believed", [0.0, 0.125, 1.0])
@pytest.mark.parametrize("rate", [0.125, 0.5, 1.0])
def test_headers_that_tell_how_much_parity_there_was_count_and_not_the_rate(profile, believed, rate):
    rows = sending(PAYLOAD, profile=profile, config=replace(CONFIG, parity_rate=rate))
    lost = [3, len(rows) - 1] if rate > 0.125 else [3]
    kept = [row for place, row in enumerate(rows) if place not in lost]
    (result,) = reassemble(kept, profile, replace(ARCHIVE_SEGMENTATION, parity_rate=believed))
    assert result["rebuilt_ids"] == [rows[place]["message_id"] for place in lost]


def test_parity_that_came_for_nothing_tells_how_much_there_was_all_the_same():
    rows = sending(PAYLOAD, config=replace(CONFIG, parity_rate=0.3))
    (result,) = reassemble(rows[:-2], config=replace(ARCHIVE_SEGMENTATION, parity_rate=1.0))
    assert (result["recovered"], result["held"]) == (False, 11)
    assert result["rebuilt_ids"] == [row["message_id"] for row in rows[-2:]]


def test_where_all_parity_is_lost_the_rate_tells_unless_each_header_does():
    for profile, believed, lost in [(Profile.WAKU, 0.3, 3), (Profile.WAKU, 0.0, 0), (Profile.LOGOS, 0.0, 4)]:
        rate = 0.3 if profile is Profile.WAKU else 0.2
        rows = sending(PAYLOAD, profile=profile, config=replace(CONFIG, parity_rate=rate))
        data = [row for row in rows if not row["is_parity"]]
        (result,) = reassemble(data, profile, replace(ARCHIVE_SEGMENTATION, parity_rate=believed))
        assert result["rebuilt_ids"] == [row["message_id"] for row in rows[len(data) :]][:lost]
        assert len(result["rebuilt_ids"]) == lost


def test_a_header_that_tells_of_no_parity_is_believed():
    rows = sending(PAYLOAD, profile=Profile.LOGOS, config=replace(CONFIG, parity_rate=0.0))
    (result,) = reassemble(rows, Profile.LOGOS, replace(ARCHIVE_SEGMENTATION, parity_rate=1.0))
    assert (result["outcome"], result["rebuilt_ids"]) == ("complete", [])


def test_of_a_sender_with_ids_of_its_own_the_order_of_citation_tells_what_was_lost():
    rows = renamed(sending(PAYLOAD))
    (result,) = reassemble(rows[:4] + rows[5:])
    assert (result["rebuilt_ids"], result["guessed_ids"]) == ([], ["id-4"])


def test_what_a_stranger_sent_is_no_lost_segment():
    rows = renamed(sending(PAYLOAD))
    kept = [
        row | {"causal_history": [entry | {"sender_id": "bob"} for entry in row["causal_history"]]}
        for row in rows[:4] + rows[5:]
    ]
    (result,) = reassemble(kept)
    assert (result["rebuilt_ids"], result["guessed_ids"]) == ([], [])


def test_what_stands_in_two_places_stands_in_none():
    rows = renamed(sending(PAYLOAD))
    rows[8] = rows[8] | {"causal_history": [{"message_id": "id-2", "sender_id": "alice"}]}
    (result,) = reassemble([*rows[:2], *rows[3:7], *rows[8:]])
    assert result["outcome"] == "incomplete"
    rows = renamed(sending(PAYLOAD, config=replace(CONFIG, parity_rate=0.5)))
    rows[8] = rows[8] | {"causal_history": [{"message_id": "id-2", "sender_id": "alice"}]}
    (result,) = reassemble([*rows[:2], *rows[3:7], *rows[8:]])
    assert (result["outcome"], result["guessed_ids"]) == ("complete", ["id-7"])


def test_ids_of_the_payload_alone_are_known_too():
    rows = sending(PAYLOAD)
    for row in rows:
        row["message_id"] = make_message_id(
            IdRule.PAYLOAD, sender_id="alice", lamport=0, content=row["content"], now_ms=0, sequence=0
        )
    (result,) = reassemble(rows[1:])
    assert result["rebuilt_ids"] == [rows[0]["message_id"]]


def test_parity_alone_does_not_tell_how_much_is_needed():
    (result,) = reassemble(sending(PAYLOAD)[-1:])
    assert (result["outcome"], result["held"], result["data_segments"]) == ("incomplete", 1, None)


def test_a_payload_that_is_not_what_the_hash_promised_is_refused():
    rows = sending(PAYLOAD)
    forged = WAKU_SEGMENTS.encode(replace(WAKU_SEGMENTS.decode(rows[3]["content"]), payload=bytes(256)))
    rows = [*rows[:3], rows[3] | {"content": forged}, *rows[4:-1]]
    (result,) = reassemble(rows)
    assert (result["outcome"], result["payload"], result["held"]) == ("hash-mismatch", None, 10)


def test_segments_that_contradict_their_set_are_told_apart():
    rows = sending(PAYLOAD)[:-2]
    odd = WAKU_SEGMENTS.encode(replace(WAKU_SEGMENTS.decode(rows[8]["content"]), data_count=200))
    results = reassemble([*rows[:8], rows[8] | {"content": odd, "message_id": "odd"}])
    assert [(result["outcome"], result["held"]) for result in results] == [("incomplete", 8), ("discarded", 1)]


def with_late_parity(rows: list[dict]) -> list[dict]:
    """Return the rows of a sender who stamps segments with the time, as js-waku does, and was slow to make parity."""
    return [row | {"lamport": row["lamport"] + 5_000 * row["is_parity"]} for row in renamed(rows)]


def test_parity_that_a_slow_sender_made_late_is_no_message_that_is_incomplete():
    rows = with_late_parity(sending(PAYLOAD[:700], config=replace(CONFIG, parity_rate=1.0)))
    assert [row["is_parity"] for row in rows] == [False] * 3 + [True] * 3
    (result,) = reassemble(rows)
    assert (result["outcome"], result["held"], result["recovered"]) == ("complete", 6, False)
    (result,) = reassemble(rows[1:])
    assert (result["outcome"], result["held"], result["recovered"]) == ("complete", 5, True)


def test_parity_of_a_message_whose_hash_is_wrong_is_no_further_message():
    rows = with_late_parity(sending(PAYLOAD[:700], config=replace(CONFIG, parity_rate=1.0)))
    forged = [
        row
        | {"content": WAKU_SEGMENTS.encode(replace(WAKU_SEGMENTS.decode(row["content"]), payload=b"something else"))}
        for row in rows[1:3]
    ]
    results = reassemble([rows[0], *forged, rows[5]])
    assert [(result["outcome"], result["held"]) for result in results] == [("hash-mismatch", 4)]


def test_a_forged_segment_costs_nobody_his_message_and_is_seen():
    rows = sending(PAYLOAD)
    forged = WAKU_SEGMENTS.encode(replace(WAKU_SEGMENTS.decode(rows[3]["content"]), payload=bytes(256)))
    results = reassemble([*rows, rows[3] | {"content": forged, "message_id": "forged"}])
    assert [(result["outcome"], result["payload"]) for result in results] == [
        ("complete", PAYLOAD),
        ("discarded", None),
    ]
    assert [result["sds_ids"] for result in results[1:]] == [["forged"]]
    assert sum(result["held"] for result in results) == len(rows) + 1, "no row is unaccounted for"


def test_parity_of_a_second_sending_of_which_all_data_is_lost_is_incomplete():
    first, second = sending(PAYLOAD, lamport=1_000), sending(PAYLOAD, lamport=9_000)
    results = reassemble([*first, second[-1]])
    assert sorted((result["outcome"], result["held"]) for result in results) == [("complete", 11), ("incomplete", 1)]


def test_segments_of_any_size_are_read_on_either_wire():
    large = random.Random(6).randbytes(700_000)
    for profile in Profile:
        config = SegmentationConfig(segment_size_bytes=300_000 // 64 * 64)
        rows = sending(large, profile=profile, config=config)
        (result,) = reassemble(rows, profile)
        assert (result["outcome"], result["payload"]) == ("complete", large)


def test_the_same_payload_sent_twice_is_two_messages_each_with_its_own_losses():
    first, second = sending(PAYLOAD, lamport=1_000), sending(PAYLOAD, lamport=9_000)
    results = reassemble(first[:4] + first[5:] + second[1:])
    assert [result["outcome"] for result in results] == ["complete", "complete"]
    by_time = sorted(results, key=lambda result: result["first_seen_ns"])
    assert by_time[0]["rebuilt_ids"] == [first[4]["message_id"]]
    assert by_time[1]["rebuilt_ids"] == [second[0]["message_id"]]
    assert not set(by_time[0]["sds_ids"]) & set(by_time[1]["sds_ids"])


@examples(0.6)
@given(size=st.integers(257, 6_000), data=st.data())
def test_whatever_comes_the_payload_is_right_or_there_is_none(size, data):
    payload = random.Random(size).randbytes(size)
    rows = sending(payload)
    kept = data.draw(st.lists(st.sampled_from(rows), unique_by=lambda row: row["message_id"], min_size=1))
    (result,) = reassemble(kept)
    needed = sum(not row["is_parity"] for row in rows)
    assert (result["outcome"] == "complete") == (len(kept) >= needed)
    assert result["payload"] in {None, payload}
    assert result["held"] == len(kept)
    if result["outcome"] == "complete":
        assert set(result["rebuilt_ids"]) == {row["message_id"] for row in rows} - set(result["sds_ids"])


def test_of_a_long_history_the_newest_entries_go_with_a_segment():
    history = [
        {"message_id": f"m{number}", "sender_id": "alice", "retrieval_hint": b"h"}
        for number in range(SIBLINGS_CITED + 3)
    ]
    rows = [
        row | {"causal_history": cited}
        for row, cited in zip(sending(PAYLOAD)[:3], (history, None, history[:1]), strict=True)
    ]
    whole = {"message_id": "whole", "causal_history": history}
    table = segments_in(pa.concat_tables([as_sds([whole, *rows[:2]]), as_sds([whole]), as_sds(rows[2:])]))
    assert table.schema == SEGMENTS
    assert table.column("message_id").to_pylist() == [row["message_id"] for row in rows]
    assert [[entry["message_id"] for entry in cited] for cited in table.column("causal_history").to_pylist()] == [
        [entry["message_id"] for entry in history[-SIBLINGS_CITED:]],
        [],
        ["m0"],
    ]


@examples(0.3)
@given(data=st.data(), profile=st.none() | st.just(Profile.WAKU))
def test_groups_among_others_come_out_as_each_does_alone(data, profile):
    rows = []
    for sender_id, size, wire in (
        ("alice", 700, "waku"),
        ("bob", 700, "waku"),
        ("alice", 300, "waku"),
        ("eve", 600, "logos"),
    ):
        made = sending(PAYLOAD[:size], profile=Profile.WAKU if profile else Profile(wire))
        kept = data.draw(st.lists(st.sampled_from(made), unique_by=lambda row: row["message_id"]))
        rows += [row | {"sender_id": sender_id, "profile": wire} for row in kept]
    groups = {}
    for row in rows:
        groups.setdefault((row["sender_id"], row["segment_hash"]), []).append(row)
    alone = [row for group in groups.values() for row in reassembled(group, profile)]
    made = reassembled(data.draw(st.permutations(rows)), profile)
    assert sorted(made, key=repr) == sorted(alone, key=repr)
