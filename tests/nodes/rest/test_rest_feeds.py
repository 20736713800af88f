"""Feeds of a REST client that are given up, closed, broken again and again, or fed with what is no message."""

from __future__ import annotations

import asyncio
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from fairway.nodes.rest import ReceiveWay
from fairway.nodes.rest.address import RestAddress
from fairway.nodes.rest.feed import CatchUp, TopicFeed
from fairway.nodes.rest.http_client import HttpClient
from fairway.nodes.rest.shapes import hex_of, store_shape
from fairway.nodes.rest.store_client import RestStoreReader
from fairway.protocol.recent_hashes import RecentHashes
from patience import PATIENCE_S

HEALTH = "/health"
ENDED_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: 3\r\n\r\n:\n\n"
)


def with_health(rest, script):
    return lambda method, path, body: (
        (200, rest.answers["health_ready"]) if path == HEALTH else script(method, path, body)
    )


def store_page(messages):
    entries = [
        {
            "messageHash": hex_of(one.message_hash),
            "pubsubTopic": one.pubsub_topic,
            "message": msgspec.to_builtins(store_shape(one.message)),
        }
        for one in messages
    ]
    return 200, {"requestId": "1", "statusCode": 200, "statusDesc": "OK", "messages": entries}


async def silence(*_):
    await asyncio.Event().wait()


def test_a_stream_that_breaks_as_soon_as_it_begins_is_opened_again_in_growing_intervals(rest):
    async def work():
        opened_s = []

        def script(_, path, __):
            if not path.startswith("/events"):
                return 412, "no store"
            opened_s.append(asyncio.get_running_loop().time())
            return ENDED_STREAM

        options = {"first_pause_s": 0.02, "longest_pause_s": 2.0, "receive": (ReceiveWay.EVENTS,)}
        async with rest.scripted(with_health(rest, script)) as server, await rest.client(server.url, **options) as node:
            await node.subscribe(rest.shard, [rest.topic])
            await rest.until(lambda: len(opened_s) >= 7)
            # Seven in equal intervals of the first pause would be there after a tenth of a second.
            assert opened_s[6] - opened_s[0] > 0.3

    rest.run(work())


def test_a_feed_that_is_woken_while_an_attempt_still_fails_tries_again_at_once(rest):
    async def work():
        attempts, release = 0, asyncio.Event()

        async def script(_, path, __):
            nonlocal attempts
            if path.startswith("/events"):
                attempts += 1
                await release.wait()
            return 500, "broken"

        options = rest.options(first_pause_s=3_600.0, longest_pause_s=3_600.0, receive=(ReceiveWay.EVENTS,))
        async with rest.scripted(script) as server:
            http = HttpClient(RestAddress.parse(server.url), timeout_s=PATIENCE_S)
            feed = TopicFeed(
                http,
                (rest.shard, rest.topic),
                options,
                seen=RecentHashes(),
                deliver=lambda _: None,
                changed=lambda: None,
                store=RestStoreReader(http),
            )
            feed.start()
            await rest.until(lambda: attempts)
            feed.wake()
            release.set()
            await rest.until(lambda: attempts == 2)
            await feed.close()
            await http.close()

    rest.run(work())


@pytest.mark.parametrize(
    "fault", [{"version": 2**40}, {"meta": "A" * 400}, {"payload": "Zm9yZ2Vk"}], ids=["version", "meta", "forged"]
)
def test_an_entry_of_a_store_that_is_not_the_message_is_left_out_and_ends_nothing(rest, fault):
    async def work():
        bad, good = rest.message(1), rest.message(2)
        answers = []

        def script(_, path, __):
            if path.startswith("/events"):
                return ENDED_STREAM
            page = [] if not answers else [bad] if len(answers) < 3 else [bad, good]
            answers.append(path)
            status, said = store_page([one for one in page if "hashes" not in path or hex_of(one.message_hash) in path])
            for entry in said["messages"]:
                if entry["messageHash"] == hex_of(bad.message_hash):
                    entry["message"] |= fault
            return status, said

        options = {"first_pause_s": 0.05, "longest_pause_s": 0.05, "receive": (ReceiveWay.EVENTS,)}
        async with rest.scripted(with_health(rest, script)) as server, await rest.client(server.url, **options) as node:
            subscription = await node.subscribe(rest.shard, [rest.topic])
            (received,) = await rest.received(subscription, 1)
            assert received.message_hash == good.message_hash

    rest.run(work())


def test_a_subscription_that_is_given_up_half_way_leaves_nothing(rest):
    async def work():
        script = with_health(rest, silence)
        async with rest.scripted(script) as server, await rest.client(server.url) as node:
            subscribing = asyncio.create_task(node.subscribe(rest.shard, [rest.topic]))
            await rest.until(lambda: len(server.requests) > 1 and node.feeds)
            subscribing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await subscribing
            assert node.feeds == ()
            await rest.until(lambda: node.status.connected)

    rest.run(work())


def test_a_subscription_that_is_under_way_when_the_client_is_closed_waits_no_longer(rest):
    async def work():
        script = with_health(rest, silence)
        async with rest.scripted(script) as server:
            node = await rest.client(server.url, request_timeout_s=3_600.0)
            subscribing = asyncio.create_task(node.subscribe(rest.shard, [rest.topic]))
            await rest.until(lambda: node.feeds)
            await node.close()
            assert await (await asyncio.wait_for(subscribing, PATIENCE_S)).next_batch() == []

    rest.run(work())


def test_a_gap_of_days_is_read_in_ranges_of_at_most_a_day(rest):
    day_ns = 86_400_000_000_000
    now_ns = 20_000 * day_ns
    kept = [rest.message(number, time_ns=now_ns - number * day_ns // 2) for number in range(1, 8)]
    ranges = []

    def script(_, path, __):
        asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        if "hashes" in asked:
            return store_page([one for one in kept if hex_of(one.message_hash) in asked["hashes"]])
        start_ns, end_ns = int(asked["startTime"]), int(asked.get("endTime", now_ns))
        ranges.append((start_ns, end_ns + 1))
        if end_ns - start_ns > day_ns:
            return 500, "BAD_REQUEST: time range exceeds 24h"
        status, page = store_page([one for one in kept if start_ns <= one.message.timestamp_ns <= end_ns])
        return status, page | {"messages": [{"messageHash": entry["messageHash"]} for entry in page["messages"]]}

    async def work():
        async with rest.scripted(script) as server:
            http = HttpClient(RestAddress.parse(server.url), timeout_s=PATIENCE_S)
            heard = []
            catch_up = CatchUp(
                RestStoreReader(http),
                (rest.shard, rest.topic),
                seen=RecentHashes(),
                deliver=heard.append,
                now_ns=lambda: now_ns,
            )
            catch_up.covered_ns = now_ns - 4 * day_ns
            assert await catch_up.run() == 7
            assert {one.message_hash for one in heard} == {one.message_hash for one in kept}
            assert ranges == [(now_ns - days * day_ns, now_ns - (days - 1) * day_ns) for days in (4, 3, 2)] + [
                (now_ns - day_ns, now_ns + 1)
            ]
            await http.close()

    rest.run(work())
