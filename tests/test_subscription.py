"""The queue between a node and a reader, and the status that everybody may watch."""

from __future__ import annotations

import asyncio

from fairway.nodes import NodeHealth, NodeStatus, Subscription
from fairway.nodes.status_board import StatusBoard
from patience import PATIENCE_S

WELL = NodeStatus(health=NodeHealth.SUFFICIENTLY_HEALTHY, store=True)
ILL = NodeStatus(health=NodeHealth.UNHEALTHY)


async def read_all(items):
    async with asyncio.timeout(PATIENCE_S):
        return [item async for item in items]


def test_items_put_before_the_end_are_read():
    async def story():
        queue = Subscription()
        for number in range(3):
            queue.put(number)
        queue.close()
        queue.put(3)
        return await read_all(queue)

    assert asyncio.run(story()) == [0, 1, 2]


def test_a_waiting_reader_is_woken_by_an_item_and_by_the_end():
    async def story():
        queue = Subscription()
        reader = asyncio.create_task(read_all(queue))
        await asyncio.sleep(0)
        queue.put("item")
        await asyncio.sleep(0)
        queue.close()
        return await reader

    assert asyncio.run(story()) == ["item"]


def test_beyond_the_limit_the_oldest_items_are_dropped_and_counted():
    queue = Subscription(max_items=3)
    for number in range(5):
        queue.put(number)
    assert (queue.take(), queue.dropped, len(queue)) == ([2, 3, 4], 2, 0)


def test_a_batch_has_all_waiting_items_and_an_empty_batch_is_the_end():
    async def story():
        queue = Subscription()
        queue.put(1)
        queue.put(2)
        first = await queue.next_batch()
        queue.close()
        return first, await queue.next_batch()

    assert asyncio.run(story()) == ([1, 2], [])


def test_a_watcher_receives_the_current_status_every_change_and_the_end():
    async def story():
        board = StatusBoard()
        early = board.watch()
        board.show(WELL)
        board.show(WELL)
        late = board.watch()
        board.close()
        board.close()
        return await read_all(early), await read_all(late), await read_all(board.watch())

    assert asyncio.run(story()) == ([ILL, WELL, ILL], [WELL, ILL], [ILL])


def test_waiting_items_are_limited_in_bytes_and_the_newest_always_stays():
    async def story():
        queue = Subscription(size_of=len, max_bytes=10)
        for item in (b"four", b"more", b"by six", b"this alone is too much", b"end"):
            queue.put(item)
        dropped = queue.dropped
        queue.close()
        return await read_all(queue), dropped

    assert asyncio.run(story()) == ([b"end"], 4)
