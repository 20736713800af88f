"""Archives with damaged, foreign and misdated rows: what a run makes of them, what a report says, and a repair."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing

import pytest

pytest.importorskip("pyspark")

from fairway.archives.backfill import BackfillOptions, backfill
from fairway.errors import ConfigurationError
from fairway.pipeline.report import report_of
from fairway.pipeline.run import RunTables, run
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.waku_message import WakuMessage, message_hash
from run_tables import write_run

SHARD = "/waku/2/rs/1/0"
DECADE_NS = 3_653 * 86_400 * 10**9


@pytest.fixture
def stores(tmp_path, log, write_archive):
    """Two archives of the same 300 messages of a channel, of which the second will be damaged, and their hashes."""
    team = log("team")
    for number in range(300):
        team.message(("alice", "bob", "carol")[number % 3], f"message {number}".encode())
    path = write_archive([waku for _, waku in team.sent])
    shutil.copy(path, tmp_path / "damaged.sqlite3")
    return path, tmp_path / "damaged.sqlite3", [message_hash(SHARD, waku) for _, waku in team.sent]


def change(path, statement, rows):
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(statement, rows)


def oddities(folder):
    return {odd.kind: odd.count for odd in report_of(RunTables(folder)).oddities}


DAMAGES = {
    "emptied": ("UPDATE Message SET payload = NULL WHERE messageHash = ?", lambda h, _: (h,)),
    "changed": ("UPDATE Message SET payload = ? WHERE messageHash = ?", lambda h, n: (b"other %d" % n, h)),
    "dated in ten years": (
        "UPDATE Message SET timestamp = timestamp + ? WHERE messageHash = ?",
        lambda h, _: (DECADE_NS, h),
    ),
    "before 1970": ("UPDATE Message SET timestamp = ? WHERE messageHash = ?", lambda h, n: (-1 - n, h)),
    "of no UTF-8": ("UPDATE Message SET contentTopic = ? WHERE messageHash = ?", lambda h, n: (b"\xff%d" % n, h)),
}


def damage(path, hashes):
    """Damage some messages in each way in turn."""
    for number, digest in enumerate(hashes):
        statement, values = [*DAMAGES.values()][number % len(DAMAGES)]
        change(path, statement, [values(digest, number)])


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_of_copies_that_differ_the_one_with_the_right_hash_counts_whatever_the_stores_are_called(
    spark, tmp_path, stores, names
):
    intact, damaged, hashes = stores
    damage(damaged, hashes[50:250:4])
    run([f"{names[0]}=sqlite:{intact}", f"{names[1]}=sqlite:{damaged}"], tmp_path / "run", spark=spark)
    tables = RunTables(tmp_path / "run")
    assert [tables.rows(name) for name in ("quarantine", "missing_messages", "delivered")] == [0, 0, 300]
    report = report_of(tables)
    assert {(store.source, store.had, store.lacked, store.damaged, store.repairable) for store in report.stores} == {
        (names[0], 300, 0, 0, 0),
        (names[1], 250, 0, 50, 50),
    }
    assert not any(store.outages for store in report.stores)
    assert oddities(tmp_path / "run") == {"damaged-copies": 50}
    (repair,) = report.to_do
    assert repair.commands == (f"fairway pipeline backfill --from sqlite:{intact} --to sqlite:{damaged} --repair",)


def test_what_no_store_has_intact_is_damaged_and_not_lost(spark, tmp_path, stores):
    _, damaged, hashes = stores
    damage(damaged, hashes[50:250:4])
    run([f"a=sqlite:{damaged}"], tmp_path / "run", spark=spark)
    report = report_of(RunTables(tmp_path / "run"))
    assert report.headline.damaged == 50
    assert (report.headline.known, report.headline.readable, report.headline.lost) == (300, 250, 0)
    # Of messages whose topics are not UTF-8 no store can say what they are.
    assert oddities(tmp_path / "run") == {"damaged-messages": 40, "bad-topics": 10, "before-2015": 10, "future": 10}
    assert report.quarantined == {"hash-mismatch": 40, "bad-topic": 10}
    assert not any("lost messages" in each.what for each in report.to_do)


def test_foreign_and_misdated_rows_and_several_shards_are_told_and_make_no_outage(spark, tmp_path, stores, log):
    one, other, _ = stores
    foreign = [
        WakuMessage(
            payload=b'{"n": %d}' % n, content_topic="/other/1/app/json", timestamp_ns=1_760_000_100_000_000_000 + n
        )
        for n in range(40)
    ]
    misdated = [
        (payload, time_ns)
        for payload, time_ns in (
            (log("early").message("alice", b"early"), 1),
            (log("late").message("bob", b"late"), 2**62),
        )
    ]
    from fairway.wire.sds import WAKU_SDS

    with NwakuArchive(one) as archive:
        for message in foreign:
            archive.append(SHARD, message)
        for message, time_ns in misdated:
            waku = WakuMessage(
                payload=WAKU_SDS.encode(message), content_topic="/tests/1/odd/proto", timestamp_ns=time_ns
            )
            archive.append(SHARD, waku)
        twice = log("twice")
        twice.message("alice", b"on two shards")
        for shard in (SHARD, "/waku/2/rs/1/1"):
            archive.append(shard, twice.sent[0][1])
    run([f"a=sqlite:{one}", f"b=sqlite:{other}"], tmp_path / "run", spark=spark)
    report = report_of(RunTables(tmp_path / "run"))
    assert oddities(tmp_path / "run") == {
        "foreign": 40,
        "several-shards": 1,
        "before-2015": 1,
        "future": 1,
    }
    balance = RunTables(tmp_path / "run").balance
    assert (balance.retransmissions, balance.other_shards, balance.adds_up) == (0, 1, True)
    assert not any(store.outages for store in report.stores)
    assert report.headline.lost == 0
    text = " ".join(odd.text for odd in report.oddities)
    assert text == (
        "40 messages are of other applications. 1 message is the sending of another one on a further shard. "
        "1 message has a time before 2015. 1 message has a time in the future."
    )


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_a_repair_replaces_damaged_messages_and_nothing_else(tmp_path, stores, kind):
    intact, damaged, hashes = stores
    damage(damaged, hashes[50:250:4])
    target = f"sqlite:{damaged}"
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        from fairway.pipeline.sources.places import scan_of
        from fairway.pipeline.sources.waku_messages import Selection

        scan = scan_of(target, Selection())
        (tmp_path / "table").mkdir()
        rows = pa.Table.from_batches([batch for part in scan.plan() for batch in scan.read(part)])
        pq.write_table(rows.drop_columns(["source"]), tmp_path / "table/part.parquet")
        target = f"parquet:{tmp_path / 'table'}"
    without = backfill(f"sqlite:{intact}", target)
    assert (without.there, without.lacking, without.written) == (300, 0, 0)
    looked = backfill(f"sqlite:{intact}", target, options=BackfillOptions(repair=True, dry_run=True))
    assert (looked.there, looked.damaged, looked.written) == (250, 50, 0)
    repaired = backfill(f"sqlite:{intact}", target, options=BackfillOptions(repair=True))
    assert (repaired.there, repaired.damaged, repaired.written) == (250, 50, 50)
    again = backfill(f"sqlite:{intact}", target, options=BackfillOptions(repair=True))
    assert (again.there, again.damaged, again.written) == (300, 0, 0)
    if kind == "sqlite":
        with NwakuArchive(intact, read_only=True) as one, NwakuArchive(damaged, read_only=True) as other:
            assert list(one.read()) == list(other.read())


def test_a_node_cannot_be_repaired(stores):
    with pytest.raises(ConfigurationError, match="replaces no message of its store; repair the archive"):
        backfill(f"sqlite:{stores[0]}", "http://127.0.0.1:1", options=BackfillOptions(repair=True))


def test_messages_that_reached_an_archive_late_are_said(tmp_path):
    sources = [{"label": name, "uri": f"sqlite:{name}.db", "late": late} for name, late in (("a", 2), ("b", 0))]
    write_run(tmp_path, {}, sources=sources)
    (odd,) = report_of(RunTables(tmp_path)).oddities
    assert (odd.kind, odd.count) == ("late", 2)
    assert odd.text == "2 messages reached an archive late; the stream read them at a refresh."
