"""``/messaging/v1``: sends with the events that follow, and received messages, between nodes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from fairway.service.node import parts_of
from patience import until

SUBSCRIPTIONS, MESSAGES = "/messaging/v1/subscriptions", "/messaging/v1/messages"
SENT, RECEIVED = "/messaging/v1/events/send", "/messaging/v1/events/received"
NOBODY = "/ip4/127.0.0.1/tcp/1/p2p/16Uiu2HAm6HZZr7aToTvEBPpiys4UxajCTU97zj5v7RNR2gbniy1D"


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr("fairway.service.rest.message_sender.CONFIRM_EVERY_S", 0.01)
    monkeypatch.setattr("fairway.service.rest.message_sender.RETRY_S", 0.01)


@asynccontextmanager
async def connected(rest, left=None, right=None):
    async with rest.serving(**(left or {})) as (one, at_left), rest.serving(**(right or {})) as (two, at_right):
        await parts_of(one).host.connect(two.addresses[0])
        await until(lambda: parts_of(one).relay.peers_of(rest.shard) and parts_of(two).relay.peers_of(rest.shard))
        yield at_left, at_right


async def ask(rest, server, verb, path, body=None, status=200):
    answer = await rest.call(server, verb, path, body)
    assert answer.status == status, answer.text
    return answer


async def send(rest, server, **fields):
    message = {"payload": "aGVsbG8=", "contentTopic": rest.topic, **fields}
    return (await ask(rest, server, "POST", MESSAGES, message)).json["requestId"]


async def events_of(rest, server, request_id, *kinds):
    """Fetch the events of a send until one has each of these kinds."""
    found = []
    while {event["kind"] for event in found} != set(kinds):
        answer = await rest.call(server, "GET", f"{SENT}/{request_id}")
        assert answer.status in {200, 404}
        if answer.status == 200:
            assert answer.json["requestId"] == request_id
            found += answer.json["events"]
    return found


async def fetch(rest, server, count):
    """Fetch received messages until there are so many."""
    records = []
    while len(records) < count:
        records += (await ask(rest, server, "GET", RECEIVED)).json
    return records


async def test_a_message_is_received_and_its_sender_learns_that_it_was_propagated_and_stored(rest):
    async with connected(rest) as (left, right):
        await ask(rest, right, "POST", SUBSCRIPTIONS, [rest.topic])
        request_id = await send(rest, left, meta="bWV0YQ==")
        (record,) = await fetch(rest, right, 1)
        assert (record["seq"], record["source"]) == (1, "live")
        message = record["message"]
        assert (message["payload"], message["contentTopic"], message["meta"]) == (
            "aGVsbG8=",
            rest.topic,
            "bWV0YQ==",
        )
        events = await events_of(rest, left, request_id, "propagated", "sent")
        assert [event["kind"] for event in events] == ["propagated", "sent"]
        assert {event["messageHash"] for event in events} == {record["messageHash"]}
        assert message["timestamp"] <= events[0]["timestamp"] <= events[1]["timestamp"]
        # Fetching removes: nothing is left of either.
        await ask(rest, left, "GET", f"{SENT}/{request_id}", status=404)
        assert (await ask(rest, right, "GET", RECEIVED)).json == []


async def test_a_node_without_an_archive_confirms_sends_at_its_store_peer(rest):
    async with connected(rest, left={"archive": None}) as (left, _):
        request_ids = [await send(rest, left, payload="AAAA") for _ in range(3)]
        found = {}
        while len(found) < 3 or not all("sent" in kinds for kinds in found.values()):
            for status in (await ask(rest, left, "GET", SENT)).json:
                found.setdefault(status["requestId"], []).extend(event["kind"] for event in status["events"])
        assert found == {request_id: ["propagated", "sent"] for request_id in request_ids}


async def test_the_search_for_a_message_in_archives_ends(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.message_sender.CONFIRM_FOR_S", 0.05)
    async with connected(rest, left={"archive": None}, right={"archive": None}) as (left, _):
        request_id = await send(rest, left)
        await until(lambda: left.context.sends.unconfirmed)
        (event,) = await events_of(rest, left, request_id, "propagated")
        assert event["kind"] == "propagated"


async def test_an_ephemeral_message_is_propagated_and_not_searched_in_archives(rest):
    async with connected(rest) as (left, _):
        ephemeral, kept = await send(rest, left, ephemeral=True), await send(rest, left)
        await events_of(rest, left, kept, "propagated", "sent")
        assert [event["kind"] for event in await events_of(rest, left, ephemeral, "propagated")] == ["propagated"]
        # Sending subscribes: the sender receives its own messages.
        assert [record["message"]["ephemeral"] for record in await fetch(rest, left, 2)] == [True, False]


async def test_a_send_that_no_peer_accepts_ends_with_an_error_and_its_reason(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.message_sender.SEND_FOR_S", 0.1)
    async with rest.serving(peers=(NOBODY,)) as (_, server):
        request_id = await send(rest, server)
        (event,) = await events_of(rest, server, request_id, "error")
        assert event["error"] == "no relay peer has the topic now"


async def test_a_message_that_is_too_long_ends_with_an_error_at_once(rest):
    async with rest.serving() as (_, server):
        request_id = await send(rest, server, payload="A" * 210_000)
        (event,) = await events_of(rest, server, request_id, "error")
        assert "at most 153600 are relayed" in event["error"]


async def test_a_send_without_peers_is_retried_until_there_is_one(rest):
    async with rest.serving(peers=(NOBODY,)) as (node, server), rest.serving() as (other, _):
        request_id = await send(rest, server)
        await ask(rest, server, "GET", f"{SENT}/{request_id}", status=404)
        await parts_of(node).host.connect(other.addresses[0])
        await events_of(rest, server, request_id, "propagated", "sent")


async def test_sends_that_wait_are_bounded_and_end_with_the_server(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.message_sender.MAX_SENDS", 2)
    async with rest.serving(peers=(NOBODY,)) as (_, server):
        for status in (200, 200, 503):
            await ask(rest, server, "POST", MESSAGES, {"payload": "AAAA", "contentTopic": rest.topic}, status)
        async with asyncio.timeout(30):
            await server.close()


async def test_without_a_subscription_nothing_is_received(rest):
    async with connected(rest) as (left, right):
        await ask(rest, right, "POST", SUBSCRIPTIONS, [rest.topic])
        await send(rest, left, payload="AAAA")
        await fetch(rest, right, 1)
        await ask(rest, right, "DELETE", SUBSCRIPTIONS, [rest.topic])
        await send(rest, left, payload="BBBB")
        await until(lambda: parts_of(right.context.node).distribution.statistics().messages == 2)
        assert (await ask(rest, right, "GET", RECEIVED)).json == []


async def test_evicted_messages_are_counted_in_the_answer_and_by_their_numbers(rest):
    async with rest.serving() as (_, server):
        await ask(rest, server, "POST", SUBSCRIPTIONS, [rest.topic])
        for number in range(55):
            await rest.publish(server, timestamp=number + 1)
        answer = await ask(rest, server, "GET", RECEIVED)
        assert answer.headers["x-messaging-dropped"] == "5"
        assert [record["seq"] for record in answer.json] == list(range(6, 56))
        answer = await ask(rest, server, "GET", RECEIVED)
        assert (answer.headers["x-messaging-dropped"], answer.json) == ("0", [])


async def test_a_content_topic_of_a_further_shard_is_received_from_there(rest):
    async with rest.serving(shards=(0,), shard_count=8) as (node, server):
        topic = "/toychat/2/room/proto"
        shard = node.options.pubsub_topic_of(topic)
        await send(rest, server, contentTopic=topic)
        assert shard in node.pubsub_topics
        assert [record["message"]["contentTopic"] for record in await fetch(rest, server, 1)] == [topic]
        await ask(rest, server, "DELETE", SUBSCRIPTIONS, [topic])
        assert shard not in node.pubsub_topics


async def test_a_network_without_autosharding_has_no_messaging(rest):
    async with rest.serving(shards=(0, 1000), shard_count=0) as (_, server):
        message = {"payload": "AAAA", "contentTopic": rest.topic}
        for verb, path, body in (
            ("POST", SUBSCRIPTIONS, [rest.topic]),
            ("DELETE", SUBSCRIPTIONS, [rest.topic]),
            ("POST", MESSAGES, message),
        ):
            assert "Autosharding is disabled" in (await ask(rest, server, verb, path, body, 503)).text
        answer = await ask(rest, server, "POST", "/relay/v1/auto/subscriptions", [rest.topic], 400)
        assert answer.text == "Autosharding error: this network has no autosharding: name the pubsub topic"
        await ask(rest, server, "POST", "/relay/v1/messages/%2Fwaku%2F2%2Frs%2F16%2F1000", message)
