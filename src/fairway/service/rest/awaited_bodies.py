"""The bodies of requests that have not come yet, and which of them gives way when there is no room for another request.

Invariant: a client that sends its body slowly, or never, keeps nobody out: its request is answered with 408 as soon as
others need the place, the longest awaited one first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fairway.service.rest.answers import RefusedError


class AwaitedBodies:
    """Those of one server."""

    def __init__(self) -> None:
        self._limits: dict[asyncio.Timeout, None] = {}
        """Of those that shall not give way yet, longest awaited first."""

    def __len__(self) -> int:
        """Return how many are awaited and could give way."""
        return len(self._limits)

    @asynccontextmanager
    async def within(self, timeout_s: float) -> AsyncIterator[None]:
        """Lend the time in which a body shall come; raise `RefusedError` when it is over, or the body has to give way.

        A body that is here already is never in the way: reading it takes no turn of the event loop.
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
        """End the request whose body has been awaited longest, and return whether there was one."""
        limit = next(iter(self._limits), None)
        if limit is None:
            return False
        del self._limits[limit]
        if not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time())
        return True
