"""`HttpServer`: serves an ASGI application over HTTP/1.1, and WebSocket if asked, in the running event loop.

Invariant: when `HttpServer.start` returns, the port is known and accepts requests. When `HttpServer.close` returns, all
tasks and connections of the server have ended, also streams, and the event loop continues.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

import uvicorn
from starlette.types import ASGIApp

from fairway.libp2p.transports.certificate import ServerCertificate
from fairway.owned_tasks import OwnedTasks
from fairway.service.rest.protocol import BoundedProtocol

MAX_HEADER_BYTES: Final = 65_536
"""Size of a request's head; longer ones are answered with 431."""
MAX_CONNECTIONS: Final = 1_000
"""Open connections; a request on a further one is answered with 503."""
_MAX_SOCKET_MESSAGE_BYTES: Final = 1_048_576
"""Size of a message from a WebSocket; a longer one closes it."""
_KEEP_ALIVE_S: Final = 30
"""Time for which a connection may be idle between two requests."""
_BACKLOG: Final = 512
"""Connections that wait to be accepted."""
_GRACE_S: Final = 2
"""Time for answers that are under way when the server closes."""
_DATE_S: Final = 1
"""Time after which the Date in the head of answers is written anew."""
_RENEWAL_S: Final = 30.0
"""Time between two looks for a renewed certificate."""
_POLL_S: Final = 0.005


class HttpServer:
    """A running server. Made by `HttpServer.start`."""

    def __init__(self, server: _Server, listening: socket.socket) -> None:
        """Use `start`."""
        self._server: Final = server
        self._listening: Final = listening
        host, port, *_ = listening.getsockname()
        self.host: Final[str] = host
        self.port: Final[int] = port
        self._serving: asyncio.Task[None] | None = None
        self._tasks: Final = OwnedTasks()

    @classmethod
    async def start(
        cls,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        certificate: ServerCertificate | None = None,
        takes_websockets: bool = False,
    ) -> Self:
        """Listen at an IP address, at a free port for 0, and serve.

        Raises `OSError` if the address is in use or not of this machine.
        """
        listening = _listening_at(host, port)
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="websockets-sansio" if takes_websockets else "none",
            ws_max_size=_MAX_SOCKET_MESSAGE_BYTES,
            ws_per_message_deflate=False,
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_S,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        config.load()
        config.ssl = None if certificate is None else certificate.following()
        server = cls(_Server(config), listening)
        await server._run(certificate)
        return server

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._server.server_state.connections)

    async def close(self) -> None:
        """Stop serving. Can be called twice."""
        self._server.end()
        if self._serving is not None:
            await asyncio.wait([self._serving])
        state = self._server.server_state
        for connection in list(state.connections):
            connection.transport.abort()
        while state.tasks or state.connections:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(_POLL_S)
        await self._tasks.close()
        self._listening.close()

    async def _run(self, certificate: ServerCertificate | None) -> None:
        self._serving = self._tasks.spawn(self._server.serve(sockets=[self._listening]))
        if certificate is not None:
            self._tasks.spawn(_follow(certificate))
        listening = asyncio.get_running_loop().create_task(self._server.listening.wait())
        try:
            await asyncio.wait([listening, self._serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            listening.cancel()
        if self._serving.done():
            await self.close()
            self._serving.result()


def _listening_at(host: str, port: int) -> socket.socket:
    # socket.create_server() does not name the protocol. Then asyncio does not recognise TCP and leaves Nagle's
    # algorithm on, which costs 40 ms for every answer whose head and body are written apart.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


async def _follow(certificate: ServerCertificate) -> None:
    """Use a renewed certificate soon after its files have changed."""
    while True:
        await asyncio.sleep(_RENEWAL_S)
        certificate.refresh()


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers, and without a delay when it should end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening: Final = asyncio.Event()
        self._ending: Final = asyncio.Event()

    def end(self) -> None:
        """Stop serving."""
        self.should_exit = True
        self._ending.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # which writes the Date
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_S):
                    await self._ending.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
