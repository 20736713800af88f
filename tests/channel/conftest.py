"""A group on an in-process network: under virtual time, or with timers that are short enough where stores are files."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.nodes.local import LocalNetwork
from fairway.options import ReliableChannelOptions, RepairConfig, SdsConfig
from fairway.testing import run
from patience import PATIENCE_S

TOPIC = "/fairway/1/harbour/proto"
QUICK = ReliableChannelOptions(
    sync_min_interval_ms=60,
    retry_interval_ms=80,
    max_retry_attempts=100,
    retrieve_frequency_ms=50,
    sweep_in_buf_interval_ms=20,
    sds=SdsConfig(repair=RepairConfig(t_min_ms=100, t_max_ms=400)),
)


class Group:
    """Participants of one channel, made on demand and closed at the end."""

    def __init__(self, stack, network, options):
        self.network, self.options = network, options
        self.nodes = {}
        self._stack = stack

    async def channel(self, name, *, store=None, options=None, **more):
        if name not in self.nodes:
            self.nodes[name] = self.network.node(name)
        channel = await create_reliable_channel(
            self.nodes[name], "harbour", name, TOPIC, store=store, options=options or self.options, **more
        )
        self._stack.push_async_callback(channel.close)
        return channel

    @staticmethod
    async def take(stream, count):
        """Return the payloads of the next so many messages."""
        return [(await anext(stream)).payload for _ in range(count)]

    @staticmethod
    async def until(condition):
        """Wait until a condition holds."""
        while not condition():  # noqa: ASYNC110 - conditions come from anywhere, and most often time is virtual
            await asyncio.sleep(0.005)


@asynccontextmanager
async def _group(faults, options, seed):
    async with AsyncExitStack() as stack:
        network = LocalNetwork(faults, seed=seed)
        stack.callback(network.close)
        yield Group(stack, network, options)


@pytest.fixture
def in_group():
    """Run a test's coroutine function with a fresh group, under virtual time."""

    def run_scenario(scenario, *, faults=None, options=QUICK, seed=1, **changes):
        async def whole():
            async with _group(faults, replace(options, **changes), seed) as group:
                await scenario(group)

        run(whole(), seed=seed)

    return run_scenario


@pytest.fixture
def in_group_on_disk():
    """Run a test's coroutine function with a fresh group, whose members may keep what they have in files."""

    def run_scenario(scenario, *, faults=None, options=QUICK, seed=1, **changes):
        async def whole():
            # Nobody gives up before the test does: a disk may take its time.
            patient = replace(options, **{"max_retry_attempts": 100_000, **changes})
            async with asyncio.timeout(PATIENCE_S), _group(faults, patient, seed) as group:
                await scenario(group)

        asyncio.run(whole())

    return run_scenario
