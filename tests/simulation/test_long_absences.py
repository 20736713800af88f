"""Coming back after a long time: read back in order, in bounded memory, going on where a killed program was."""

from __future__ import annotations

import itertools

import pytest

from fairway.events import IrretrievableMessage, MessageReceived
from fairway.options import ReliableChannelOptions, SdsConfig
from fairway.simulation import World
from fairway.simulation.world import Observer
from fairway.waku.local import LocalNode, NetworkFaults

MINUTE_MS = 60_000
MESSAGES = 800
SPOKE_EVERY_MS = 100
OPTIONS = ReliableChannelOptions(sds=SdsConfig(bloom_capacity=500, max_incoming_buffer=20))


class Peak(Observer):
    """The most that anybody parked."""

    def __init__(self, world):
        self.world = world
        self.parked = 0

    def received(self, at_ms, name, message):
        self.parked = max(self.parked, self.world.participants[name].stack.statistics().parked)


@pytest.fixture
def world():
    """Bob went away, and alice said much more than bob can park."""
    with World(["alice", "bob"], seed=1, faults=NetworkFaults(max_delay_ms=60), options=OPTIONS) as world:
        world.run(MINUTE_MS)
        world.go_offline("bob")
        for number in range(MESSAGES):
            world.send("alice", b"%d" % number)
            world.run(SPOKE_EVERY_MS)
        yield world


def received(world, name="bob"):
    """Return the numbers of the messages; of one that a crash made come again, only if it had not come before."""
    numbers: list[int] = []
    for _, event in world.participants[name].events:
        if isinstance(event, MessageReceived) and not (event.redelivered and int(event.payload) in numbers):
            numbers.append(int(event.payload))
    return numbers


def talk_on(world, first, for_ms):
    """Let alice go on while bob reads; return the number of the next message."""
    until_ms = world.now_ms + for_ms
    while world.now_ms < until_ms:
        world.send("alice", b"%d" % first)
        first += 1
        world.run(500)
    return first


def check(world, count, peak):
    assert received(world) == list(range(count))
    bob = world.participants["bob"]
    assert not [event for _, event in bob.events if isinstance(event, IrretrievableMessage)]
    assert peak.parked <= 40, "twice what may wait"


@pytest.fixture
def peak(world):
    peak = Peak(world)
    world.observers.append(peak)
    return peak


@pytest.fixture
def asked_from_ms(monkeypatch):
    """From when on bob asked the store each time that he began to read it."""
    answer, asked = LocalNode.query, []

    def query(node, query, cursor=None):
        if cursor is None and query.start_ns is not None and node.name == "bob":
            asked.append(query.start_ns // 1_000_000)
        return answer(node, query, cursor)

    monkeypatch.setattr(LocalNode, "query", query)
    return asked


@pytest.mark.full
def test_more_than_fits_memory_is_read_back_in_order_while_others_talk_on(world, peak):
    world.go_online("bob")
    count = talk_on(world, MESSAGES, 2 * MINUTE_MS)
    world.run(10 * MINUTE_MS)
    check(world, count, peak)
    assert peak.parked > 0


def test_a_program_that_is_killed_while_it_reads_goes_on_where_it_was(world, peak, asked_from_ms):
    world.go_online("bob")
    lives = []
    for _ in range(3):
        before = len(received(world))
        assert world.run(MINUTE_MS, until=lambda before=before: len(received(world)) >= before + MESSAGES // 4)
        # It also looks again at what the store may have lacked, which lies before.
        lives.append(max(asked_from_ms))
        world.crash("bob")
    world.run(10 * MINUTE_MS)
    check(world, MESSAGES, peak)
    assert all(later - earlier > MESSAGES / 8 * SPOKE_EVERY_MS for earlier, later in itertools.pairwise(lives)), lives


@pytest.mark.full
def test_a_newcomer_reads_all_that_a_store_has_in_order_and_in_bounded_memory(world):
    world.leave("bob")
    carol = world.join("carol")
    world.run(10 * MINUTE_MS)
    assert received(world, "carol") == list(range(MESSAGES))
    assert carol.stack.statistics().no_room == 0
