"""`SerialHandler`: calls a function of the application with one item after the other.

The function may be a coroutine function, or return another awaitable; it never delays the channel. Each awaitable runs
in a task of its own: if that task is cancelled, the call has failed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

from fairway.foreign_code import ForeignCode
from fairway.owned_tasks import OwnedTasks

Handler = Callable[[Any], Awaitable[object] | object]
Item = TypeVar("Item")

_GRACE_S: Final = 1.0
"""Time that `close_calls` gives running handlers to end, and then to end after their cancellation."""


class SerialHandler(Generic[Item]):
    """Calls one handler."""

    def __init__(
        self,
        handler: Handler,
        calls: OwnedTasks,
        take: Callable[[], tuple[Item, Any] | None],
        done: Callable[[Item, BaseException | None], None],
    ) -> None:
        """``take`` returns the next item and what the handler gets of it, or None if there is none now.

        ``done`` is called after each call, with the exception that the handler raised. ``calls`` owns the tasks.
        """
        self.name: str = getattr(handler, "__qualname__", repr(handler))
        self._handler = handler
        self._calls = calls
        self._take = take
        self._done = done
        self._is_busy = False
        self._is_proceeding = False

    def proceed(self) -> None:
        """Call the handler with what there is, unless it is busy; call this whenever there may be another item."""
        if self._is_proceeding:
            return
        self._is_proceeding = True
        try:
            while not self._is_busy and (taken := self._take()) is not None:
                self._is_busy = True
                self._call(*taken)
        finally:
            self._is_proceeding = False

    def _call(self, item: Item, argument: Any) -> None:
        def ended(error: BaseException | None) -> None:
            self._is_busy = False
            self._done(item, error)
            self.proceed()

        what = f"handler {self.name}"
        try:
            with ForeignCode(what):
                result = self._handler(argument)
        except Exception as error:  # noqa: BLE001 - an application's handler may raise anything
            ended(error)
            return
        if inspect.isawaitable(result):
            self._calls.spawn(_awaited(result, what, ended), what, failed=ended)
        else:
            ended(None)


async def close_calls(calls: OwnedTasks) -> None:
    """Wait up to a second for running handlers, and cancel those that have not ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            await calls.wait()
            return
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            await calls.close()


async def _awaited(result: Awaitable[object], what: str, ended: Callable[[BaseException | None], None]) -> None:
    with ForeignCode(what):
        await result
    ended(None)
