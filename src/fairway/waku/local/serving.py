"""The life of a process that does nothing but serve a local network: until it is told to stop, or left alone.

Invariant: after SIGINT, SIGTERM or the end of standard input, whichever is listened for, the network and its archive
are closed before the call returns, so that what was published is in the file.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from fairway.waku.local.hub import NetworkServer
from fairway.waku.local.network import LocalNetwork

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_CHUNK_BYTES: Final = 4096


async def serve_until_stopped(
    network: LocalNetwork,
    *,
    on_ready: Callable[[NetworkServer], None],
    host: str = "127.0.0.1",
    port: int = 0,
    until_stdin_closes: bool = False,
) -> None:
    """Serve a network, call ``on_ready`` when clients may come, and close both in the end.

    ``until_stdin_closes`` ends it also when nobody holds the other end of standard input any more, so that a child does
    not outlive its parent. Raises `NodeUnavailableError` if the port is taken.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    try:
        with network:
            async with NetworkServer(network, host, port) as server:
                if until_stdin_closes:
                    _when_stdin_closes(loop, stopped.set)
                on_ready(server)
                await stopped.wait()
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _when_stdin_closes(loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
    """Call ``then`` at the end of standard input; a thread, since not every kind of file can be polled."""
    number = sys.stdin.fileno()

    def read_to_the_end() -> None:
        with suppress(OSError):
            while os.read(number, _CHUNK_BYTES):
                continue
        with suppress(RuntimeError):  # the loop has ended for another reason
            loop.call_soon_threadsafe(then)

    threading.Thread(target=read_to_the_end, name="until-stdin-closes", daemon=True).start()
