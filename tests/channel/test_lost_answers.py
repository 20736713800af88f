"""Missing messages are found although a store loses many answers."""

from __future__ import annotations

import asyncio

import pytest

from fairway.channel.clock import steady_clock
from fairway.errors import StoreQueryError
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.nodes.node import RoutedMessage, StorePage
from fairway.options import Advanced, ReliableChannelOptions, RepairConfig, SdsConfig
from fairway.testing import virtual_time
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage
from listening import TOPIC, join, listen

OPTIONS = ReliableChannelOptions(
    sds=SdsConfig(repair=RepairConfig(enabled=False), lost_timeout_ms=86_400_000),
    max_retry_attempts=0,
    advanced=Advanced(max_store_queries_per_minute=1_000),
)
PAGE = 5
PAGES = 40


class Forgetful(LocalNetwork):
    """A network whose store knows no message by its hash, and loses answers by time that are asked newest first."""

    def __init__(self, is_lost):
        super().__init__(NetworkFaults(store_page=PAGE))
        self._is_lost = is_lost
        self.asked = []
        """The cursor and the end of each such question."""

    def answer(self, asker, query, cursor):
        if query.message_hashes:
            return StorePage(messages=())
        if query.newest_first:
            self.asked.append((cursor, query.end_ns))
            if self._is_lost(self.asked):
                raise StoreQueryError("the answer was lost")
        return super().answer(asker, query, cursor)


def noise(number, now_ns):
    """Return a message on the content topic that is none of the channel's."""
    message = WakuMessage(payload=b"\x00%d" % number, content_topic=TOPIC, timestamp_ns=now_ns)
    return RoutedMessage.of(autoshard(TOPIC, 1, 8), message)


async def miss_one_that_is_cited(network, *, pages=PAGES):
    """Have bob miss a message that stands pages deep in the store, and return when he has it, in seconds."""
    loop = asyncio.get_running_loop()
    loose, now_ms = network.node("mallory"), steady_clock()
    async with (
        join(network, "alice", options=OPTIONS) as alice,
        join(network, "bob", options=OPTIONS) as bob,
    ):
        # Past the looks at what a store may not have had at first.
        await asyncio.sleep(1_200)
        network.asked.clear()
        network.partition({"alice"}, {"bob"})
        await (await alice.send(b"missed")).sent()
        network.heal()
        for number in range(pages * PAGE):
            await loose.send(noise(number, now_ms() * 1_000_000))
        heard, found = [], asyncio.Event()

        def hear(event):
            heard.append(event.payload)
            found.set()

        listen(bob, hear)
        await (await alice.send(b"after it")).sent()
        began = loop.time()
        async with asyncio.timeout(6 * 3_600):
            await found.wait()
        assert heard[0] == b"missed"
        return loop.time() - began


@pytest.mark.parametrize("answered_every", [2, 3], ids=["every other one is lost", "two of three are lost"])
@virtual_time()
async def test_a_message_many_store_pages_back_is_found_although_answers_get_lost(answered_every):
    with Forgetful(lambda asked: len(asked) % answered_every) as network:
        assert await miss_one_that_is_cited(network) < 600


@virtual_time()
async def test_a_page_that_failed_several_times_is_queried_by_its_cursor():
    with Forgetful(lambda asked: 10 < len(asked) <= 15) as network:
        await miss_one_that_is_cited(network)
    again = network.asked[10:16]
    assert len(set(again)) == 1
    assert again[0][0] is not None
    assert len({cursor for cursor, _ in network.asked}) == len(network.asked) - 5


@virtual_time()
async def test_after_an_invalid_cursor_newer_pages_are_not_read_again():
    forgotten = []

    def is_lost(asked):
        if len(asked) == 10:
            forgotten.append(asked[-1][0])
        return asked[-1][0] in forgotten

    with Forgetful(is_lost) as network:
        assert await miss_one_that_is_cited(network) < 600
    assert len(network.asked) < PAGES + 15
    anew = next(number for number, (cursor, _) in enumerate(network.asked) if number and cursor is None)
    assert network.asked[anew][1] < network.asked[0][1]
