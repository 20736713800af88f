"""An event loop in a thread of its own, for what runs while a browser blocks the test's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

from patience import PATIENCE_S

_T = TypeVar("_T")


class LoopThread:
    """A context manager; `run` does something in the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def run(self, work: Callable[[], Awaitable[_T]]) -> _T:
        async def awaited() -> _T:
            return await work()

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(PATIENCE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
