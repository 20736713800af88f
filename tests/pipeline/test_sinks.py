"""Dispatch, its ledger and its writer, without a JVM."""

from __future__ import annotations

import asyncio
import logging
import pickle
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from fairway.errors import ConfigurationError, NetworkError, StoreQueryError
from fairway.nodes.local import process_network
from fairway.nodes.node import NodeHealth, NodeStatus, SendResult, StorePage, StoreQuery
from fairway.pipeline.sinks import DispatchReceipt, ReceiptLedger, ReceiptStatus
from fairway.pipeline.sinks.dispatch import DispatchCounts, Dispatcher, message_of
from fairway.pipeline.sinks.ledger import Claim
from fairway.pipeline.sinks.receipts import receipt_batches
from fairway.pipeline.sources import WakuDataSource
from fairway.storage.lip76 import Shards
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash

TOPIC = "/app/1/team/proto"
SHARD = autoshard(TOPIC, 1, 8)
OK = SendResult(accepted=True)


def row(number: int, **others) -> dict:
    return {"content_topic": TOPIC, "payload": b"%d" % number, "timestamp_ns": 1_000 + number, **others}


def hash_of(number: int) -> bytes:
    return message_hash(SHARD, WakuMessage(payload=b"%d" % number, content_topic=TOPIC, timestamp_ns=1_000 + number))


class FakeNode:
    """A node that answers as it is told, keeps what it accepted, and may die."""

    def __init__(self, *answers: SendResult, store: bool = True) -> None:
        self.answers = list(answers)
        self.sent: list[int] = []
        self.status = NodeStatus(health=NodeHealth.SUFFICIENTLY_HEALTHY, store=store)
        self.dies_after_sending: set[int] = set()
        self.store_fails = False

    async def send(self, message):
        number = int(message.message.payload)
        result = self.answers.pop(0) if self.answers else OK
        if result.accepted:
            self.sent.append(number)
        if number in self.dies_after_sending:
            self.dies_after_sending.remove(number)
            raise KeyboardInterrupt
        return result

    async def query(self, query):
        if self.store_fails:
            raise StoreQueryError("busy")
        known = {hash_of(number): number for number in self.sent}
        found = [message_of(row(known[item]), Shards()) for item in query.message_hashes if item in known]
        return StorePage(messages=tuple(found))


def dispatch(path, node, rows, *, run="run", task=0, **options) -> DispatchCounts:
    pauses = options.pop("pauses", [])

    async def pause(seconds):
        pauses.append(seconds)

    async def work() -> DispatchCounts:
        with ReceiptLedger(path) as ledger:
            return await Dispatcher(node=node, ledger=ledger, run=run, task=task, pause=pause, **options).send_all(rows)

    return asyncio.run(work())


def receipts(path) -> list[DispatchReceipt]:
    with ReceiptLedger(path) as ledger:
        return list(ledger.read())


def test_each_row_is_sent_in_its_order_and_has_a_receipt(tmp_path):
    node = FakeNode()
    assert dispatch(tmp_path / "r.db", node, map(row, range(5))) == DispatchCounts(sent=5)
    assert node.sent == list(range(5))
    found = receipts(tmp_path / "r.db")
    assert [(receipt.message_hash, receipt.status, receipt.attempts) for receipt in found] == [
        (hash_of(number), ReceiptStatus.SENT, 1) for number in range(5)
    ]
    assert (found[3].pubsub_topic, found[3].content_topic, found[3].timestamp_ns) == (SHARD, TOPIC, 1_003)
    assert found[3].first_at_ms <= (found[3].settled_at_ms or 0)


def test_another_run_sends_only_what_is_new(tmp_path):
    node = FakeNode()
    dispatch(tmp_path / "r.db", node, map(row, range(3)))
    assert dispatch(tmp_path / "r.db", node, map(row, range(5)), run="again") == DispatchCounts(sent=2, found=3)
    assert node.sent == list(range(5))


def test_rows_of_one_message_are_sent_once(tmp_path):
    node = FakeNode()
    assert dispatch(tmp_path / "r.db", node, [row(1), row(1, version=1), row(2)]) == DispatchCounts(sent=2, found=1)
    assert node.sent == [1, 2]


@pytest.mark.parametrize("run", ["run", "again"])
def test_what_a_task_that_died_had_sent_is_found_in_the_store_and_not_sent_again(tmp_path, run):
    node = FakeNode()
    node.dies_after_sending = {1}
    with pytest.raises(KeyboardInterrupt):
        dispatch(tmp_path / "r.db", node, map(row, range(3)))
    assert dispatch(tmp_path / "r.db", node, map(row, range(3)), run=run) == DispatchCounts(sent=1, found=2)
    assert node.sent == [0, 1, 2]
    assert receipts(tmp_path / "r.db")[1].detail == "found in the store"


@pytest.mark.parametrize("fault", ["no store", "store fails", "not in the store"])
def test_what_cannot_be_found_is_sent_again_as_the_same_message(tmp_path, fault):
    node = FakeNode(store=fault != "no store")
    node.dies_after_sending = {1}
    with pytest.raises(KeyboardInterrupt):
        dispatch(tmp_path / "r.db", node, [row(1)])
    node.store_fails = fault == "store fails"
    if fault == "not in the store":
        node.sent.clear()
    assert dispatch(tmp_path / "r.db", node, [row(1)]) == DispatchCounts(sent=1)
    assert [receipt.message_hash for receipt in receipts(tmp_path / "r.db")] == [hash_of(1)]


def test_a_message_that_another_task_of_the_run_is_at_is_left_to_it(tmp_path):
    with ReceiptLedger(tmp_path / "r.db") as ledger:
        assert ledger.claim(hash_of(1), SHARD, TOPIC, 1_001, run="run", task=7) is Claim.MINE
    node = FakeNode()
    assert dispatch(tmp_path / "r.db", node, [row(1)], run="run", task=0) == DispatchCounts(found=1)
    assert dispatch(tmp_path / "r.db", node, [row(1)], run="run", task=7) == DispatchCounts(sent=1)


def test_what_may_pass_is_tried_again_with_growing_pauses(tmp_path):
    busy, pauses = SendResult(accepted=False, detail="no peers"), []
    node = FakeNode(busy, busy)
    assert dispatch(tmp_path / "r.db", node, [row(1)], pauses=pauses) == DispatchCounts(sent=1)
    assert (pauses, receipts(tmp_path / "r.db")[0].attempts) == ([1, 2], 3)


def test_what_failed_is_tried_by_the_next_run(tmp_path):
    busy = SendResult(accepted=False, detail="no peers")
    node = FakeNode(busy, busy, OK)
    assert dispatch(tmp_path / "r.db", node, [row(1), row(2)], attempts=2) == DispatchCounts(failed=1, sent=1)
    (failed, _) = receipts(tmp_path / "r.db")
    assert (failed.status, failed.detail, failed.attempts) == (ReceiptStatus.FAILED, "no peers", 2)
    assert dispatch(tmp_path / "r.db", node, [row(1), row(2)], run="again") == DispatchCounts(found=1, sent=1)
    assert (receipts(tmp_path / "r.db")[0].status, node.sent) == (ReceiptStatus.SENT, [2, 1])


@pytest.mark.parametrize("why", ["permanent", "unserved"])
def test_what_is_refused_for_good_is_not_tried_again(tmp_path, why):
    node = FakeNode(SendResult(accepted=False, detail="too large", **{why: True}))
    assert dispatch(tmp_path / "r.db", node, [row(1)]) == DispatchCounts(refused=1)
    assert dispatch(tmp_path / "r.db", node, [row(1)], run="again") == DispatchCounts(found=1)
    (receipt,) = receipts(tmp_path / "r.db")
    assert (receipt.status, receipt.detail, receipt.attempts) == (ReceiptStatus.REFUSED, "too large", 1)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (row(1, timestamp_ns=None), "no timestamp_ns"),
        (row(1, payload=None), "no payload"),
        (row(1, content_topic=None), "no content_topic"),
        (row(1, content_topic="somewhere"), "has no shard"),
        (row(1, meta=bytes(65)), "meta has 65 bytes"),
        (row(1, message_hash=bytes(32)), "the row says message_hash 00"),
        (row(1, version=-1), "WakuMessage"),
    ],
)
def test_a_row_that_makes_no_message_has_a_receipt_that_says_why_and_stops_nothing(tmp_path, bad, why):
    node = FakeNode()
    assert dispatch(tmp_path / "r.db", node, [bad, row(2)]) == DispatchCounts(refused=1, sent=1)
    assert dispatch(tmp_path / "r.db", node, [bad], run="again") == DispatchCounts(refused=1)
    refused, _ = receipts(tmp_path / "r.db")
    assert refused.status is ReceiptStatus.REFUSED
    assert why in refused.detail


def test_a_row_may_say_everything_of_its_message():
    others = {"pubsub_topic": "/waku/2/rs/9/9", "version": 1, "meta": b"m", "ephemeral": True, "other": 5}
    message = message_of(row(1, **others), Shards())
    assert message.pubsub_topic == "/waku/2/rs/9/9"
    assert message.message == WakuMessage(
        payload=b"1", content_topic=TOPIC, timestamp_ns=1_001, version=1, meta=b"m", ephemeral=True
    )
    assert message_of(row(1, message_hash=hash_of(1)), Shards()).message_hash == hash_of(1)


def test_a_row_is_waited_for_until_its_time_and_one_that_is_too_far_off_is_left_to_another_run(tmp_path):
    now_ms, pauses = 1_000_000, []

    async def pause(seconds):
        nonlocal now_ms
        pauses.append(seconds)
        now_ms += round(seconds * 1_000)

    rows = [row(1, not_before_ms=1_001_500), row(2, not_before_ms=None), row(3, not_before_ms=1_100_000), row(4)]
    node = FakeNode()

    async def work(longest_wait_s: float) -> DispatchCounts:
        with ReceiptLedger(tmp_path / "r.db") as ledger:
            dispatcher = Dispatcher(
                node=node,
                ledger=ledger,
                run="run",
                task=0,
                pause=pause,
                longest_wait_s=longest_wait_s,
                now_ns=lambda: now_ms * 1_000_000,
            )
            return await dispatcher.send_all(rows)

    assert asyncio.run(work(60)) == DispatchCounts(sent=3, later=1)
    assert (node.sent, pauses) == ([1, 2, 4], [1.0, 0.5])
    assert asyncio.run(work(120)) == DispatchCounts(sent=1, found=3)
    assert node.sent == [1, 2, 4, 3]
    assert max(pauses) <= 1


def test_the_writer_gives_a_late_row_the_time_at_which_it_leaves_if_it_is_told_to(tmp_path):
    assert writer(tmp_path, restampAfterMs="PT10S").write(iter(BATCHES)).outcome == DispatchCounts(sent=3)
    assert writer(tmp_path, restampAfterMs="10000").write(iter(BATCHES)).outcome == DispatchCounts(found=3)
    found = receipts(tmp_path / "r.db")
    assert [receipt.message_hash for receipt in found] == [hash_of(number) for number in (1, 2, 3)]
    assert all((receipt.sent_timestamp_ns or 0) > 1_700_000_000 * 10**9 for receipt in found)


def test_receipts_are_a_table(tmp_path):
    dispatch(tmp_path / "r.db", FakeNode(SendResult(accepted=False, permanent=True, detail="no")), map(row, range(7)))
    with ReceiptLedger(tmp_path / "r.db") as ledger:
        found = [item for batch in receipt_batches(ledger, 2, 6) for item in batch.to_pylist()]
        everything = [item for batch in receipt_batches(ledger, 0, ledger.last_number()) for item in batch.to_pylist()]
    assert [item["message_hash"] for item in found] == [hash_of(number) for number in range(2, 6)]
    assert [item["status"] for item in everything] == ["refused"] + ["sent"] * 6


def test_a_path_that_keeps_nothing_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot keep receipts"):
        ReceiptLedger(tmp_path / "missing" / "r.db")


def writer(tmp_path, columns=("content_topic", "payload", "timestamp_ns"), *, stream=False, overwrite=False, **options):
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField(name, StringType()) for name in columns])
    given = {"node": f"local:{tmp_path.name}", "receipts": str(tmp_path / "r.db"), **options}
    sink = WakuDataSource({name: value for name, value in given.items() if value})
    return (sink.streamWriter if stream else sink.writer)(schema, overwrite=overwrite)


BATCHES = [pa.RecordBatch.from_pylist([row(1), row(2)]), pa.RecordBatch.from_pylist([row(3)])]


def test_the_writer_sends_batches_through_a_node_and_again_nothing(tmp_path):
    async def stored():
        async with process_network(tmp_path.name).node() as node:
            return await node.query(StoreQuery(content_topics=(TOPIC,)))

    sink = writer(tmp_path)
    message = pickle.loads(pickle.dumps(sink)).write(iter(BATCHES))
    again = pickle.loads(pickle.dumps(writer(tmp_path))).write(iter(BATCHES))
    sink.commit([message, None])
    assert (message.outcome, again.outcome) == (DispatchCounts(sent=3), DispatchCounts(found=3))
    assert [found.message_hash for found in asyncio.run(stored()).messages] == [hash_of(number) for number in (1, 2, 3)]


def test_a_task_whose_messages_failed_fails_unless_that_is_accepted(tmp_path, monkeypatch, caplog):
    busy = SendResult(accepted=False, detail="no peers")
    node = FakeNode(busy, OK, OK, busy)

    @asynccontextmanager
    async def connected():
        yield node

    async def connect(address):
        return connected()

    monkeypatch.setattr("fairway.pipeline.sinks.waku.connect", connect)
    with pytest.raises(NetworkError, match=r"1 of 3 messages were not sent; .*r\.db says which"):
        writer(tmp_path, attempts="1").write(iter(BATCHES))
    assert writer(tmp_path, attempts="1", failOnError="false").write(iter(BATCHES)).outcome == DispatchCounts(
        failed=1, found=2
    )
    sink = writer(tmp_path, attempts="1")
    with caplog.at_level(logging.INFO):
        sink.commit([sink.write(iter(BATCHES))])
    assert "3 rows: 1 sent, 2 sent before, 0 refused, 0 failed" in caplog.text
    assert node.sent == [2, 3, 1]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"node": ""}, "needs a node"),
        ({"receipts": ""}, "needs a file that remembers"),
        ({"attempts": "few"}, "whole numbers"),
        ({"attempts": "0"}, "at least 1"),
        ({"failOnError": "no"}, "true or false"),
        ({"reciepts": "r.db"}, "has no option reciepts"),
        ({"maxWaitMs": "long"}, "option maxWaitMs is a length of time .*, not 'long'"),
        ({"maxWait": "10"}, "no option maxwait; it has .*maxWaitMs"),
        ({"restampAfterMs": "-1"}, "option restampAfterMs is a length of time"),
        ({"restampAfterMs": "PT"}, "option restampAfterMs is a length of time"),
        ({"columns": ("payload",)}, "no column content_topic, timestamp"),
    ],
)
def test_what_the_writer_cannot_work_with_is_named(tmp_path, options, why):
    with pytest.raises(ConfigurationError, match=why):
        writer(tmp_path, **options)


@pytest.mark.parametrize("stream", [False, True])
def test_a_network_is_not_overwritten(tmp_path, stream):
    with pytest.raises(ConfigurationError, match=r"cannot overwrite what is on a network: use \.mode\('append'\)"):
        writer(tmp_path, stream=stream, overwrite=True)
    assert writer(tmp_path, stream=stream).write(iter(BATCHES)).outcome == DispatchCounts(sent=3)
