"""A local network over sockets: the same node, and nobody's bad behaviour is anybody else's loss."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError, NodeUnavailableError, StoreQueryError
from fairway.waku import NodeHealth, NodeQuota, NodeStatus, SendResult, StoreQuery
from fairway.waku.local import NO_FAULTS, LocalNetwork, NetworkFaults, NetworkServer, RemoteNode
from fairway.waku.local.frames import MAX_FRAME_BYTES, VERSION, Hello, Welcome, pack
from patience import PATIENCE_S

HEALTHY = NodeStatus(health=NodeHealth.SUFFICIENTLY_HEALTHY, store=True)


def test_what_one_process_sends_the_others_hear_and_find_in_the_store(sockets, say):
    async def story(server):
        async with await sockets.connect(server, "alice") as alice, await sockets.connect(server, "bob") as bob:
            heard = await say.listen(bob)
            sent = [say.message(number, payload=bytes([number]) * 1_000) for number in range(20)]
            assert [await alice.send(message) for message in sent] == [SendResult(accepted=True)] * 20
            assert await say.next_of(heard, 20) == [message.message.payload for message in sent]
            page = await bob.query(say.query(page_size=15, newest_first=True))
            assert (page.messages, page.cursor) == (tuple(sent[5:]), sent[5].message_hash)
            by_hash = await bob.query(StoreQuery(message_hashes=(sent[3].message_hash,)))
            assert by_hash.messages == (sent[3],)

    sockets.story_of(story)


def test_remote_nodes_and_nodes_in_the_process_of_the_server_share_one_network(sockets, say):
    async def story(server):
        here = server.network.node("here")
        heard_here = await say.listen(here)
        async with await sockets.connect(server, "there") as there:
            heard_there = await say.listen(there)
            await here.send(say.message(1))
            await there.send(say.message(2))
            assert await say.next_of(heard_there) == [b"message 1"]
            assert await say.next_of(heard_here) == [b"message 2"]
            assert [node.name for node in server.network.nodes] == ["here", "there"]
            server.network.partition({"here"}, {"there"})
            await here.send(say.message(3))
            assert len((await there.query(say.query())).messages) == 2
        await say.until(lambda: len(server.network.nodes) == 1)

    sockets.story_of(story)


def test_two_clients_of_one_name_live_side_by_side(sockets, say):
    async def story(server):
        async with await sockets.connect(server, "alice") as one, await sockets.connect(server, "alice") as other:
            assert (one.name, other.name) == ("alice", "alice-2")
            heard = await say.listen(other)
            await one.send(say.message(1))
            assert await say.next_of(heard) == [b"message 1"]
            assert one.connections == other.connections == 1

    sockets.story_of(story)


def test_a_client_that_comes_back_before_its_end_was_noticed_keeps_its_name(sockets):
    async def story(server):
        hello = pack(Hello(version=VERSION, token=b"the same", name="alice"))
        async with (
            sockets.raw_connection(server) as (first_reader, first),
            sockets.raw_connection(server) as (reader, second),
        ):
            first.write(hello)
            await first_reader.readexactly(10)
            second.write(hello)
            assert await sockets.is_ended_by_the_server(first_reader)
            await reader.readexactly(10)
            assert [node.name for node in server.network.nodes] == ["alice"]

    sockets.story_of(story)


def test_refusals_and_the_quota_reach_the_client(sockets, say):
    async def story(server):
        async with await sockets.connect(server) as node:
            assert node.quota == NodeQuota(limit=1, epoch_ms=600_000)
            large = await node.send(say.message(payload=bytes(300)))
            assert (large.accepted, large.permanent) == (False, True)
            assert "takes 200" in large.detail
            assert (await node.send(say.message(1))).accepted
            limited = await node.send(say.message(2))
            assert (limited.accepted, limited.permanent) == (False, False)
            assert "rate limit" in limited.detail
            server.network.faults = replace(NO_FAULTS, too_many_requests=1.0)
            refused = await node.send(say.message(2))
            assert (refused.accepted, refused.permanent, refused.too_many) == (False, False, True)
            server.network.faults = NO_FAULTS
            assert (await node.send(say.message(3))).accepted
            assert node.quota is None

    faults = NetworkFaults(max_message_bytes=200, messages_per_epoch=1, min_delay_ms=0, max_delay_ms=0)
    sockets.story_of(story, faults, clock_ns=lambda: 0)


def test_a_message_that_no_frame_holds_and_one_that_is_none_are_refused_for_good(sockets, say):
    async def story(server):
        async with await sockets.connect(server) as node:
            large = await node.send(say.message(payload=bytes(MAX_FRAME_BYTES)))
            assert (large.accepted, large.permanent) == (False, True)
            good = say.message(1)
            bad = type(good)(
                pubsub_topic=good.pubsub_topic,
                message=good.message,
                encoded=b"\xff\xff",
                message_hash=good.message_hash,
            )
            refused = await node.send(bad)
            assert (refused.accepted, refused.permanent) == (False, True)
            assert (await node.send(good)).accepted

    sockets.story_of(story)


def test_the_health_of_a_node_at_the_server_reaches_its_client(sockets, say):
    async def story(server):
        async with await sockets.connect(server, "alice") as node:
            (inside,) = server.network.nodes
            inside.store_available = False
            await say.until(lambda: not node.status.store)
            assert node.status.connected
            with pytest.raises(StoreQueryError, match="no store node"):
                await node.query(say.query())
            inside.go_offline()
            assert not (await say.status(node, connected=False)).connected
            assert not (await node.send(say.message(1))).accepted

    sockets.story_of(story)


@pytest.mark.parametrize("cursor", [bytes(32), b"?"])
def test_an_unknown_cursor_is_a_store_query_error_also_from_afar(sockets, say, cursor):
    async def story(server):
        async with await sockets.connect(server) as node:
            with pytest.raises(StoreQueryError, match="ask again without a cursor"):
                await node.query(say.query(), cursor)
            with pytest.raises(StoreQueryError, match="cannot be asked"):
                await node.query(say.query(start_ns=2**70))
            assert (await node.query(say.query())).messages == ()

    sockets.story_of(story)


def test_a_closed_subscription_is_closed_at_the_server_too(sockets, say):
    async def story(server):
        async with await sockets.connect(server) as node:
            heard = await say.listen(node)
            (inside,) = server.network.nodes
            assert inside.wants(say.message(1))
            heard.close()
            await say.until(lambda: not inside.wants(say.message(1)))

    sockets.story_of(story)


def test_a_closed_node_ends_its_readers_and_sends_nothing(sockets, say):
    async def story(server):
        node = await sockets.connect(server)
        heard, changes = await say.listen(node), node.status_changes()
        await node.close()
        await node.close()
        assert await heard.next_batch() == []
        assert [status.connected async for status in changes] == [True, False]
        assert not (await node.send(say.message(1))).accepted
        with pytest.raises(NodeUnavailableError, match="closed"):
            await say.listen(node)
        with pytest.raises(StoreQueryError, match="cannot be asked"):
            await node.query(say.query())

    sockets.story_of(story)


def test_a_node_comes_back_to_a_server_that_starts_anew_with_all_its_subscriptions(sockets, say):
    async def story(server):
        async with await sockets.connect(server, "alice") as alice, await sockets.connect(server, "bob") as bob:
            heard = await say.listen(bob)
            await server.close()
            await say.status(alice, connected=False)
            await say.status(bob, connected=False)
            result = await alice.send(say.message(1))
            assert (result.accepted, result.permanent) == (False, False)
            assert alice.status == NodeStatus(health=alice.status.health, store=False)
            with pytest.raises(StoreQueryError, match="no connection"):
                await bob.query(say.query())
            also = await say.listen(bob)
            async with NetworkServer(server.network, port=server.port):
                await say.status(alice, connected=True)
                await say.status(bob, connected=True)
                await alice.send(say.message(2))
                assert await say.next_of(heard) == [b"message 2"]
                assert await say.next_of(also) == [b"message 2"]
                assert (bob.name, bob.connections) == ("bob", 2)

    sockets.story_of(story)


def test_without_a_server_connecting_fails_with_a_next_step_or_waits_in_the_background(sockets, say):
    async def story(server):
        port = server.port
        await server.close()
        with pytest.raises(NodeUnavailableError, match=f"fairway network --port {port}"):
            await RemoteNode.connect("127.0.0.1", port, connect_timeout_s=0.05)
        async with await RemoteNode.connect("127.0.0.1", port, connect_timeout_s=None) as node:
            assert not node.status.connected
            heard = await say.listen(node)
            async with NetworkServer(server.network, port=port):
                await say.status(node, connected=True)
                await server.network.node().send(say.message(1))
                assert await say.next_of(heard) == [b"message 1"]

    sockets.story_of(story)


def test_every_request_ends_with_its_timeout_when_the_server_falls_silent(sockets, say):
    async def silent(reader, writer):
        await reader.read(4)
        writer.write(pack(Welcome(name="n", status=HEALTHY, quota=None)))
        silenced.append(writer)

    async def story():
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(PATIENCE_S):
            node = await RemoteNode.connect("127.0.0.1", port, request_timeout_s=0.05)
            result = await node.send(say.message(1))
            assert (result.accepted, result.permanent) == (False, False)
            assert "no answer within 0.05 s" in result.detail
            with pytest.raises(StoreQueryError, match="no answer"):
                await node.query(say.query())
            await say.listen(node)
            await node.close()
        server.close()
        for writer in silenced:
            writer.transport.abort()
        await server.wait_closed()

    silenced = []
    asyncio.run(story())


def test_a_server_that_hangs_up_on_everybody_it_welcomed_is_called_in_growing_intervals(sockets, say):
    async def hang_up(reader, writer):
        calls_s.append(asyncio.get_running_loop().time())
        await reader.read(4)
        writer.write(pack(Welcome(name="n", status=HEALTHY, quota=None)))
        writer.close()

    async def story():
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        node = await RemoteNode.connect("127.0.0.1", server.sockets[0].getsockname()[1])
        await say.until(lambda: len(calls_s) >= 5)
        await node.close()
        server.close()
        await server.wait_closed()

    calls_s = []
    asyncio.run(story())
    pauses_s = [after_s - before_s for before_s, after_s in itertools.pairwise(calls_s)]
    assert all(pause_s >= least_s for pause_s, least_s in zip(pauses_s, (0.05, 0.1, 0.2, 0.4), strict=False))


def test_messages_for_a_server_that_stopped_reading_do_not_pile_up(sockets, say):
    async def stopped(reader, writer):
        writers.append(writer)
        await reader.read(4)
        writer.write(pack(Welcome(name="n", status=HEALTHY, quota=None)))
        await going_on.wait()
        while chunk := await reader.read(1 << 20):
            read.extend(chunk)

    async def story():
        server = await asyncio.start_server(stopped, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(PATIENCE_S):
            node = await RemoteNode.connect("127.0.0.1", port, request_timeout_s=0.02)
            for number in range(60):
                assert not (await node.send(say.message(number, payload=bytes(1_000_000)))).accepted
            going_on.set()
            while b"the last" not in read:
                assert not (await node.send(say.message(60, payload=b"the last"))).accepted
            # What the sockets' own buffers hold, and not the 60 MB of messages that count as not sent.
            assert len(read) < 25_000_000
            await node.close()
        server.close()
        for writer in writers:
            writer.transport.abort()
        await server.wait_closed()

    read, writers, going_on = bytearray(), [], asyncio.Event()
    asyncio.run(story())


def test_a_network_is_served_on_this_machine_only(sockets):
    with LocalNetwork() as network:
        for host in ("0.0.0.0", "192.0.2.1", "example.org", ""):
            with pytest.raises(ConfigurationError, match="this machine only"):
                NetworkServer(network, host)


def test_a_port_that_is_taken_is_an_error_with_a_next_step(sockets):
    async def story(server):
        with pytest.raises(NodeUnavailableError, match="choose another port"):
            await NetworkServer(server.network, port=server.port).start()

    sockets.story_of(story)


def test_answers_that_take_their_time_do_not_hold_up_other_requests(sockets, say):
    async def story(server):
        async with await sockets.connect(server) as node, asyncio.TaskGroup() as sends:
            waiting = [sends.create_task(node.send(say.message(number))) for number in range(30)]
            await say.until(lambda: server.network.statistics().published == 30)
            assert not any(each.done() for each in waiting)
            for each in waiting:
                each.cancel()

    sockets.story_of(story, NetworkFaults(min_delay_ms=60_000, max_delay_ms=60_000))
