"""Coming back after a long time: read back in order, in bounded memory, going on where a killed program was."""

from __future__ import annotations

import itertools

import pytest

from fairway.events import IrretrievableMessage, MessageReceived
from fairway.options import ReliableChannelOptions, SdsConfig
from fairway.protocol.effects import QueryStore
from fairway.simulation import NetworkFaults, World

MINUTE_MS = 60_000
MESSAGES = 1_500
OPTIONS = ReliableChannelOptions(sds=SdsConfig(bloom_capacity=500, max_incoming_buffer=20))


@pytest.fixture
def world():
    """Bob went away, and alice said much more than bob can park."""
    world = World(["alice", "bob"], seed=1, faults=NetworkFaults(min_delay_ms=20, max_delay_ms=60), options=OPTIONS)
    world.run(MINUTE_MS)
    world.go_offline("bob")
    for number in range(MESSAGES):
        world.send("alice", b"%d" % number)
        world.run(100)
    world.queries = []
    world.peak = 0

    def watch(_at_ms, name, effect):
        if name == "bob":
            world.peak = max(world.peak, world.participants["bob"].stack.statistics().parked)
            if isinstance(effect, QueryStore) and effect.catch_up:
                world.queries.append(effect)

    world.effect_observers.append(watch)
    return world


def received(world):
    return [int(e.payload) for _, e in world.participants["bob"].events if isinstance(e, MessageReceived)]


def talk_on(world, first, for_ms):
    """Let alice go on while bob reads; return the number of the next message."""
    until_ms = world.now_ms + for_ms
    while world.now_ms < until_ms:
        world.send("alice", b"%d" % first)
        first += 1
        world.run(500)
    return first


def check(world, count):
    assert received(world) == list(range(count))
    bob = world.participants["bob"]
    assert not [event for _, event in bob.events if isinstance(event, IrretrievableMessage)]
    assert world.peak <= 40, "twice what may wait"


def test_more_than_fits_memory_is_read_back_in_order_while_others_talk_on(world):
    world.go_online("bob")
    count = talk_on(world, MESSAGES, 2 * MINUTE_MS)
    world.run(10 * MINUTE_MS)
    check(world, count)
    assert world.participants["bob"].stack.statistics().no_room > 0, "what was said meanwhile had to come again"


def test_a_program_that_is_killed_while_it_reads_goes_on_where_it_was(world):
    world.go_online("bob")
    starts_ms, count = [], MESSAGES
    for _ in range(3):
        starts_ms.append(world.queries[-1].start_ns // 1_000_000)
        before = len(received(world))
        world.run(MINUTE_MS, until=lambda before=before: len(received(world)) >= before + 400)
        world.crash("bob")
    starts_ms.append(world.queries[-1].start_ns // 1_000_000)
    assert all(later - earlier > 20_000 for earlier, later in itertools.pairwise(starts_ms)), starts_ms
    world.run(10 * MINUTE_MS)
    check(world, count)


def test_a_newcomer_reads_all_that_a_store_has_in_order_and_in_bounded_memory(world):
    world.leave("bob")
    world.join("carol")
    world.run(10 * MINUTE_MS)
    carol = world.participants["carol"]
    assert [int(e.payload) for _, e in carol.events if isinstance(e, MessageReceived)] == list(range(MESSAGES))
    assert carol.stack.statistics().no_room == 0
