"""Staying connected: a peer that is away is tried again and again, and who watches is told of changes only."""

from __future__ import annotations

import asyncio
import random

import pytest

from fairway.libp2p import keeper
from fairway.libp2p.errors import DialError
from fairway.libp2p.host import Host
from fairway.libp2p.keeper import KeptState, PeerKeeper
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from patience import PATIENCE_S, until

CONNECTED, LOST, UNREACHABLE = KeptState.CONNECTED, KeptState.LOST, KeptState.UNREACHABLE


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(keeper, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(keeper, "LONGEST_PAUSE_S", 0.02)


class CountingHost(Host):
    """Counts the attempts to reach a peer that did not succeed."""

    failed = 0

    async def connect(self, address, *, timeout_s=PATIENCE_S):
        try:
            return await super().connect(address, timeout_s=timeout_s)
        except DialError:
            self.failed += 1
            raise


async def next_states(watcher, count):
    async with asyncio.timeout(PATIENCE_S):
        return [(await anext(watcher)).state for _ in range(count)]


def test_a_peer_that_goes_and_comes_is_told_of_once_for_each_change_and_not_for_each_attempt(run):
    async def work():
        key = IdentityKey.generate()
        there = await Host.start(key=key, listen=["/ip4/127.0.0.1/tcp/0"])
        (address,) = there.addresses
        async with await CountingHost.start() as host:
            kept = PeerKeeper(host, [address, address], rng=random.Random(1))
            watcher = kept.watch()
            kept.start()
            assert await next_states(watcher, 1) == [CONNECTED]
            assert kept.connected() == (there.peer_id,)
            assert kept.failures() == ()
            await there.close()
            await until(lambda: host.failed >= 5)
            assert [change.state for change in watcher.take()] == [LOST, UNREACHABLE]
            assert kept.failures() == (f"cannot connect to {address}: Connection refused",)
            async with await Host.start(key=key, listen=[address.without_peer_id()]):
                assert await next_states(watcher, 1) == [CONNECTED]
                assert kept.failures() == ()
                await kept.close()
            assert watcher.take() == []

    run(work())


def test_who_watches_late_is_told_how_it_stands_and_hears_the_end(run):
    async def work():
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as there, await CountingHost.start() as host:
            gone = Multiaddr.parse("/ip4/127.0.0.1/tcp/1")
            kept = PeerKeeper(host, [*there.addresses, gone], rng=random.Random(1))
            kept.start()
            await until(lambda: kept.connected() and host.failed)
            watcher, brief = kept.watch(), kept.watch()
            brief.close()
            told = {change.address: change.state for change in watcher.take()}
            assert told == {there.addresses[0]: CONNECTED, gone: UNREACHABLE}
            await kept.close()
            await kept.close()
            assert await watcher.next_batch() == []

    run(work())
