"""Messages of the tests of nodes, and words for what the tests do with them."""

from __future__ import annotations

import asyncio

import pytest

from fairway.nodes import NodeHealth, RoutedMessage, StoreQuery
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S

SHARD = "/waku/2/rs/1/0"
TOPIC = "/fairway/1/tests/proto"
START_NS = 1_760_000_000_000_000_000


class Words:
    """What the tests say to nodes."""

    shard = SHARD
    topic = TOPIC
    start_ns = START_NS

    @staticmethod
    def message(number=0, *, payload=None, topic=TOPIC, shard=SHARD, timestamp_ns=None, ephemeral=None):
        """Make a message; larger numbers are later."""
        stamp = START_NS + number if timestamp_ns is None else timestamp_ns
        content = b"message %d" % number if payload is None else payload
        return RoutedMessage.of(
            shard, WakuMessage(payload=content, content_topic=topic, timestamp_ns=stamp, ephemeral=ephemeral)
        )

    @staticmethod
    def query(**fields):
        """Make a query by content topic."""
        return StoreQuery(**({"pubsub_topic": SHARD, "content_topics": (TOPIC,)} | fields))

    @staticmethod
    async def listen(node, topic=TOPIC):
        """Subscribe to the tests' content topic."""
        return await node.subscribe(SHARD, [topic])

    @staticmethod
    async def next_of(subscription, count=1):
        """Return the payloads of the next messages; fails if they do not come."""
        payloads = []
        async with asyncio.timeout(PATIENCE_S):
            while len(payloads) < count:
                payloads.append((await anext(subscription)).message.payload)
        return payloads

    @staticmethod
    def payloads(messages):
        """Return the payloads of messages."""
        return [message.message.payload for message in messages]

    @staticmethod
    async def until(condition):
        """Wait until a condition holds; fails if it does not."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - conditions of all kinds, nobody to set an event
                await asyncio.sleep(0.005)

    @staticmethod
    async def status(node, *, connected):
        """Wait until a node is connected, or is not."""
        async with asyncio.timeout(PATIENCE_S):
            async for status in node.status_changes():
                if (status.health is not NodeHealth.UNHEALTHY) == connected:
                    return status
        raise AssertionError("the node was closed instead")

    @staticmethod
    async def all_pages(node, query):
        """Return the payloads of all pages of an answer, a list for each page."""
        pages, cursor = [], None
        for _ in range(1_000):
            page = await node.query(query, cursor)
            pages.append([message.message.payload for message in page.messages])
            cursor = page.cursor
            if cursor is None:
                return pages
        raise AssertionError("the pages have no end")


@pytest.fixture(scope="session")
def say():
    return Words
