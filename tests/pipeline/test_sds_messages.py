"""`sds_messages` without a JVM: its mapper is a function over Arrow batches."""

from __future__ import annotations

import pickle

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from fairway.options import Profile
from fairway.pipeline.stages import Status, decoding_mapper
from fairway.wire.sds import WAKU_SDS
from fairway.wire.segment import WAKU_SEGMENTS
from made_messages import message, segment


def batch(payloads: list[bytes | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "message_hash": pa.array([b"%032d" % number for number in range(len(payloads))], pa.binary()),
            "timestamp_ns": pa.array(range(len(payloads)), pa.int64()),
            "content_topic": pa.array(["/app/1/team/proto"] * len(payloads), pa.string()),
            "payload": pa.array(payloads, pa.binary()),
        }
    )


def decoded(*payloads: bytes | None, profile: Profile = Profile.WAKU, encryption=None) -> list[dict]:
    (result,) = decoding_mapper(profile, encryption=encryption)(iter([batch(list(payloads))]))
    return result.to_pylist()


def test_a_message_becomes_a_row_with_everything_but_its_bloom_filter():
    payload = WAKU_SDS.encode(message())
    entries = payload[payload.index(b"\x5a") :].split(b"\x62\x64", 1)[0]  # field 11 up to field 12
    (row,) = decoded(payload)
    assert row == {
        "message_hash": b"%032d" % 0,
        "timestamp_ns": 0,
        "pubsub_topic": None,
        "content_topic": "/app/1/team/proto",
        "rln_epoch": None,
        "nullifier": None,
        "share_x": None,
        "payload_bytes": len(payload),
        "status": "ok",
        "error": None,
        "profile": "waku",
        "kind": "content",
        "sender_id": "alice",
        "message_id": "m1",
        "channel_id": "team",
        "lamport": 7,
        "causal_history": [
            {"message_id": "m0", "retrieval_hint": b"hint", "sender_id": "bob"},
            {"message_id": "m-1", "retrieval_hint": None, "sender_id": None},
        ],
        "repair_request": [{"message_id": "lost", "retrieval_hint": None, "sender_id": None}],
        "history_bytes": len(entries),
        "repair_bytes": len(b"\x6a\x06" + b"\x0a\x04lost"),
        "bloom_bytes": 100,
        "content_bytes": 5,
        "content": b"hello",
        "segment_hash": None,
        "segment_index": None,
        "is_parity": None,
        "data_segments": None,
        "parity_segments": None,
    }


def test_sync_and_ephemeral_messages_are_told_apart():
    rows = decoded(
        WAKU_SDS.encode(message(content=None)), WAKU_SDS.encode(message(lamport_timestamp=None, causal_history=()))
    )
    assert [row["kind"] for row in rows] == ["sync", "ephemeral"]
    assert rows[0]["content"] is None
    assert rows[1]["lamport"] is None


@pytest.mark.parametrize(
    ("piece", "header"),
    [
        (segment(), (1, False, 3, 0)),
        (segment(index=0, data_count=0, parity_count=2, is_parity=True), (0, True, 0, 2)),
    ],
)
def test_the_header_of_a_segment_has_columns_of_its_own(piece, header):
    content = WAKU_SEGMENTS.encode(piece)
    (row,) = decoded(WAKU_SDS.encode(message(content=content)))
    assert row["segment_hash"] == b"k" * 32
    assert tuple(row[name] for name in ("segment_index", "is_parity", "data_segments", "parity_segments")) == header
    assert row["content"] == content


def wire(**changes) -> bytes:
    return WAKU_SDS.encode(message(**changes))


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (b"\xff\xff\xff", Status.NOT_SDS),
        (b"", Status.NOT_SDS),
        (None, Status.NOT_SDS),
        (wire(message_id=""), Status.NO_ID),
        (wire(channel_id=""), Status.NO_ID),
        (wire(lamport_timestamp=2**63), Status.LAMPORT_RANGE),
        (wire(content=WAKU_SEGMENTS.encode(segment(data_count=257))), Status.BAD_SEGMENT),
    ],
)
def test_what_cannot_be_decoded_says_why_and_harms_no_neighbour(payload, status):
    rows = decoded(WAKU_SDS.encode(message()), payload, WAKU_SDS.encode(message(message_id="m2")))
    assert [row["status"] for row in rows] == ["ok", status.value, "ok"]
    assert rows[1]["error"]
    assert {rows[1][name] for name in ("kind", "message_id", "channel_id", "lamport", "content", "segment_hash")} == {
        None
    }
    assert [row["message_id"] for row in rows] == ["m1", None, "m2"]


def test_what_only_resembles_a_segment_is_a_whole_message():
    (row,) = decoded(wire(content=WAKU_SEGMENTS.encode(segment())[:-1]))
    assert (row["status"], row["segment_hash"]) == ("ok", None)


class Mirror:
    """A cipher that turns bytes around, and refuses what does not end in a seal."""

    def encrypt(self, plaintext: bytes) -> bytes:
        return plaintext[::-1] + b"!"

    def decrypt(self, ciphertext: bytes) -> bytes:
        if not ciphertext.endswith(b"!"):
            raise ValueError("no seal")
        return ciphertext[-2::-1]


@pytest.mark.parametrize("sizes", [[], [0], [1], [0, 1, 5], [3_999, 1, 2], [1_000] * 9, [5_000, 10]])
def test_batches_of_any_size_come_out_row_for_row(sizes):
    payloads = [wire(message_id=f"m{number}") for number in range(sum(sizes))]
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    batches = [batch(payloads[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    results = list(decoding_mapper(Profile.WAKU)(iter(batches)))
    found = [message_id for result in results for message_id in result.column("message_id").to_pylist()]
    assert found == [f"m{number}" for number in range(sum(sizes))]
    assert len({tuple(result.schema) for result in results}) <= 1


def test_small_batches_are_decoded_together_and_large_ones_alone():
    small = [batch([wire()] * 1_000) for _ in range(9)]
    large = [batch([wire(content=bytes(100_000))] * 100) for _ in range(2)]
    results = list(decoding_mapper(Profile.WAKU)(iter(small + large)))
    assert [result.num_rows for result in results] == [4_000, 4_000, 1_100, 100]


def test_the_mapper_can_be_shipped_to_executors():
    from pyspark import cloudpickle

    mapper = pickle.loads(cloudpickle.dumps(decoding_mapper(Profile.WAKU, encryption=Mirror())))
    (result,) = mapper(iter([batch([Mirror().encrypt(wire())])]))
    assert result.column("status").to_pylist() == ["ok"]
