"""What RLN proofs in archives tell: where they come from, what is read of them, and what counts towards the limit."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from fairway.pipeline import stages
from fairway.pipeline.run import RunTables
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, Selection
from fairway.pipeline.stages.deduplicated import each_once
from fairway.pipeline.stages.proof_columns import proof_columns
from fairway.pipeline.stages.rate_utilisation import RATE_UTILISATION, transmissions, utilisation
from fairway.rln.field import element
from fairway.storage.archive import ArchivedMessage
from fairway.wire.waku_message import RateLimitProof, encode_rate_limit_proof
from grown_runs import PLAN, empty_run, generated, grown, proof, write
from lip76_writing import write_lip76

GOOD = proof(epoch=7, nullifier=3, share_x=5)


def columns_of_proofs(*proofs: bytes | None) -> list[tuple]:
    batch = pa.RecordBatch.from_pydict({"rate_limit_proof": pa.array(proofs, pa.binary())})
    return list(zip(*(column.to_pylist() for column in proof_columns(batch).values()), strict=True))


def test_a_proof_tells_its_epoch_its_nullifier_and_the_hash_of_its_signal():
    assert columns_of_proofs(GOOD.encode(), None) == [(7, element(3), element(5)), (None, None, None)]


@pytest.mark.parametrize(
    "unreadable",
    [
        b"",
        b"garbage",
        GOOD.encode()[:-1],
        encode_rate_limit_proof(RateLimitProof(proof=bytes(127))),
        GOOD.encode().replace(element(3), b"\xff" * 32),
        proof(epoch=2**63, nullifier=1, share_x=1).encode(),
    ],
)
def test_what_cannot_be_read_tells_nothing_and_spoils_no_other_row(unreadable):
    assert columns_of_proofs(unreadable, GOOD.encode()) == [(None,) * 3, (7, element(3), element(5))]


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_tell_nothing(data):
    ((epoch, nullifier, share_x),) = columns_of_proofs(data)
    assert (epoch is None) == (nullifier is None) == (share_x is None)


def test_a_table_without_the_column_has_no_proofs():
    batch = pa.RecordBatch.from_pydict({"payload": [b"x", b"y"]})
    assert [column.null_count for column in proof_columns(batch).values()] == [2, 2, 2]


def test_of_copies_the_least_proof_stays_whichever_store_has_it():
    proofs = [None, b"2", b"1", None, b"3"]
    rows = pa.Table.from_pylist(
        [
            {
                "message_hash": b"%d" % (number // 3) * 32,
                "source": "cab"[number % 3],
                "timestamp_ns": 1,
                "rate_limit_proof": one,
            }
            for number, one in enumerate(proofs)
        ],
        schema=ARROW_SCHEMA,
    )
    for piece_bytes in (1, 10_000):
        for order in ([0, 1, 2, 3, 4], [4, 3, 2, 1, 0]):
            found = pa.concat_tables(each_once(rows.take(pa.array(order)), piece_bytes=piece_bytes)).to_pylist()
            kept = {row["message_hash"]: (row["rate_limit_proof"], row["sources"], row["copies"]) for row in found}
            assert kept == {b"0" * 32: (b"1", ["a", "b", "c"], 3), b"1" * 32: (b"3", ["a", "c"], 2)}


def sent(*rows: tuple[str, str, int, bytes | None, bytes | None]) -> pa.Table:
    names = ("sender_id", "channel_id", "timestamp_ns", "nullifier", "share_x")
    types = (pa.string(), pa.string(), pa.int64(), pa.binary(), pa.binary())
    return pa.table(
        [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)], names
    )


def test_message_ids_count_once_and_two_signals_under_one_are_a_violation():
    second = 1_000_000_000
    told = utilisation(
        transmissions(
            sent(
                ("alice", "team", 0, b"n1", b"x1"),
                ("alice", "team", 1, b"n1", b"x1"),  # the same signal again
                ("alice", "ops", 2, b"n2", b"x2"),
                ("alice", "ops", 3, b"n2", b"x3"),  # another signal under its id
                ("alice", "ops", 4, b"n2", b"x4"),
                ("alice", "ops", 5, None, None),
                ("alice", "ops", second, b"n3", b"x1"),
                ("bob", "team", 0, b"n4", b"x1"),
                ("carol", "team", 0, None, None),
            ),
            1_000,
        ),
        4,
    )
    assert told.schema.names == exact_schema(RATE_UTILISATION).names
    shown = {tuple(row.values())[:3]: tuple(row.values())[3:] for row in told.to_pylist()}
    assert shown == {
        ("team", "alice", 0): (2, 1, 0, 1, 4, 25.0),
        ("ops", "alice", 0): (4, 1, 1, 2, 4, 50.0),
        ("ops", "alice", 1_000): (1, 1, 0, 1, 4, 25.0),
        ("team", "bob", 0): (1, 1, 0, 1, 4, 25.0),
        ("team", "carol", 0): (1, 0, 0, 1, 4, 25.0),
    }


def test_a_run_shows_what_the_proofs_of_an_archive_tell(tmp_path):
    rows = generated(PLAN)
    proofs = {row["message_hash"]: row["rate_limit_proof"] for row in rows.to_pylist()}
    empty_run(tmp_path / "run", tmp_path / "source")
    write(tmp_path / "source", "part-0.parquet", rows)
    grown(tmp_path / "run", [f"parquet:{tmp_path / 'source'}"])
    tables = RunTables(tmp_path / "run")
    assert {row["message_hash"]: row["rate_limit_proof"] for row in tables.all("waku_messages")} == proofs
    used: dict[tuple, dict[bytes, set[bytes]]] = {}
    for row in (*tables.all("sds_messages"), *tables.all("repeats")):
        expected = columns_of_proofs(proofs[row["message_hash"]])[0]
        assert (row["rln_epoch"], row["nullifier"], row["share_x"]) == expected
        if row.get("reason") == "other-shard":
            continue
        epoch = row["channel_id"], row["sender_id"], row["timestamp_ns"] // 600_000_000_000 * 600_000
        ids = used.setdefault(epoch, {})
        if row["nullifier"] is not None:
            ids.setdefault(row["nullifier"], set()).add(row["share_x"])
    counted = {
        (row["channel_id"], row["sender_id"], row["epoch_start_ms"]): (row["message_ids"], row["double_signals"])
        for row in tables.all("rate_utilisation")
    }
    assert counted == {
        place: (len(ids), sum(len(signals) > 1 for signals in ids.values())) for place, ids in used.items()
    }
    assert sum(ids for ids, _ in counted.values()) > 20
    assert sum(double for _, double in counted.values()) > 2


def test_parquet_tables_may_have_proofs_or_none(tmp_path):
    rows = generated(PLAN).slice(0, 20)
    for name, table in (("with", rows), ("without", rows.drop_columns(["rate_limit_proof"]))):
        (tmp_path / name).mkdir()
        pq.write_table(table, tmp_path / name / "part.parquet")
        scan = scan_of(f"parquet:{tmp_path / name}", Selection())
        read = pa.Table.from_batches([batch for part in scan.plan() for batch in scan.read(part)])
        expected = rows["rate_limit_proof"].to_pylist() if name == "with" else [None] * 20
        assert read["rate_limit_proof"].to_pylist() == expected


def test_archives_of_whole_messages_keep_the_proofs(tmp_path):
    message = ArchivedMessage(
        message_hash=b"",
        pubsub_topic="",
        content_topic="/a/1/b/proto",
        payload=b"x",
        version=0,
        timestamp_ns=1,
        meta=None,
    )
    write_lip76(
        tmp_path / "archive", [replace(message, rate_limit_proof=GOOD.encode()), replace(message, timestamp_ns=2)]
    )
    scan = scan_of(f"lip76:{tmp_path / 'archive'}", Selection())
    read = pa.Table.from_batches([batch for part in scan.plan() for batch in scan.read(part)])
    assert read["rate_limit_proof"].to_pylist() == [GOOD.encode(), None]


@pytest.mark.spark
def test_the_stages_alone_show_proofs_where_a_table_has_them(spark):
    rows = generated(PLAN)
    for table, has in ((rows, True), (rows.drop_columns(["rate_limit_proof"]), False)):
        decoded = spark.createDataFrame(table.to_pandas()).transform(stages.decoded)
        assert (decoded.where("nullifier IS NOT NULL").count() > 0) is has
