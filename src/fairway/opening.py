"""`Opening`: the result of ``connect`` and ``create_reliable_channel``, for ``await`` and for ``async with``."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, NoReturn, Protocol, Self, TypeVar, overload

from fairway.errors import NotAwaitedError


class _Closable(Protocol):
    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object: ...


T = TypeVar("T", bound=_Closable)


class Opening(Coroutine[Any, Any, T]):
    """A coroutine that opens something, and an async context manager that closes it again.

    ``thing = await opening`` leaves closing to the caller; ``async with opening as thing:`` closes it at the end.
    """

    def __init__(self, opened: Coroutine[Any, Any, T], call: str) -> None:
        """``call`` is the function that returns this, for errors."""
        # Python names the coroutine in its warning if it is never awaited.
        opened.__qualname__ = call  # type: ignore[attr-defined]
        self._coroutine = opened
        self._call = call
        self._opened: T | None = None

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error: attributes belong to the opened object."""
        raise self._not_awaited()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> T:
        """Open, and return the opened object."""
        self._opened = await self._coroutine
        return await self._opened.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the opened object."""
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)

    def send(self, value: Any, /) -> Any:
        """Resume the coroutine."""
        if value is not None:
            raise self._not_awaited()  # the caller meant `send` of the channel
        return self._coroutine.send(value)

    @overload
    def throw(
        self, typ: type[BaseException], val: BaseException | object = None, tb: TracebackType | None = None, /
    ) -> Any: ...

    @overload
    def throw(self, typ: BaseException, val: None = None, tb: TracebackType | None = None, /) -> Any: ...

    def throw(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
        /,
    ) -> Any:
        """Raise an error where the coroutine waits; asyncio passes the exception as ``typ``."""
        del val, tb
        return self._coroutine.throw(typ)

    def close(self) -> None:
        """Close the coroutine; nothing is opened."""
        self._coroutine.close()

    def _not_awaited(self) -> NotAwaitedError:
        return NotAwaitedError(
            f"{self._call}(...) was not awaited: write 'await {self._call}(...)', or 'async with {self._call}(...) as'"
        )
