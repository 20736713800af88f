"""`AwaitedBodies`: the requests whose bodies the server is still receiving.

Invariant: a client that sends its body slowly, or never, does not block others. When a new request finds no room, the
request whose body has been awaited longest is answered with 408.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairway.service.rest.answers import RefusedError


class AwaitedBodies:
    """The awaited bodies of one server."""

    def __init__(self) -> None:
        self._limits: dict[asyncio.Timeout, None] = {}
        """The time limits of the awaited bodies, longest awaited first."""

    def __len__(self) -> int:
        """Return how many bodies are awaited."""
        return len(self._limits)

    @asynccontextmanager
    async def within(self, timeout_s: float) -> AsyncIterator[None]:
        """Limit the time to receive a body, which happens inside the block.

        Raises `RefusedError` after ``timeout_s`` seconds, or when `give_way` chooses this body. It cannot choose a body
        that has arrived already: reading that takes no turn of the event loop.
        """
        limit = asyncio.timeout(timeout_s)
        try:
            async with limit:
                self._limits[limit] = None
                yield
        except TimeoutError:
            if limit in self._limits:
                raise RefusedError(408, f"the body of the request did not come within {timeout_s:g} s") from None
            raise RefusedError(
                408, "too many requests at once, and the body of this one was awaited longest; try again"
            ) from None
        finally:
            self._limits.pop(limit, None)

    def give_way(self) -> bool:
        """End the request whose body has been awaited longest; return False if no body is awaited."""
        limit = next(iter(self._limits), None)
        if limit is None:
            return False
        del self._limits[limit]
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time())
        return True
