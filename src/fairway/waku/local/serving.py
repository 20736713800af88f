"""The life of a process that does nothing but serve a local network: until it is told to stop, or left alone.

Invariant: when it ends the network and its archive are closed before the call returns, so that what was published is in
the file.
"""

from __future__ import annotations

from collections.abc import Callable

from fairway.waku.local.hub import NetworkServer
from fairway.waku.local.network import LocalNetwork
from fairway.waku.until_stopped import stop_event


async def serve_until_stopped(
    network: LocalNetwork,
    *,
    on_ready: Callable[[NetworkServer], None],
    host: str = "127.0.0.1",
    port: int = 0,
    until_stdin_closes: bool = False,
) -> None:
    """Serve a network, call ``on_ready`` when clients may come, and close both in the end.

    For ``until_stdin_closes`` see `stop_event`. Raises `NodeUnavailableError` if the port is taken.
    """
    async with stop_event(until_stdin_closes=until_stdin_closes) as stopped:
        with network:
            async with NetworkServer(network, host, port) as server:
                on_ready(server)
                await stopped.wait()
