"""A group on an in-process network: under virtual time, or with short timers if stores are files."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from fairway.channel.creation import create_reliable_channel
from fairway.channel.reliable_channel import ReliableChannel
from fairway.nodes.local import LocalNetwork, LocalNode, NetworkFaults
from fairway.options import ReliableChannelOptions, RepairConfig, SdsConfig
from fairway.testing import run
from listening import TOPIC
from patience import PATIENCE_S

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

    def __init__(self, stack: AsyncExitStack, network: LocalNetwork, options: ReliableChannelOptions) -> None:
        self.network, self.options = network, options
        self.nodes: dict[str, LocalNode] = {}
        self._stack = stack

    async def channel(self, name: str, *, store: Any = None, options: Any = None, **more: Any) -> ReliableChannel:
        """Make a participant."""
        if name not in self.nodes:
            self.nodes[name] = self.network.node(name)
        channel = await create_reliable_channel(
            self.nodes[name], "harbour", name, TOPIC, store=store, options=options or self.options, **more
        )
        self._stack.push_async_callback(channel.close)
        return channel

    @staticmethod
    async def take(stream: Any, count: int) -> list[bytes]:
        """Return the payloads of the next ``count`` messages."""
        return [(await anext(stream)).payload for _ in range(count)]

    @staticmethod
    async def until(condition: Callable[[], object]) -> None:
        """Wait until a condition holds."""
        while not condition():  # noqa: ASYNC110 - conditions come from anywhere, and most often time is virtual
            await asyncio.sleep(0.005)


def run_in_group(
    scenario: Callable[[Group], Awaitable[None]],
    *,
    on_disk: bool = False,
    faults: NetworkFaults | None = None,
    options: ReliableChannelOptions = QUICK,
    seed: int = 1,
    **changes: Any,
) -> None:
    """Run a scenario with a fresh group, under virtual time; or ``on_disk``, if members keep their state in files."""
    if on_disk:
        # The retries must not end before the test does: a disk may be slow.
        changes = {"max_retry_attempts": 100_000, **changes}

    async def whole() -> None:
        async with AsyncExitStack() as stack:
            if on_disk:
                await stack.enter_async_context(asyncio.timeout(PATIENCE_S))
            network = LocalNetwork(faults, seed=seed)
            stack.callback(network.close)
            await scenario(Group(stack, network, replace(options, **changes)))

    if on_disk:
        asyncio.run(whole())
    else:
        run(whole(), seed=seed)


def in_group(**how: Any) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Run a test, whose first argument is a `Group`, by `run_in_group` with these arguments."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        def run_test(**arguments: Any) -> None:
            run_in_group(partial(_call, test, arguments), **how)

        run_test.__name__, run_test.__doc__, run_test.__module__ = test.__name__, test.__doc__, test.__module__
        _, *rest = inspect.signature(test).parameters.values()
        run_test.__signature__ = inspect.Signature(rest)  # type: ignore[attr-defined]
        return run_test

    return decorate


async def _call(test: Callable[..., Coroutine[Any, Any, None]], arguments: dict[str, Any], group: Group) -> None:
    await test(group, **arguments)
