"""A light client looks in stores for what it sent, pushes it once more if no store has it, and says what it found."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from fairway.errors import StoreQueryError
from fairway.nodes.light import sent_confirmation
from fairway.nodes.light.sent_confirmation import SentConfirmation
from fairway.nodes.node import RoutedMessage, SendResult
from fairway.owned_tasks import OwnedTasks
from fairway.testing import virtual_time
from fairway.wire.waku_message import WakuMessage

SHARD = "/waku/2/rs/16/0"


class Network:
    """A store with the messages that it was given, and nodes that accept every push."""

    def __init__(self):
        self.stored = set()
        self.answers = True
        self.pauses_s: Iterator[float] = iter(())
        """How long the store takes for its next answers."""
        self.looks = []
        self.pushes = []

    async def present(self, hashes):
        self.looks.append((asyncio.get_running_loop().time() - self.began_s, hashes))
        await asyncio.sleep(next(self.pauses_s, 0))
        if not self.answers:
            raise StoreQueryError("no store node is connected")
        return self.stored & set(hashes)

    async def push(self, message):
        self.pushes.append(message)
        return SendResult(accepted=True)

    @contextlib.asynccontextmanager
    async def watched(self):
        loop, tasks = asyncio.get_running_loop(), OwnedTasks()
        self.began_s = loop.time()
        watching = SentConfirmation(self.present, self.push, tasks)
        tasks.spawn(watching.run())
        async with asyncio.timeout(3_600):
            yield watching
        watching.close()
        await tasks.close()


def message(number=0):
    return RoutedMessage.of(SHARD, WakuMessage(payload=b"%d" % number, content_topic="/a/1/b/proto"))


@virtual_time(seed=1)
async def test_a_message_that_no_store_has_is_pushed_once_more_and_then_reported():
    network = Network()
    async with network.watched() as watching:
        stored = watching.watch(message())
        assert await stored is False
        assert [at_s for at_s, _ in network.looks] == [1.5, 4.5]
        assert network.pushes == [message()]
        await asyncio.sleep(600)
        assert (len(network.looks), len(network.pushes)) == (2, 1)


@virtual_time(seed=1)
async def test_a_message_that_a_store_has_is_reported_and_pushed_no_more():
    network = Network()
    network.stored = {message().message_hash}
    async with network.watched() as watching:
        assert await watching.watch(message()) is True
        assert (len(network.looks), network.pushes, watching.confirmed) == (1, [], 1)


@virtual_time(seed=1)
async def test_if_no_store_answers_nothing_is_pushed_and_the_answer_stays_unknown():
    network = Network()
    network.answers = False
    async with network.watched() as watching:
        assert await watching.watch(message()) is None
        assert (len(network.looks), network.pushes) == (2, [])


@virtual_time(seed=1)
async def test_a_store_that_does_not_answer_delays_no_other_message():
    network = Network()
    network.pauses_s = iter([10])
    async with network.watched() as watching:
        first = watching.watch(message(1))
        await asyncio.sleep(1)
        assert await watching.watch(message(2)) is False
        assert not first.done()
        assert await first is False


@virtual_time(seed=1)
async def test_beyond_the_bound_the_oldest_messages_are_no_longer_watched(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sent_confirmation, "MAX_WATCHED", 2)
    async with Network().watched() as watching:
        reports = [watching.watch(message(number)) for number in range(4)]
        assert await asyncio.gather(*reports) == [None, None, False, False]


@virtual_time(seed=1)
async def test_a_node_that_closes_leaves_no_answer_open():
    async with Network().watched() as watching:
        stored = watching.watch(message())
    assert await stored is None
