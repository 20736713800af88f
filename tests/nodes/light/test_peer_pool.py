"""Which service node a light client asks first."""

from __future__ import annotations

import contextlib

from fairway.libp2p.host import Host
from fairway.nodes.light.peer_pool import FORGIVEN_AFTER_S, PeerPool
from patience import run, until

SERVICE = "/fairway-test/service/1"


def test_who_failed_is_asked_after_the_others_and_who_let_a_request_run_out_of_time_is_asked_last():
    async def work():
        now_s = 100.0

        async def serve(stream):
            await stream.close()

        async with contextlib.AsyncExitStack() as exits:
            host = await exits.enter_async_context(await Host.start())
            peers = []
            for _ in range(3):
                node = await exits.enter_async_context(await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]))
                node.handle(SERVICE, serve)
                await host.connect(node.addresses[0])
                peers.append(node.peer_id)
            await until(lambda: all(SERVICE in host.protocols_of(peer) for peer in peers))
            pool = PeerPool(host, clock=lambda: now_s, admits=lambda peer: True)
            silent, refusing, sound = peers
            pool.failed(silent, SERVICE, was_silent=True)
            now_s += 1
            pool.failed(refusing, SERVICE)
            assert pool.serving(SERVICE) == (sound, refusing, silent)
            assert pool.unfailing(SERVICE) == (sound,)
            now_s += 1
            pool.failed(sound, SERVICE)
            assert pool.serving(SERVICE) == (refusing, sound, silent)
            pool.served(silent, SERVICE)
            assert pool.serving(SERVICE) == (silent, refusing, sound)
            now_s += FORGIVEN_AFTER_S + 1
            assert set(pool.unfailing(SERVICE)) == set(peers)

    run(work())
