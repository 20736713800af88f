"""The client against answers as nwaku's handlers write them: which way it takes, and what it makes of refusals."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from fairway.errors import StoreQueryError
from fairway.nodes.node import NodeHealth, StoreQuery
from fairway.nodes.rest import ReceiveWay
from fairway.nodes.rest.node import status_of
from fairway.nodes.rest.store_messages import store_answer, store_hashes
from patience import PATIENCE_S

HEALTH = "/health"
LIGHTPUSH = json.loads((Path(__file__).parents[2] / "vectors" / "nwaku" / "lightpush.json").read_text())


class Nwaku:
    """A node in memory that has no ``/events``, and answers as nwaku does."""

    def __init__(self, rest, *, lightpush="pushed", relay=True, filters=False):
        self.rest, self.lightpush, self.relay, self.filters = rest, lightpush, relay, filters
        self.subscribed = False
        self.waiting = []
        self.relayed = []

    def __call__(self, method, path, body):
        rest = self.rest
        if path == HEALTH:
            return 200, rest.answers["health_ready"]
        if path == "/lightpush/v3/message":
            return rest.answer(self.lightpush)
        if path.startswith("/store/v3/messages"):
            return 412, "No suitable service peer & no discovery method"
        if path.startswith("/relay/v1") and self.relay:
            return self._relay(method, path, body)
        if path.startswith("/filter/v2"):
            return self._filter(method, path) if self.filters else rest.answer("filter_unavailable")
        return rest.answer("no_route")

    def _relay(self, method, path, body):
        if path.endswith("/subscriptions"):
            self.subscribed = True
            return 200, "OK"
        if not self.subscribed:
            refused = "Failed to publish: Node not subscribed to topic: " + self.rest.shard
            return (404, "") if method == "GET" else (400, refused)
        if method == "POST":
            self.relayed.append(json.loads(body))
            return 200, "OK"
        waiting, self.waiting = self.waiting, []
        return 200, waiting

    def _filter(self, method, path):
        if path == "/filter/v2/subscriptions":
            self.subscribed = True
            return 200, {"requestId": "fairway", "statusDesc": "OK"}
        if not self.subscribed:
            return 400, f"Not subscribed to topic: {self.rest.topic}"
        waiting, self.waiting = self.waiting, []
        return 200, waiting


@pytest.mark.parametrize(
    ("lightpush", "accepted", "permanent"),
    [("pushed", True, False), ("no_relay_peers", False, False), ("rate_limited", False, False)],
)
def test_what_nwaku_says_of_a_push_is_what_the_sender_hears(rest, lightpush, accepted, permanent):
    async def work():
        nwaku = Nwaku(rest, lightpush=lightpush)
        async with rest.scripted(nwaku) as server, await rest.client(server.url) as client:
            message = rest.message(1)
            result = await client.send(message)
            assert (result.accepted, result.permanent) == (accepted, permanent)
            assert result.too_many is (lightpush == "rate_limited")
            pushed = next(json.loads(body) for _, path, body in server.requests if path.startswith("/lightpush"))
            assert set(pushed) == {"message", "pubsubTopic"}
            assert set(pushed["message"]) <= set(rest.answers["relay_message"])
            assert pushed["message"]["payload"] == "bWVzc2FnZSAx"
            assert nwaku.relayed == []

    rest.run(work())


@pytest.mark.parametrize(
    ("status", "permanent"),
    [(400, True), (413, True), (420, False), (421, False), (500, False), (503, False), (504, False), (505, False)],
)
def test_other_refusals_are_for_good_or_not_as_seed_004_has_it(rest, status, permanent):
    async def work():
        def script(_, path, __):
            return (200, rest.answers["health_ready"]) if path == HEALTH else (status, {"statusDesc": "because"})

        async with rest.scripted(script) as server, await rest.client(server.url) as client:
            result = await client.send(rest.message(1))
            assert (result.accepted, result.permanent, result.detail) == (False, permanent, f"{status} because")
            assert result.unserved is (status == 421)

    rest.run(work())


def recorded(path, name):
    """Return an answer of nwaku to a POST, as a script gives it."""
    said = LIGHTPUSH["REST"][path][name]
    return said["status"], said["body"]


def client_that_is_told(rest, path, answers):
    """Return a script whose POSTs to a path get these answers, the last one again and again; others find nothing."""
    rest_of = iter(answers)

    def script(method, asked, _):
        if asked == HEALTH:
            return 200, rest.answers["health_ready"]
        if method == "POST" and asked.startswith(path):
            return next(rest_of, answers[-1])
        return 404, ""

    return script


def test_a_message_that_the_node_took_counts_as_sent_when_it_relays_it_to_nobody_the_second_time(rest):
    async def work():
        path = "/lightpush/v3/message"
        again = recorded(path, "sent a second time")
        script = client_that_is_told(rest, path, [recorded("/lightpush/v3/message", "sent"), again])
        async with rest.scripted(script) as server, await rest.client(server.url) as client:
            sent = rest.message(1)
            assert (await client.send(sent)).accepted
            assert (await client.send(sent)).accepted
            other = await client.send(rest.message(2))
            assert (other.accepted, other.permanent) == (False, False)

    rest.run(work())


def test_a_message_without_an_answer_in_time_counts_as_sent_when_it_is_relayed_to_nobody_then(rest):
    async def work():
        async def silence():
            await asyncio.sleep(2 * PATIENCE_S)

        path = "/lightpush/v3/message"
        script = client_that_is_told(rest, path, [silence(), recorded(path, "sent a second time")])
        async with rest.scripted(script) as server, await rest.client(server.url, request_timeout_s=1.0) as client:
            sent = rest.message(1)
            assert not (await client.send(sent)).accepted
            assert (await client.send(sent)).accepted

    rest.run(work())


@pytest.mark.parametrize("path", ["/lightpush/v3/message", "/relay/v1/messages"])
def test_a_message_that_is_too_large_is_refused_for_good_with_the_limit(rest, path):
    async def work():
        script = client_that_is_told(rest, path, [recorded(path, "too large")])
        async with rest.scripted(script) as server, await rest.client(server.url) as client:
            result = await client.send(rest.message(1))
            assert (result.accepted, result.permanent, result.too_large) == (False, True, True)
            assert "153600 bytes" in result.detail

    rest.run(work())


@pytest.mark.parametrize("lightpush", ["no_lightpush", "no_route", "no_lightpush_peer"])
def test_a_node_without_light_push_relays_and_is_subscribed_first(rest, lightpush):
    async def work():
        nwaku = Nwaku(rest, lightpush=lightpush)
        async with rest.scripted(nwaku) as server, await rest.client(server.url) as client:
            for number in range(3):
                assert (await client.send(rest.message(number))).accepted
            assert len(nwaku.relayed) == 3
            pushes = sum(path.startswith("/lightpush") for _, path, _ in server.requests)
            assert pushes == (3 if lightpush == "no_lightpush_peer" else 1)

    rest.run(work())


@pytest.mark.parametrize(("relay", "way"), [(True, ReceiveWay.RELAY), (False, ReceiveWay.FILTER)])
def test_without_an_event_stream_messages_are_asked_for_at_least_once_a_second(rest, relay, way):
    async def work():
        nwaku = Nwaku(rest, relay=relay, filters=not relay)
        async with rest.scripted(nwaku) as server, await rest.client(server.url, poll_interval_s=0.05) as client:
            subscription = await client.subscribe(rest.shard, [rest.topic])
            (feed,) = client.feeds
            assert (feed.way, feed.live) == (way, True)
            good = rest.answers["relay_message"]
            nwaku.waiting = [{"payload": "?", "contentTopic": rest.topic}, good, good, {**good, "contentTopic": ""}]
            (got,) = await rest.received(subscription, 1)
            assert got.message.payload == b"TEST-1"
            assert (got.message.meta, got.message.timestamp_ns) == (b"test-meta", good["timestamp"])
            assert got.pubsub_topic == rest.shard
            # The node is started anew and knows of no subscription.
            nwaku.subscribed = False
            await rest.until(lambda: nwaku.subscribed and feed.live)
            nwaku.waiting = [{**good, "payload": "TkVX"}]
            (got,) = await rest.received(subscription, 1)
            assert got.message.payload == b"NEW"

    rest.run(work())


def test_another_shard_than_autosharding_means_is_asked_for_as_a_whole(rest):
    async def work():
        nwaku = Nwaku(rest)
        async with rest.scripted(nwaku) as server, await rest.client(server.url, shard_count=8) as client:
            subscription = await client.subscribe("/waku/2/rs/16/7", [rest.topic])
            asked = [json.loads(body) for _, path, body in server.requests if path == "/relay/v1/subscriptions"]
            assert asked == [["/waku/2/rs/16/7"]]
            good = rest.answers["relay_message"]
            nwaku.waiting = [{**good, "contentTopic": "/someone/1/elses/proto"}, good]
            (got,) = await rest.received(subscription, 1)
            assert got.message.content_topic == rest.topic

    rest.run(work())


@pytest.mark.parametrize(
    ("name", "health", "store"),
    [
        ("health_ready", NodeHealth.SUFFICIENTLY_HEALTHY, True),
        ("health_lonely", NodeHealth.UNHEALTHY, False),
        ("health_starting", NodeHealth.MINIMALLY_HEALTHY, True),
    ],
)
def test_a_health_report_is_a_status(rest, name, health, store):
    status = status_of(200, json.dumps(rest.answers[name]).encode())
    assert (status.health, status.store) == (health, store)


@pytest.mark.parametrize(
    ("status", "body", "health"),
    [
        (200, b"Node is healthy", NodeHealth.MINIMALLY_HEALTHY),
        (503, b"Node is not ready", NodeHealth.UNHEALTHY),
        (400, b"Bad request initiated. Invalid path or method used.", NodeHealth.MINIMALLY_HEALTHY),
        (501, b'"Non RLN healthcheck is not implemented"', NodeHealth.MINIMALLY_HEALTHY),
        (500, b"", NodeHealth.UNHEALTHY),
        (200, b"[1", NodeHealth.MINIMALLY_HEALTHY),
        (200, b'{"nodeHealth": 7}', NodeHealth.MINIMALLY_HEALTHY),
    ],
)
def test_a_node_that_gives_no_report_says_no_more_than_whether_it_is_well(status, body, health):
    assert status_of(status, body).health is health


@pytest.mark.parametrize(
    "report", [b'{"nodeHealth":"READY","x":%b}', b'{"nodeHealth":"READY","protocolsHealth":[{"Relay":%b}]}']
)
def test_a_health_report_without_end_is_a_status_too(report):
    assert status_of(200, report % (b"[" * 100_000 + b"]" * 100_000)).health is NodeHealth.MINIMALLY_HEALTHY


@pytest.mark.parametrize(
    "page",
    [b'{"statusCode":200,"messages":[],"x":%b}', b'{"statusCode":200,"messages":[%b]}'],
)
def test_a_page_without_end_is_an_error_of_the_store(page):
    body = page % (b"[" * 100_000 + b"]" * 100_000)
    for read in (store_hashes, lambda body: store_answer(body, StoreQuery())):
        with pytest.raises(StoreQueryError, match="not the answer of a store"):
            read(body)


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4000000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        (200, {"messages": "none"}),
        (200, "plainly not"),
        (200, [[[]]]),
        (200, "[" * 100_000),
        (500, "broken"),
        None,
    ],
    ids=range(10),
)
def test_a_node_that_answers_nonsense_harms_nobody(rest, junk):
    async def work():
        def script(_, path, __):
            return (200, rest.answers["health_ready"]) if path == HEALTH else junk

        options = {"request_timeout_s": 0.3, "first_pause_s": 0.05, "longest_pause_s": 0.1, "poll_interval_s": 0.05}
        async with rest.scripted(script) as server, await rest.client(server.url, **options) as client:
            subscription = await client.subscribe(rest.shard, [rest.topic])
            with pytest.raises(StoreQueryError):
                await client.query(StoreQuery())
            result = await client.send(rest.message(1))
            assert not result.permanent
            await rest.until(lambda: sum(path.startswith("/events") for _, path, _ in server.requests) >= 2)
            assert len(subscription) == 0

    rest.run(work())


def test_a_broken_subscription_does_not_make_the_client_ask_without_end(rest):
    async def work():
        asked_s = []

        def script(_, path, __):
            if path == HEALTH:
                return 200, rest.answers["health_ready"]
            if path.startswith("/events"):
                asked_s.append(asyncio.get_running_loop().time())
            return 500, "broken"

        async with rest.scripted(script) as server, await rest.client(server.url, first_pause_s=0.05) as client:
            subscribing = asyncio.create_task(client.subscribe(rest.shard, [rest.topic]))
            await rest.until(lambda: len(asked_s) >= 5)
            assert not client.status.connected
            subscribing.cancel()
            pauses_s = [after_s - before_s for before_s, after_s in itertools.pairwise(asked_s)]
            assert all(pause_s >= least_s for pause_s, least_s in zip(pauses_s, (0.05, 0.1, 0.2, 0.4), strict=False))
            assert len(server.requests) < 60

    rest.run(work())
