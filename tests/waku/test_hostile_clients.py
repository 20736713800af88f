"""Whatever a client of a local network's server sends, or does not read, costs nobody else anything."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from examples import examples
from fairway.waku.local.frames import (
    MAX_FRAME_BYTES,
    VERSION,
    Carried,
    Filter,
    Hello,
    PublishFrame,
    Pushed,
    Query,
    Subscribe,
    pack,
)

GOOD_HELLO = pack(Hello(version=VERSION, token=b"t"))
FILTER = Filter(1, "/waku/2/rs/1/0", ("/fairway/1/tests/proto",))


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\0\0\0\1\xc1",
        pack(PublishFrame(request=1, pubsub_topic="", encoded=b"")),
        pack(Hello(version=VERSION + 1, token=b"t")),
        pack(Hello(version=VERSION, token=b"t", filters=(Filter(1, "", ()),))),
        GOOD_HELLO * 2,
        GOOD_HELLO + b"\0\0\0\2\x91\x91",
        GOOD_HELLO + pack(Subscribe(request=1, filter=FILTER)) * 2,
        GOOD_HELLO + pack(Subscribe(request=1, filter=Filter(1, "", ()))),
        GOOD_HELLO + pack(Pushed(1, Carried("", b"", b""))),
    ],
    ids=range(12),
)
def test_who_says_what_is_no_frame_or_out_of_place_is_cut_off_and_nobody_else_is(sockets, say, said):
    async def story(server):
        async with await sockets.connect(server) as alice, await sockets.connect(server) as bob:
            heard = await say.listen(bob)
            async with sockets.raw_connection(server) as (reader, writer):
                writer.write(said)
                assert await sockets.is_ended_by_the_server(reader)
            await alice.send(say.message(1))
            assert await say.next_of(heard) == [b"message 1"]
            assert alice.connections == bob.connections == 1
            await say.until(lambda: len(server.network.nodes) == 2)

    sockets.story_of(story)


@examples(0.4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.binary(max_size=200), introduced=st.booleans(), framed=st.booleans())
def test_whatever_bytes_a_client_sends_the_others_are_served(sockets, say, said, introduced, framed):
    async def story(server):
        async with await sockets.connect(server) as node:
            async with sockets.raw_connection(server) as (_, writer):
                writer.write((GOOD_HELLO if introduced else b"") + (len(said).to_bytes(4, "big") if framed else b""))
                writer.write(said)
                writer.write_eof()
                assert (await node.send(say.message(1))).accepted
            await say.until(lambda: server.statistics().connections == 1)
            assert say.payloads((await node.query(say.query())).messages) == [b"message 1"]

    sockets.story_of(story)


def test_who_says_nothing_costs_nobody_anything(sockets, say):
    async def story(server):
        async with sockets.raw_connection(server), sockets.raw_connection(server) as (_, half):
            half.write(b"\0\0\1")
            async with await sockets.connect(server) as node:
                assert (await node.send(say.message(1))).accepted

    sockets.story_of(story)


def test_a_reader_that_does_not_keep_up_loses_messages_which_are_counted_and_others_lose_none(sockets, say):
    async def story(server):
        async with (
            await sockets.connect(server) as alice,
            await sockets.connect(server) as bob,
            sockets.raw_connection(server) as (_, slow),
        ):
            heard = await say.listen(bob)
            slow.write(pack(Hello(version=VERSION, token=b"t", filters=(FILTER,))))
            slow.transport.pause_reading()
            await say.until(lambda: server.statistics().connections == 3)
            for number in range(100):
                await alice.send(say.message(number, payload=bytes([number]) * 200_000))
            assert [payload[0] for payload in await say.next_of(heard, 100)] == list(range(100))
            assert 0 < server.statistics().pushes_dropped <= 100

    sockets.story_of(story, server={"max_waiting_bytes": 1_000_000})


def test_a_client_that_asks_without_reading_is_no_longer_read(sockets, say):
    async def story(server):
        async with await sockets.connect(server) as alice, sockets.raw_connection(server) as (_, greedy):
            for number in range(10):
                await alice.send(say.message(number, payload=bytes(100_000)))
            greedy.write(GOOD_HELLO + b"".join(pack(Query(n, say.query())) for n in range(1, 2_001)))
            greedy.transport.pause_reading()
            await say.until(lambda: server.network.statistics().queries > 2)
            for _ in range(20):
                assert (await alice.send(say.message(99))).accepted
            assert server.network.statistics().queries < 200

    sockets.story_of(story)


def test_connections_beyond_the_bound_are_turned_away(sockets, say):
    async def story(server):
        async with await sockets.connect(server) as node, sockets.raw_connection(server) as (reader, _):
            assert await sockets.is_ended_by_the_server(reader)
            assert server.statistics().turned_away == 1
            assert (await node.send(say.message(1))).accepted

    sockets.story_of(story, server={"max_connections": 1})
