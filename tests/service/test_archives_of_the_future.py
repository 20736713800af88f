"""Messages dated far ahead: no archive keeps them, for they would push out whatever is honest."""

from __future__ import annotations

import time

import pytest

from fairway.nodes.node import RoutedMessage, StoreQuery
from fairway.service.archives import MAX_AHEAD_NS, Retention
from fairway.service.open_archive import open_archive
from fairway.wire.waku_message import WakuMessage
from patience import run

SHARD = "/waku/2/rs/16/0"
TOPIC = "/app/1/chat/proto"


def dated(timestamp_ns, payload):
    return RoutedMessage.of(SHARD, WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=timestamp_ns))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_messages_dated_more_than_an_hour_ahead_are_dropped(kind, tmp_path):
    async def work():
        place = "memory:" if kind == "memory" else f"sqlite:{tmp_path / 'archive.db'}"
        archive = await open_archive(place, Retention())
        try:
            now_ns = time.time_ns()
            ahead = [now_ns + MAX_AHEAD_NS + 60_000_000_000, 2**63 - 1]
            good = [now_ns - 5, now_ns, now_ns + MAX_AHEAD_NS]
            for timestamp_ns in [*ahead, *good]:
                archive.put(dated(timestamp_ns, b"message"), now_ns)
            page = await archive.page(StoreQuery(pubsub_topic=SHARD, content_topics=(TOPIC,)))
            assert [one.message.timestamp_ns for one in page.messages] == good
            assert (await archive.statistics()).dropped == 2
        finally:
            await archive.close()

    run(work())
