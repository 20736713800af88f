"""What survives a crash: folding what was persisted gives the state, and a state goes on where it stopped."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from examples import examples
from fairway.errors import SnapshotError
from fairway.events import MessageReceived
from fairway.options import (
    Profile,
    RateLimitConfig,
    ReliableChannelOptions,
    RepairConfig,
    SdsConfig,
    SegmentationConfig,
)
from fairway.protocol.effects import Change, QueryStore
from fairway.protocol.stack_state import SCHEMA_VERSION

FIXTURES: dict[str, type] = {}
"""What a state machine cannot ask for itself."""
NAMES = ("alice", "bob", "carol")

SMALL = SegmentationConfig(segment_size_bytes=192)
WAKU = ReliableChannelOptions(
    segmentation=SMALL,
    sds=SdsConfig(bloom_capacity=200, lost_timeout_ms=0),
    rate_limit=RateLimitConfig(enabled=True, epoch_ms=60_000, messages_per_epoch=30),
)
LOGOS = ReliableChannelOptions(
    profile=Profile.LOGOS,
    segmentation=SMALL,
    sds=SdsConfig(bloom_capacity=200, lost_timeout_ms=0),
)


class LossyChannel(RuleBasedStateMachine):
    """Three participants, a network that loses and reorders, and crashes at any moment."""

    options = WAKU

    def __init__(self):
        super().__init__()
        self.peers = {name: FIXTURES["peer"](name, self.options) for name in NAMES}
        self.order = FIXTURES["cited_order"]()
        self.air = []
        self.received = {name: [] for name in self.peers}
        self.sent = {name: [] for name in self.peers}
        self.requests = {name: [] for name in self.peers}

    def spread(self, name):
        peer = self.peers[name]
        for publication in list(peer.unanswered):
            self.air += [(other, publication) for other in self.peers if other != name]
            peer.answer(publication)

    def collect(self, name):
        self.received[name] += self.peers[name].events(MessageReceived)
        self.peers[name].effects.clear()

    @rule(
        name=st.sampled_from(NAMES),
        size=st.sampled_from([1, 100, 900, 2_000]),
        fill=st.integers(0, 3),
        who=st.sampled_from([NAMES, ()]),
    )
    def send(self, name, size, fill, who):
        # Of two sendings of one payload whose segments mix nobody can tell which came first.
        number = sum(map(len, self.sent.values()))
        payload = bytes([fill if size == 1 else number % 256]) * size
        self.sent[name].append(payload)
        accepted = self.peers[name].send(payload, required_from=set(who) - {name})
        self.requests[name].append((accepted.request_id, payload))
        self.collect(name)
        self.order.note(self.peers[name].stack, accepted.request_id, self.received[name])
        self.spread(name)

    @rule(back=st.integers(1, 3))
    def repeat_sends(self, back):
        """Ask all others of sends that may be open, failed or delivered, also in an earlier run."""
        for name, peer in self.peers.items():
            for request_id, payload in self.requests[name][-back:]:
                peer.send(payload, request_id=request_id, required_from=set(NAMES) - {name})

    @rule(name=st.sampled_from(NAMES), goes_through=st.booleans())
    def reach_a_store(self, name, goes_through):
        peer = self.peers[name]
        for effect in peer.do(peer.stack.store_connected(peer.now_ms)):
            if isinstance(effect, QueryStore) and goes_through:
                peer.do(peer.stack.caught_up(effect.end_ns, peer.now_ms))

    @precondition(lambda self: self.air)
    @rule(places=st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), min_size=1, max_size=20))
    def deliver_or_lose(self, places):
        for place, arrives in places:
            if self.air:
                name, publication = self.air.pop(place % len(self.air))
                if arrives:
                    self.peers[name].receive(publication)
                self.spread(name)

    @rule()
    def have_a_calm_moment(self):
        """Nothing is lost for a while, so that everybody acknowledges what came."""
        for _ in range(20):
            air, self.air = self.air, []
            for name, publication in air:
                self.peers[name].receive(publication)
                self.spread(name)
            self.pass_time(2_000)

    @rule(for_ms=st.sampled_from([10, 5_000, 40_000]))
    def pass_time(self, for_ms):
        for name, peer in self.peers.items():
            peer.pass_time(for_ms, answer=False)
            self.spread(name)

    @rule(name=st.sampled_from(NAMES))
    def crash(self, name):
        self.collect(name)
        self.peers[name] = self.peers[name].restart()
        self.spread(name)

    @rule(name=st.sampled_from(NAMES), connected=st.booleans())
    def connect(self, name, connected):
        self.peers[name].connect(connected)
        self.spread(name)

    @invariant()
    def what_was_persisted_is_the_state(self):
        for peer in self.peers.values():
            peer.check_rows()

    def teardown(self):
        """Let everything heal, and see that everybody got everything once and in order."""
        for name, peer in self.peers.items():
            peer.connect()
            self.spread(name)
        for _ in range(400):
            for name, peer in self.peers.items():
                air, self.air = self.air, []
                for other, publication in air:
                    self.peers[other].receive(publication)
                peer.pass_time(2_000, answer=False)
                self.spread(name)
        for name in self.peers:
            self.collect(name)
            expected = Counter((o, p) for o, payloads in self.sent.items() if o != name for p in payloads)
            assert Counter((event.sender_id, event.payload) for event in self.received[name]) == expected, name
            assert self.order.violations(name, self.received[name]) == [], name
            assert self.peers[name].stack.statistics().open_requests == 0, name


class LossyLogosChannel(LossyChannel):
    options = LOGOS


@pytest.mark.parametrize("machine", [LossyChannel, LossyLogosChannel])
def test_whatever_happens_the_persisted_rows_are_the_state_and_everybody_gets_everything_once(
    peer, cited_order, machine
):
    FIXTURES.update(peer=peer, cited_order=cited_order)
    machine.TestCase.settings = examples(0.1, stateful_step_count=25, phases=[Phase.explicit, Phase.generate])
    machine.TestCase("runTest").runTest()


def test_a_restored_stack_tells_the_snapshot_that_it_was_restored_from(peer):
    alice, bob = peer("alice", WAKU), peer("bob", WAKU)
    for number in range(40):
        alice.send(bytes([number]) * (1 + 60 * (number % 7)))
    rng = random.Random(1)
    bob.receive(*(publication for publication in alice.content() if rng.random() < 0.7))
    for participant in (alice, bob):
        before = {(c.table, c.key): c.row for c in participant.stack.snapshot()}
        again = participant.restart()
        after = {(c.table, c.key): c.row for c in again.stack.snapshot()}
        for rows in (before, after):
            # The clock of the rate limit moves by itself, and a new life sets its timers anew.
            del rows["rate_limit", ""], rows["jitter", ""]
        for place in [place for place in before if before[place] != after[place]]:
            # A hint that no node confirmed is gone in the next life.
            (lamport, _, sender_id, prints), (table, _) = before[place], place
            assert table == "history"
            before[place] = (lamport, None, sender_id, prints)
        assert before == after
        again.check_rows()


def test_rows_may_come_in_any_order(peer):
    alice, bob = peer("alice", WAKU), peer("bob", WAKU)
    for number in range(20):
        alice.send(bytes([number]) * 700)
    bob.receive(*alice.content()[3:])
    for participant in (alice, bob):
        rows = list(participant.rows.values())
        snapshots = []
        for seed in range(3):
            random.Random(seed).shuffle(rows)
            again = peer(participant.name, WAKU, rows={(c.table, c.key): c for c in rows}, life=7)
            snapshots.append({(c.table, c.key): c.row for c in again.stack.snapshot()})
        assert snapshots[0] == snapshots[1] == snapshots[2]


def change(table, row, key=""):
    return {(table, key): Change(table=table, key=key, row=row)}


VERSION = change("schema", (SCHEMA_VERSION,))


def test_a_table_of_another_program_is_refused_by_name(peer):
    with pytest.raises(SnapshotError, match="does not know: moods"):
        peer(rows={**VERSION, **change("moods", ("gay",))})


@pytest.mark.parametrize("version", [(SCHEMA_VERSION + 1,), (0,), ("1",), ()])
def test_another_version_is_refused_and_both_are_named(peer, version):
    with pytest.raises(SnapshotError, match=rf"reads \({SCHEMA_VERSION},\)"):
        peer(rows=change("schema", version))


@pytest.mark.parametrize(
    "table",
    [
        "sds",
        "history",
        "outgoing",
        "requests",
        "segments",
        "arrivals",
        "complete",
        "reassembly",
        "rate_limit",
        "stamp",
        "outbox",
        "jitter",
        "parked",
        "missing",
    ],
)
@pytest.mark.parametrize("row", [(), (None,), ("a",) * 30])
def test_a_row_that_cannot_be_read_is_a_snapshot_error(peer, table, row):
    with pytest.raises(SnapshotError):
        peer(
            rows={
                **VERSION,
                **change(table, row, key="" if table in {"sds", "stamp"} else "7"),
            }
        )


def test_a_restart_without_repair_removes_the_retained_messages_from_the_store(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"hello")
    bob.receive(*alice.content())
    reborn = bob.restart(options=replace(bob.options, sds=SdsConfig(repair=RepairConfig(enabled=False))))
    assert not [key for table, key in reborn.rows if table == "retained"]


def test_what_came_and_went_within_one_operation_is_not_written(peer):
    alice, bob = peer("alice"), peer("bob")
    effects = alice.send(b"hello").effects
    assert not [c for c in effects[0].changes if c.table == "outbox"]
    bob.receive(*alice.content())
    assert not [c for c in bob.effects[0].changes if c.table in {"arrivals", "complete"}]


def test_receiving_a_sync_message_or_waiting_writes_nothing(peer):
    alice, bob = peer("alice"), peer("bob")
    alice.send(b"hello")
    alice.answer()
    bob.receive(*alice.content())
    bob.pass_time(20_000)
    sync = bob.published()[-1]
    alice.receive(sync)
    alice.effects.clear()
    alice.receive(sync)
    alice.tick()
    assert alice.effects == []
