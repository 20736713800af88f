"""Metadata: peers of our cluster are admitted, peers of another cluster are disconnected."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from fairway.libp2p.host import Host
from fairway.libp2p.ping import Pinger
from fairway.nodes.protocols.exchange import answering
from fairway.nodes.protocols.metadata import MetadataExchange
from fairway.wire.metadata import METADATA_PROTOCOL, WakuMetadata, encode_metadata
from patience import PATIENCE_S, run, until


def telling(data, *, asked=None, release=None):
    async def respond(peer, request):
        if asked is not None:
            asked.append(request)
        if release is not None:
            await release.wait()
        return data

    return answering(respond, max_request_bytes=1 << 16)


@contextlib.asynccontextmanager
async def introduced(handler):
    """Two hosts that are connected; the first one asks the second one, which answers with a handler."""
    async with await Host.start() as ours, await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as theirs:
        admitted = []
        introductions = MetadataExchange(
            ours, WakuMetadata(cluster_id=16), timeout_s=PATIENCE_S, admitted=lambda: admitted.append(True)
        )
        events = ours.watch()

        async def follow():
            async for event in events:
                introductions.take(event)

        theirs.handle(METADATA_PROTOCOL, handler)
        following = asyncio.create_task(follow())
        await ours.connect(theirs.addresses[0])
        yield ours, theirs, introductions, admitted
        await introductions.close()
        events.close()
        await following


def test_a_peer_of_our_cluster_is_admitted_until_it_leaves():
    async def work():
        handler = telling(encode_metadata(WakuMetadata(cluster_id=16)))
        async with introduced(handler) as (ours, theirs, introductions, admitted):
            await until(lambda: introductions.admits(theirs.peer_id))
            assert (admitted, introductions.last_mismatch) == ([True], None)
            await ours.disconnect(theirs.peer_id)
            await until(lambda: not introductions.admits(theirs.peer_id))

    run(work())


@pytest.mark.parametrize("said", [encode_metadata(WakuMetadata(cluster_id=1)), b"", b"\xff"])
def test_a_peer_of_another_cluster_or_of_none_is_parted_with(said):
    async def work():
        async with introduced(telling(said)) as (ours, theirs, introductions, admitted):
            await until(lambda: not ours.connections())
            assert introductions.last_mismatch
            assert not introductions.admits(theirs.peer_id)
            assert admitted == []

    run(work())


def test_a_peer_that_ends_the_stream_instead_of_telling_is_left_alone():
    async def work():
        asked = []

        async def silent(stream):
            asked.append(stream)
            await stream.reset()

        async with introduced(silent) as (ours, theirs, introductions, admitted):
            await until(lambda: asked)
            # What comes after the reset on the same connection shows that it was heard of.
            theirs.handle("/another/1", silent)
            await until(lambda: "/another/1" in ours.protocols_of(theirs.peer_id))
            assert [connection.peer_id for connection in ours.connections()] == [theirs.peer_id]
            assert not introductions.admits(theirs.peer_id)
            assert admitted == []

    run(work())


def test_a_peer_is_asked_one_question_at_a_time_and_none_after_the_end():
    async def work():
        asked, release = [], asyncio.Event()
        handler = telling(encode_metadata(WakuMetadata(cluster_id=16)), asked=asked, release=release)
        async with introduced(handler) as (ours, theirs, introductions, _):
            await until(lambda: asked)
            for number in range(20):
                theirs.handle(f"/another/{number}", handler)
                await until(lambda number=number: f"/another/{number}" in ours.protocols_of(theirs.peer_id))
            assert len(asked) == 1
            await introductions.close()
            release.set()
            await until(lambda: theirs.statistics().inbound_streams == 0)
            await Pinger(ours.connections()[0]).ping(timeout_s=PATIENCE_S)  # whatever was sent before has come, too
            assert not introductions.admits(theirs.peer_id)

    run(work())
