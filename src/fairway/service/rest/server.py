"""`RestServer`: serves the REST API of a node in the node's event loop.

Invariant: when `RestServer.start` returns, the port is known and accepts requests. When `RestServer.close` returns, all
tasks and connections of the server have ended, also event streams, and the node goes on.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

import uvicorn

from fairway.service.node import ServiceNode
from fairway.service.rest.app import make_app
from fairway.service.rest.context import RestContext
from fairway.service.rest.options import RestOptions
from fairway.service.rest.protocol import BoundedProtocol
from fairway.waku.libp2p.reachable import interface_addresses

MAX_HEADER_BYTES: Final = 65_536
"""Size of a request's head; longer ones are answered with 400."""
KEEP_ALIVE_S: Final = 30
"""Time for which a connection may be idle between two requests."""
_BACKLOG: Final = 512
_GRACE_S: Final = 2


class RestServer:
    """An async context manager for a running node. Made by `RestServer.start`."""

    def __init__(self, context: RestContext, server: _Server, listening: socket.socket) -> None:
        self.context: Final = context
        self._server: Final = server
        self._listening: Final = listening
        self._host, self._port, *_ = listening.getsockname()
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, node: ServiceNode, options: RestOptions | None = None) -> Self:
        """Listen and serve; raises `OSError` if the address is in use or not of this machine."""
        chosen = options or RestOptions()
        listening = _listening_at(chosen.host, chosen.port)
        context = RestContext(node, chosen)
        config = uvicorn.Config(
            make_app(context),
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        )
        server = cls(context, _Server(config), listening)
        await server._run()
        return server

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return int(self._port)

    @property
    def url(self) -> str:
        """The URL of the API; for 0.0.0.0 and :: one that others can use."""
        address = ip_address(self._host)
        host = interface_addresses(address.version)[0] if address.is_unspecified else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._server.server_state.connections)

    async def close(self) -> None:
        """Stop serving. Can be called twice."""
        self.context.closing.set()
        self._server.should_exit = True
        serving, *feeding = self._tasks
        await asyncio.gather(serving, return_exceptions=True)
        for fed in (self.context.relayed, self.context.filtered):
            fed.close()
        await asyncio.gather(*feeding, return_exceptions=True)
        self._listening.close()

    async def __aenter__(self) -> Self:
        """Return the server itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the server."""
        await self.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._server.serve(sockets=[self._listening])),
            loop.create_task(self.context.relayed.run()),
            loop.create_task(self.context.filtered.run()),
        ]
        listening = loop.create_task(self._server.listening.wait())
        try:
            await asyncio.wait([listening, self._tasks[0]], return_when=asyncio.FIRST_COMPLETED)
        finally:
            listening.cancel()
        if self._tasks[0].done():
            await self.close()
            self._tasks[0].result()


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


class _Server(uvicorn.Server):
    """uvicorn's server, without its signal handlers, and with an event that is set once it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening: Final = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
