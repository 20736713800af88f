"""How long a light client looks after a message that it sent."""

from __future__ import annotations

import asyncio

import pytest

from fairway.errors import StoreQueryError
from fairway.nodes.light import LightOptions
from fairway.nodes.light.presence import PresenceKeeper
from fairway.nodes.node import RoutedMessage, SendResult
from fairway.owned_tasks import OwnedTasks
from fairway.testing import virtual_time
from fairway.wire.waku_message import WakuMessage

SHARD = "/waku/2/rs/16/0"


class Network:
    """A store that has nothing but what it is given, and a clock that stands until it is moved."""

    def __init__(self, **options):
        self.now_s = 0.0
        self.stored = frozenset()
        self.answers = True
        self.looks = []
        self.pushes = []
        self.tasks = OwnedTasks()
        self.keeper = PresenceKeeper(
            present=self._present,
            push=self._push,
            options=LightOptions(**options),
            clock=lambda: self.now_s,
            tasks=self.tasks,
        )

    async def _present(self, hashes):
        self.looks.append((self.now_s, hashes))
        if not self.answers:
            raise StoreQueryError("nobody there")
        return self.stored & set(hashes)

    async def _push(self, message):
        self.pushes.append(message)
        return SendResult(accepted=True)

    async def pass_time(self, duration_s, step_s=0.5):
        for _ in range(int(duration_s / step_s)):
            self.now_s += step_s
            await self.keeper.look()


def message(number=0, *, ephemeral=None):
    content = WakuMessage(payload=b"%d" % number, content_topic="/a/1/b/proto", ephemeral=ephemeral)
    return RoutedMessage.of(SHARD, content)


@pytest.mark.parametrize("attempts", [1, 3, 5])
def test_a_message_that_never_arrives_is_asked_for_and_sent_again_so_often_and_then_no_more(attempts):
    network = Network(presence_attempts=attempts, presence_first_s=1.0)
    network.keeper.add(message())
    asyncio.run(network.pass_time(500))
    assert len(network.looks) == attempts
    assert len(network.pushes) == attempts
    assert len(network.keeper) == 0


def test_each_further_pause_is_twice_as_long():
    network = Network(presence_attempts=4, presence_first_s=1.0)
    network.keeper.add(message())
    asyncio.run(network.pass_time(100))
    assert [now_s for now_s, _ in network.looks] == [1.0, 3.0, 7.0, 15.0]


def test_without_a_store_that_answers_nothing_is_sent_again_and_patience_ends_all_the_same():
    network = Network(presence_attempts=3)
    network.answers = False
    network.keeper.add(message())
    asyncio.run(network.pass_time(500))
    assert (len(network.looks), network.pushes, len(network.keeper)) == (3, [], 0)


def test_a_message_that_was_found_and_an_ephemeral_one_are_no_longer_looked_after():
    network = Network()
    network.keeper.add(message(1))
    network.keeper.add(message(2, ephemeral=True))
    network.stored = frozenset({message(1).message_hash})
    asyncio.run(network.pass_time(500))
    assert (len(network.looks), network.pushes, network.keeper.confirmed) == (1, [], 1)


def test_beyond_the_bound_the_oldest_messages_are_no_longer_looked_after():
    network = Network(max_presence=2)
    for number in range(4):
        network.keeper.add(message(number))
    asyncio.run(network.pass_time(2))
    assert [hashes for _, hashes in network.looks] == [tuple(message(number).message_hash for number in (2, 3))]


class SlowNetwork(Network):
    """One whose nodes take their time over a push."""

    under_way = most = 0

    async def _push(self, message):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1
        return await super()._push(message)


def test_messages_that_are_sent_again_do_not_wait_for_one_another():
    network = SlowNetwork(presence_attempts=1, presence_first_s=1.0)
    for number in range(5):
        network.keeper.add(message(number))
    asyncio.run(network.pass_time(2))
    assert (len(network.pushes), network.most) == (5, 5)


@virtual_time(seed=1)
async def test_a_store_that_does_not_answer_holds_up_no_other_message():
    loop, tasks, asked, pushed = asyncio.get_running_loop(), OwnedTasks(), [], []

    async def present(hashes):
        asked.append(hashes)
        if len(asked) == 1:
            await asyncio.sleep(10)
        return frozenset()

    async def push(one):
        pushed.append((one.message_hash, loop.time()))
        return SendResult(accepted=True)

    options = LightOptions(presence_attempts=2, presence_first_s=1.0)
    keeper = PresenceKeeper(present=present, push=push, options=options, clock=loop.time, tasks=tasks)
    began_s = loop.time()
    tasks.spawn(keeper.run())
    keeper.add(message(1))
    await asyncio.sleep(1)
    keeper.add(message(2))
    await asyncio.sleep(60)
    await tasks.close()
    first_s = {digest: at_s - began_s for digest, at_s in reversed(pushed)}
    assert first_s[message(1).message_hash] > 10
    assert first_s[message(2).message_hash] < 5
    assert all(hashes.count(message(1).message_hash) <= 1 for hashes in asked)
    assert sum(message(1).message_hash in hashes for hashes in asked) == 2
