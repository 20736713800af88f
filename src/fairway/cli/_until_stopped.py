"""The end of a process: `stop_event` says when it should stop, `finish_sending` lets its last messages leave."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from fairway.channel.receipt import Receipt

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_CHUNK_BYTES: Final = 4096
_LAST_WORDS_S: Final = 10.0
"""Time at the end for the network to accept the last messages."""


@asynccontextmanager
async def stop_event(*, until_stdin_closes: bool = False) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set when the process should stop: by SIGINT or SIGTERM.

    With ``until_stdin_closes`` it is also set when the other end of standard input is closed, so that a child process
    does not outlive its parent.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Not on every platform, and only in the main thread: elsewhere a signal ends the process, as a crash would.
    with suppress(NotImplementedError, ValueError, RuntimeError):
        for number in _SIGNALS:
            loop.add_signal_handler(number, stopped.set)
    try:
        if until_stdin_closes:
            _when_stdin_closes(loop, stopped.set)
        yield stopped
    finally:
        with suppress(NotImplementedError):
            for number in _SIGNALS:
                loop.remove_signal_handler(number)


async def finish_sending(receipts: Iterable[Receipt], others: Iterable[asyncio.Future[Any]] = ()) -> None:
    """Wait a moment until the network has accepted the last messages, and ``others`` have ended."""
    waiting = [*others, *(asyncio.ensure_future(each.sent()) for each in receipts if not each.has_ended)]
    if waiting:
        _, late = await asyncio.wait(waiting, timeout=_LAST_WORDS_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _when_stdin_closes(loop: asyncio.AbstractEventLoop, then: Callable[[], None]) -> None:
    """Call ``then`` at the end of standard input; a thread waits for it, because not every file can be polled."""
    if sys.stdin is None or sys.stdin.closed:  # it was closed before the program began
        then()
        return
    number = sys.stdin.fileno()

    def read_to_the_end() -> None:
        with suppress(OSError):
            while os.read(number, _CHUNK_BYTES):
                continue
        with suppress(RuntimeError):  # the loop has ended for another reason
            loop.call_soon_threadsafe(then)

    threading.Thread(target=read_to_the_end, name="until-stdin-closes", daemon=True).start()
