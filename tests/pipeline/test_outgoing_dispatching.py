"""Dispatch against a node and a clock that the test holds, without a JVM."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import StoreQueryError
from fairway.nodes.node import NodeHealth, NodeStatus, SendResult, StorePage
from fairway.pipeline.outgoing.dispatching import Dispatch, DispatchProgress
from fairway.pipeline.sinks import ReceiptLedger, ReceiptStatus
from fairway.pipeline.sinks.dispatch import DispatchCounts, message_of
from fairway.storage.lip76 import Shards
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash

TOPIC = "/fairway/1/team/proto"
SHARD = autoshard(TOPIC, 1, 8)
EPOCH_MS = 1_000
FIRST_EPOCH = 1_760_000_000
START_MS = FIRST_EPOCH * EPOCH_MS
OK = SendResult(accepted=True)
BUSY = SendResult(accepted=False, detail="no peers")
TOO_SOON = SendResult(accepted=False, too_many=True, detail="429 too many requests")


class DiedError(Exception):
    """Stands for the end of the process."""


class Clock:
    """Time that passes when somebody waits, and a little with every message."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self.waited: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now_ms += max(1, round(seconds * 1_000))
        await asyncio.sleep(0)

    def now_ns(self) -> int:
        return self.now_ms * 1_000_000


class Node:
    """A node that takes a while for each message, and answers as it is told."""

    def __init__(self, clock: Clock, *, takes_ms: int = 0, store: bool = True) -> None:
        self.clock = clock
        self.takes_ms = takes_ms
        self.sent: list[tuple[int, str, int]] = []
        self.stamps: list[int] = []
        self.hashes: list[bytes] = []
        self.answers: dict[str, list[SendResult]] = {}
        self.dies_after: int | None = None
        self.status = NodeStatus(health=NodeHealth.SUFFICIENTLY_HEALTHY, store=store)

    async def send(self, message):
        self.clock.now_ms += self.takes_ms
        sender, place = message.message.payload.decode().split("/")
        answer = self.answers[sender].pop(0) if self.answers.get(sender) else OK
        if answer.accepted:
            self.sent.append((self.clock.now_ms, sender, int(place)))
            self.stamps.append(message.message.timestamp_ns)
            self.hashes.append(message.message_hash)
        if self.dies_after is not None and len(self.sent) > self.dies_after:
            self.dies_after = None
            raise DiedError
        return answer

    async def query(self, query):
        if not self.status.store:
            raise StoreQueryError("no store")
        return StorePage(messages=tuple(m for m in self.known() if m.message_hash in query.message_hashes))

    def known(self):
        for (_, sender, place), stamp in zip(self.sent, self.stamps, strict=True):
            yield message_of(
                {"content_topic": TOPIC, "payload": f"{sender}/{place}".encode(), "timestamp_ns": stamp, "version": 0},
                Shards(),
            )

    def in_epochs(self) -> Counter[tuple[int, str]]:
        return Counter((at_ms // EPOCH_MS, sender) for at_ms, sender, _ in self.sent)

    def order(self, sender: str) -> list[int]:
        return [place for _, name, place in self.sent if name == sender]


def plan(path, counts: dict[str, int], limit: int, ephemeral: Mapping[str, str | None] = MappingProxyType({})) -> list:
    """Write a schedule in which each sender has as many messages, as many of them in an epoch as the limit says.

    ``ephemeral`` names ephemeral ones by their payload, and why they are dropped.
    """
    rows = []
    for sender, count in counts.items():
        for place in range(count):
            epoch = FIRST_EPOCH + place // limit
            payload, stamp = f"{sender}/{place}".encode(), epoch * EPOCH_MS * 1_000_000 + place
            waku = WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=stamp, version=0)
            is_ephemeral = payload.decode() in ephemeral
            rows.append(
                {
                    "sender_id": sender,
                    "place": place,
                    "epoch": epoch,
                    "not_before_ms": epoch * EPOCH_MS,
                    "message_hash": message_hash(SHARD, waku),
                    "timestamp_ns": stamp,
                    "content_topic": TOPIC,
                    "pubsub_topic": SHARD,
                    "payload": payload,
                    "version": 0,
                    "ephemeral": is_ephemeral,
                    "not_after_ms": (epoch + 1) * EPOCH_MS if is_ephemeral else None,
                    "dropped": ephemeral.get(payload.decode()),
                }
            )
    names = {"not_after_ms": pa.int64(), "dropped": pa.string()}
    columns = {name: pa.array([row[name] for row in rows], names.get(name)) for name in rows[0]}
    pq.write_table(pa.table(columns), path / "scheduled.parquet")
    return [path / "scheduled.parquet"]


def dispatch(path, files, node, clock, **options) -> DispatchCounts:
    async def work() -> DispatchCounts:
        with ReceiptLedger(path / "r.db", now_ms=lambda: clock.now_ms) as ledger:
            given = {"epoch_ms": EPOCH_MS, "pause": clock.pause, "now_ns": clock.now_ns, **options}
            return await Dispatch(files=files, node=node, ledger=ledger, **given).run()

    try:
        return asyncio.run(work())
    except ExceptionGroup as group:
        raise group.exceptions[0] from group


def receipts(path) -> Counter[str]:
    with ReceiptLedger(path / "r.db") as ledger:
        return Counter(receipt.status.value for receipt in ledger.read())


def test_messages_leave_in_their_epochs_and_in_order(tmp_path):
    clock = Clock()
    node = Node(clock)
    files = plan(tmp_path, {"alice": 7, "bob": 2}, 3)
    told: list[DispatchProgress] = []
    assert dispatch(tmp_path, files, node, clock, rate_limit=3, tell=told.append) == DispatchCounts(sent=9)
    assert (node.order("alice"), node.order("bob")) == (list(range(7)), [0, 1])
    assert node.in_epochs() == {
        (FIRST_EPOCH, "alice"): 3,
        (FIRST_EPOCH, "bob"): 2,
        (FIRST_EPOCH + 1, "alice"): 3,
        (FIRST_EPOCH + 2, "alice"): 1,
    }
    assert (told[0].settled, told[-1].settled, told[-1].total) == (0, 9, 9)
    assert {each.waits_until_ms for each in told} == {None, START_MS + 1_000, START_MS + 2_000}


@examples(0.15)
@given(
    count=st.integers(1, 25),
    limit=st.integers(1, 6),
    takes_ms=st.integers(0, 900),
    late_ms=st.integers(-3_000, 20_000),
    stops=st.lists(st.integers(0, 25), max_size=3),
)
def test_no_epoch_of_the_clock_sees_more_than_the_limit_and_nothing_leaves_twice(
    tmp_path_factory, count, limit, takes_ms, late_ms, stops
):
    path = tmp_path_factory.mktemp("batch")
    clock = Clock(START_MS + late_ms)
    node = Node(clock, takes_ms=takes_ms)
    files = plan(path, {"alice": count}, limit)
    for stop in stops:
        node.dies_after = stop
        try:
            dispatch(path, files, node, clock, rate_limit=limit)
        except DiedError:
            clock.now_ms += 37
    node.dies_after = None
    dispatch(path, files, node, clock, rate_limit=limit)
    assert node.order("alice") == list(range(count))
    assert max(node.in_epochs().values()) <= limit
    assert receipts(path) == {"sent": count}


def test_what_the_node_does_not_take_stops_its_sender_and_no_other_until_the_next_attempt(tmp_path):
    clock = Clock()
    node = Node(clock)
    node.answers = {"alice": [OK, BUSY, BUSY]}
    files = plan(tmp_path, {"alice": 4, "bob": 4}, 2)
    assert dispatch(tmp_path, files, node, clock, attempts=2) == DispatchCounts(sent=5, failed=1)
    assert (node.order("alice"), node.order("bob")) == ([0], [0, 1, 2, 3])
    assert receipts(tmp_path) == {"sent": 5, "failed": 1}
    assert dispatch(tmp_path, files, node, clock) == DispatchCounts(sent=3)
    assert node.order("alice") == [0, 1, 2, 3]


def test_a_node_that_grants_fewer_a_second_slows_the_batch_down_and_stops_nothing(tmp_path):
    clock = Clock()
    node = Node(clock)
    node.answers = {"alice": [OK, *[TOO_SOON] * 20, OK, TOO_SOON]}
    files = plan(tmp_path, {"alice": 4}, 5)
    assert dispatch(tmp_path, files, node, clock, attempts=2) == DispatchCounts(sent=4)
    assert node.order("alice") == [0, 1, 2, 3]
    assert (
        max(at_ms - stamp // 1_000_000 for (at_ms, _, _), stamp in zip(node.sent, node.stamps, strict=True)) <= 10_000
    )


def test_a_node_that_grants_none_for_longer_than_is_waited_is_left_to_another_attempt(tmp_path):
    clock = Clock()
    node = Node(clock)
    node.answers = {"alice": [TOO_SOON] * 100}
    files = plan(tmp_path, {"alice": 2}, 5)
    assert dispatch(tmp_path, files, node, clock, longest_wait_s=30) == DispatchCounts(failed=1)
    assert clock.now_ms <= START_MS + 31_000


def test_what_the_node_refuses_for_good_stops_nothing(tmp_path):
    clock = Clock()
    node = Node(clock)
    node.answers = {"alice": [SendResult(accepted=False, permanent=True, detail="too large")]}
    files = plan(tmp_path, {"alice": 3}, 5)
    assert dispatch(tmp_path, files, node, clock) == DispatchCounts(sent=2, refused=1)
    assert dispatch(tmp_path, files, node, clock) == DispatchCounts()


def test_an_ephemeral_message_never_leaves_in_a_later_epoch_and_stops_nothing(tmp_path):
    clock = Clock()
    node = Node(clock)
    node.answers = {"alice": [OK, BUSY]}
    named = {"alice/1": None, "alice/3": "no room", "alice/5": None, "alice/6": None}
    files = plan(tmp_path, {"alice": 8}, 4, named)
    assert dispatch(tmp_path, files, node, clock, rate_limit=4, longest_wait_s=0) == DispatchCounts(sent=2, dropped=2)
    clock.now_ms = START_MS + 2 * EPOCH_MS
    assert dispatch(tmp_path, files, node, clock, rate_limit=4) == DispatchCounts(sent=2, dropped=2)
    assert node.order("alice") == [0, 2, 4, 7], "only what is not ephemeral is made up for"
    assert receipts(tmp_path) == {"sent": 4, "dropped": 4}
    with ReceiptLedger(tmp_path / "r.db") as ledger:
        why = [receipt.detail for receipt in ledger.read() if receipt.status is ReceiptStatus.DROPPED]
        assert why == ["no peers", "no room", *["its epoch of the rate limit is over"] * 2]
        assert ledger.attempts_since(START_MS + 2 * EPOCH_MS) == 2, "what never left is not charged to the epoch"
    assert dispatch(tmp_path, files, node, clock, rate_limit=4) == DispatchCounts()


def test_an_ephemeral_message_that_was_under_way_at_a_crash_is_not_sent_again(tmp_path):
    clock = Clock()
    node = Node(clock, store=False)
    node.dies_after = 1
    files = plan(tmp_path, {"alice": 3}, 5, {"alice/1": None})
    with pytest.raises(DiedError):
        dispatch(tmp_path, files, node, clock)
    assert dispatch(tmp_path, files, node, clock) == DispatchCounts(sent=1, dropped=1)
    assert node.order("alice") == [0, 1, 2]


@pytest.mark.parametrize("store", [True, False], ids=["store", "no-store"])
def test_what_was_under_way_at_a_crash_leaves_again_only_if_nobody_can_say_that_it_arrived_and_then_unchanged(
    tmp_path, store
):
    clock = Clock()
    node = Node(clock, store=store)
    node.dies_after = 1
    files = plan(tmp_path, {"alice": 3}, 5)
    with pytest.raises(DiedError):
        dispatch(tmp_path, files, node, clock)
    clock.now_ms += 3_600_000
    dispatch(tmp_path, files, node, clock)
    assert node.order("alice") == ([0, 1, 2] if store else [0, 1, 1, 2])
    assert len(set(node.hashes)) == 3


def test_what_leaves_late_is_stamped_once_more_and_keeps_that_stamp_over_a_crash(tmp_path):
    clock = Clock(START_MS + 60_000)
    node = Node(clock, store=False)
    node.dies_after = 0
    files = plan(tmp_path, {"alice": 2}, 5)
    with pytest.raises(DiedError):
        dispatch(tmp_path, files, node, clock)
    clock.now_ms += 1_000
    dispatch(tmp_path, files, node, clock)
    assert node.stamps == [(START_MS + 60_000) * 1_000_000] * 2 + [(START_MS + 61_000) * 1_000_000]
    with ReceiptLedger(tmp_path / "r.db") as ledger:
        found = list(ledger.read())
    assert [receipt.sent_hash for receipt in found] == node.hashes[1:]
    assert all(receipt.status is ReceiptStatus.SENT for receipt in found)
    assert [receipt.timestamp_ns for receipt in found] == [START_MS * 1_000_000, START_MS * 1_000_000 + 1]


def test_an_epoch_that_is_too_far_off_is_left_to_another_attempt(tmp_path):
    clock = Clock()
    node = Node(clock)
    files = plan(tmp_path, {"alice": 6}, 2)
    assert dispatch(tmp_path, files, node, clock, rate_limit=2, longest_wait_s=0.5) == DispatchCounts(sent=2)
    clock.now_ms = START_MS + 1_000
    assert dispatch(tmp_path, files, node, clock, rate_limit=2, longest_wait_s=1.5) == DispatchCounts(sent=4)
