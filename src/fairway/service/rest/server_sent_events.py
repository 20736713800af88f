"""`ServerSentEvents`: an answer of server-sent events (WHATWG HTML, "Server-sent events").

Invariant: a stream ends when its client disconnects or the server closes. Subclasses bound the events that wait for a
client.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fairway.service.rest.answers import RefusedError
from fairway.service.rest.context import RestContext

MAX_EVENT_STREAMS: Final = 256
"""Streams open at once; a further request is answered with 503."""
RETRY: Final = b"retry: 1000\n\n"
"""Tells the browser to connect again after 1,000 ms."""
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class ServerSentEvents(Response, ABC):
    """An answer that lasts until the client disconnects or the server closes."""

    def __init__(self, context: RestContext) -> None:
        """Raise `RefusedError` if `MAX_EVENT_STREAMS` are open."""
        if context.event_streams >= MAX_EVENT_STREAMS:
            raise RefusedError(503, "too many event streams are open; try again later")
        super().__init__()
        self._context: Final = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's signature
        """Send events until the client or the node ends the stream."""
        context = self._context
        ends = [asyncio.ensure_future(_disconnected(receive)), asyncio.ensure_future(context.closing.wait())]
        writing = asyncio.ensure_future(self._write(send))
        with context.counting_stream():
            try:
                await asyncio.wait([*ends, writing], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (*ends, writing):
                    task.cancel()
                await asyncio.gather(*ends, writing, return_exceptions=True)
        if context.closing.is_set():
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    @abstractmethod
    async def _write(self, send: Send) -> None:
        """Call `begin` as soon as no event can be missed, then send events; return after the last one."""


async def begin(send: Send) -> None:
    """Send the head of the answer."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await chunk(send, RETRY)


async def chunk(send: Send, data: bytes) -> None:
    """Send a part of the answer; wait while the client reads too slowly."""
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
