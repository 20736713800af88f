"""``/events``: what comes, what was missed, and what happens to readers that are slow or too many."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from urllib.parse import quote, urlencode

import pytest

from fairway.service.node import parts_of
from patience import PATIENCE_S, until

OTHER = "/fairway-test/1/elsewhere/proto"


class Reader:
    """A reader of one stream, that knows lines and nothing else."""

    def __init__(self, reader, writer, status):
        self.reader, self.writer, self.status = reader, writer, status

    async def event(self):
        """Return the fields of the next event; comments are events of their own."""
        fields = {}
        while line := (await asyncio.wait_for(self.reader.readline(), PATIENCE_S)).decode().rstrip("\n").rstrip("\r"):
            # The chunks of HTTP lie between the events: a length in hexadecimal, and an empty line.
            name, colon, value = line.partition(":")
            if colon:
                fields[name or "comment"] = value.removeprefix(" ")
        return fields

    async def message(self):
        while True:
            event = await self.event()
            if event.get("event") == "message":
                return json.loads(event["data"]), event["id"]

    async def until(self, field):
        while field not in (event := await self.event()):
            continue
        return event


@asynccontextmanager
async def reading(server, topics, *, last=None, **parameters):
    query = urlencode({"contentTopics": topics, **parameters})
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**20)
    head = f"GET /events?{query} HTTP/1.1\r\nHost: localhost\r\n" + (f"Last-Event-ID: {last}\r\n" if last else "")
    writer.write(f"{head}\r\n".encode())
    status = int((await asyncio.wait_for(reader.readline(), PATIENCE_S)).split()[1])
    try:
        yield Reader(reader, writer, status)
    finally:
        writer.close()


def payloads(messages):
    return [message["message"]["payload"] for message, _ in messages]


async def test_messages_arrive_as_they_are_published_with_their_hashes_in_their_ids(rest):
    async with rest.serving() as (_, server), reading(server, f"{rest.topic},/fairway-test/1/b/proto") as stream:
        assert stream.status == 200
        await stream.until("retry")
        await rest.publish(server, "b25l", timestamp=1)
        await rest.publish(server, "dHdv", timestamp=2, topic=OTHER)
        await rest.publish(server, "dGhyZWU=", timestamp=3, topic="/fairway-test/1/b/proto")
        first, third = await stream.message(), await stream.message()
        assert payloads([first, third]) == ["b25l", "dGhyZWU="]
        name, _, number = first[1].partition(".")
        stored = await rest.call(server, "GET", f"/store/v3/messages?includeData=true&hashes={name}")
        assert stored.json["messages"] == [first[0]]
        assert first[0]["messageHash"] == name
        assert int(third[1].partition(".")[2]) > int(number)


@pytest.mark.parametrize("how", ["header", "query"])
async def test_a_reader_that_reconnects_gets_missed_messages_then_new_ones(rest, how):
    async with rest.serving() as (_, server):
        async with reading(server, rest.topic) as stream:
            await stream.until("retry")
            await rest.publish(server, "MDAw", timestamp=1)
            _, last = await stream.message()
        for number in range(2, 250):
            await rest.publish(server, timestamp=number)
        given = {"last": last} if how == "header" else {"lastEventId": last}
        async with reading(server, rest.topic, **given) as stream:
            await rest.publish(server, "bGFzdA==", timestamp=250)
            got = [await stream.message() for _ in range(249)]
            assert [message["message"]["timestamp"] for message, _ in got] == list(range(2, 251))


@pytest.mark.parametrize("clock_s", [-3_000, -15, 15, 3_000])
async def test_a_reader_resumes_in_the_order_of_arrival_with_any_sender_clocks(rest, clock_s):
    async with rest.serving() as (_, server):
        now_ns = time.time_ns()
        async with reading(server, rest.topic) as stream:
            await stream.until("retry")
            await rest.publish(server, timestamp=now_ns)
            await rest.publish(server, timestamp=now_ns + clock_s * 10**9)
            await stream.message()
            _, last = await stream.message()
        sent = [now_ns + step for step in (30, 10, 20)]
        for timestamp in sent:
            await rest.publish(server, timestamp=timestamp)
        async with reading(server, rest.topic, last=last) as stream:
            await rest.publish(server, timestamp=now_ns + 40)
            got = [await stream.message() for _ in range(4)]
            assert [message["message"]["timestamp"] for message, _ in got] == [*sent, now_ns + 40]


async def test_large_messages_are_repeated_in_the_order_of_arrival(rest):
    async with rest.serving() as (_, server):
        async with reading(server, rest.topic) as stream:
            await stream.until("retry")
            await rest.publish(server, timestamp=100)
            _, last = await stream.message()
        for number in range(40, 0, -1):
            await rest.publish(server, "A" * 100_000, timestamp=number)
        async with reading(server, rest.topic, last=last) as stream:
            got = [await stream.message() for _ in range(40)]
            assert [message["message"]["timestamp"] for message, _ in got] == list(range(40, 0, -1))


async def test_ephemeral_messages_are_not_repeated_and_their_ids_are_valid(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.events.HEARTBEAT_S", 0.1)
    async with rest.serving() as (_, server):
        async with reading(server, rest.topic) as stream:
            await stream.until("retry")
            await rest.publish(server, timestamp=1, ephemeral=True)
            _, last = await stream.message()
        await rest.publish(server, timestamp=2, ephemeral=True)
        await rest.publish(server, timestamp=3)
        async with reading(server, rest.topic, last=last) as stream:
            assert (await stream.message())[0]["message"]["timestamp"] == 3
            assert "event" not in await stream.until("comment")


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (None, "the archive cannot be read: the node keeps none"),
        ("memory:", "the archive does not have 1 message"),
        ("sqlite:{folder}/messages.db", "the archive cannot be read: the archive is closed"),
    ],
)
async def test_a_gap_follows_if_the_archive_cannot_be_read_or_lacks_a_message(rest, tmp_path, archive, reason):
    async with rest.serving(archive=archive and archive.format(folder=tmp_path)) as (node, server):
        async with reading(server, rest.topic) as stream:
            await stream.until("retry")
            await rest.publish(server)
            _, last = await stream.message()
        await rest.publish(server, timestamp=time.time_ns() + 7_200 * 10**9)  # too far ahead for an archive
        if archive and archive.startswith("sqlite"):
            await parts_of(node).archive.close()
        async with reading(server, rest.topic, last=last) as stream:
            event = await stream.until("event")
            assert (event["event"], json.loads(event["data"])) == ("gap", {"reason": reason})


async def test_after_a_restart_a_reader_gets_a_gap_and_new_messages(rest, tmp_path):
    archive = f"sqlite:{tmp_path / 'messages.db'}"
    now_ns = time.time_ns()
    async with rest.serving(archive=archive) as (_, server), reading(server, rest.topic) as stream:
        await stream.until("retry")
        await rest.publish(server, timestamp=now_ns)
        _, last = await stream.message()
    async with rest.serving(archive=archive) as (_, server), reading(server, rest.topic, last=last) as stream:
        await rest.publish(server, timestamp=now_ns + 1)
        assert "the node has restarted" in (await stream.until("event"))["data"]
        assert (await stream.message())[0]["message"]["timestamp"] == now_ns + 1


async def test_an_id_that_is_not_known_is_answered_with_a_gap_and_the_last_one_with_nothing(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.events.HEARTBEAT_S", 0.1)
    async with rest.serving() as (_, server):
        async with reading(server, rest.topic, last="0x" + "ab" * 32) as stream:
            event = await stream.until("event")
            assert event["event"] == "gap"
            assert "the last event id is unknown" in event["data"]
            await rest.publish(server, timestamp=1)
            _, last = await stream.message()
        async with reading(server, rest.topic, last=last) as stream:
            assert "event" not in await stream.until("comment")
        async with reading(server, rest.topic, last="nonsense") as stream:
            assert (await stream.until("event"))["event"] == "gap"


async def test_a_slow_reader_loses_the_oldest_messages_and_gets_a_gap(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.events.EVENT_STREAM_BYTES", 200_000)
    monkeypatch.setattr("fairway.service.rest.protocol.STALL_S", 60.0)
    async with rest.serving() as (node, server), reading(server, rest.topic) as stream:
        await stream.until("retry")
        stream.writer.transport.pause_reading()
        payload = "A" * 100_000
        for number in range(120):
            await rest.publish(server, payload, timestamp=number + 1)
        stream.writer.transport.resume_reading()
        event = await stream.until("event")
        while event["event"] != "gap":
            event = await stream.until("event")
        assert "the reader is too slow" in event["data"]
        assert (await stream.message())[0]["message"]["timestamp"] > 100
        assert parts_of(node).distribution.statistics().messages == 120


async def test_readers_beyond_the_limit_get_503_until_others_leave(rest, monkeypatch):
    monkeypatch.setattr("fairway.service.rest.events.MAX_EVENT_STREAMS", 2)
    async with rest.serving() as (_, server):
        async with reading(server, rest.topic) as one, reading(server, rest.topic) as two:
            await one.until("retry")
            await two.until("retry")
            async with reading(server, rest.topic) as three:
                assert three.status == 503
        await until(lambda: not server.context.event_streams)
        async with reading(server, rest.topic) as again:
            assert again.status == 200


async def test_streams_end_with_the_server_and_with_the_node(rest):
    async with rest.serving() as (node, server), reading(server, rest.topic) as stream:
        await stream.until("retry")
        await server.close()
        assert (await asyncio.wait_for(stream.reader.read(), PATIENCE_S)).endswith(b"0\r\n\r\n")
    async with rest.serving() as (node, server), reading(server, rest.topic) as stream:
        await stream.until("retry")
        await node.close()
        assert b"event" not in await asyncio.wait_for(stream.reader.read(), PATIENCE_S)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("", "contentTopics names 1 to 1000 content topics, with commas between"),
        ("contentTopics=,,", "contentTopics names 1 to 1000 content topics, with commas between"),
        ("contentTopics=" + ",".join(["/a/1/b/c"] * 1_001), "contentTopics names 1 to 1000 content topics"),
        ("contentTopics=nonsense", "Autosharding error: "),
        (f"contentTopics=/a/1/b/c&pubsubTopic={quote('/waku/2/rs/16/7')}", "this node does not serve"),
    ],
)
async def test_topics_that_cannot_be_had_are_refused(rest, query, text):
    async with rest.serving() as (_, server):
        answer = await rest.call(server, "GET", f"/events?{query}")
        assert answer.status == 400
        assert answer.text.startswith(text)
