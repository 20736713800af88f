"""`NetworkServer`: offers a local network to other processes of this machine, over a loopback socket.

Each connection is one node of the network; `RemoteNode` is its client. A client that sends garbage or does not read
harms no other client. There is no authentication, so only loopback addresses are served. The process can be killed and
started again on the same port: clients reconnect by themselves.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from fairway.errors import ConfigurationError, FairwayError, NodeUnavailableError
from fairway.waku.local.connection import HubConnection
from fairway.waku.local.frames import Hello
from fairway.waku.local.network import LocalNetwork
from fairway.waku.local.node import LocalNode
from fairway.waku.owned_tasks import OwnedTasks
from fairway.waku.until_stopped import stop_event

_MAX_WAITING_BYTES: Final = 8_388_608
_MAX_CONNECTIONS: Final = 1_000
_READ_AHEAD_BYTES: Final = 262_144


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatistics:
    """Counts of a server."""

    connections: int
    """Clients that are connected now."""
    accepted: int
    """Connections with a valid `Hello`."""
    malformed: int
    """Connections that ended because of a malformed or unexpected frame."""
    turned_away: int
    """Connections that were refused: beyond the bound, or while the server was closing."""
    pushes_dropped: int
    """Messages that were dropped because a client reads too slowly."""


@dataclass(slots=True)
class _Client:
    token: bytes
    node: LocalNode
    connection: HubConnection


class NetworkServer:
    """Offers a `LocalNetwork` on a loopback socket. An async context manager that starts and closes itself."""

    def __init__(
        self,
        network: LocalNetwork,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_waiting_bytes: int = _MAX_WAITING_BYTES,
        max_connections: int = _MAX_CONNECTIONS,
    ) -> None:
        """Prepare a server; ``port`` 0 takes any that is free.

        Of what is pushed to a client, ``max_waiting_bytes`` wait for it to read. Raises `ConfigurationError` for an
        address that is not loopback.
        """
        self.network = network
        self._host = _loopback(host)
        self._port = port
        self._max_waiting_bytes = max_waiting_bytes
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._tasks: Final = OwnedTasks()
        self._connections: set[HubConnection] = set()
        self._clients: dict[str, _Client] = {}
        self._closing = False
        self._accepted = 0
        self._malformed = 0
        self._turned_away = 0
        self._pushes_dropped = 0

    def __repr__(self) -> str:
        return f"<NetworkServer {self.address}, {len(self._clients)} clients>"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def address(self) -> str:
        """The address for `connect`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"local://{host}:{self.port}"

    @property
    def port(self) -> int:
        """The port that the server listens on; 0 before `start` if any free port is taken."""
        return self._port

    def statistics(self) -> ServerStatistics:
        """Return the counts so far."""
        return ServerStatistics(
            connections=len(self._clients),
            accepted=self._accepted,
            malformed=self._malformed,
            turned_away=self._turned_away,
            pushes_dropped=self._pushes_dropped + sum(each.pushes_dropped for each in self._connections),
        )

    async def start(self) -> None:
        """Listen; raises `NodeUnavailableError` if the port is in use."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, limit=_READ_AHEAD_BYTES, backlog=self._max_connections
            )
        except (OSError, OverflowError) as error:
            raise NodeUnavailableError(
                f"cannot listen on {self._host} port {self._port} ({error}); choose another port, or 0 for any"
            ) from error
        self._closing = False
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and end all connections; the network stays as it is. Can be called twice."""
        if self._server is None:
            return
        self._closing = True
        self._server.close()
        await self._tasks.close()
        while self._connections:  # whose task was cancelled before it began
            self._connections.pop().abort()
        await self._server.wait_closed()
        self._server = None

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing or len(self._connections) >= self._max_connections:
            self._turned_away += 1
            writer.transport.abort()
            return
        connection = HubConnection(reader, writer, max_waiting_bytes=self._max_waiting_bytes)
        self._connections.add(connection)
        # A task of our own: the one that asyncio would make complains when it is cancelled.
        self._tasks.spawn(self._serve(connection))

    async def _serve(self, connection: HubConnection) -> None:
        try:
            await self._converse(connection)
        except FairwayError:
            self._malformed += 1
        except (OSError, EOFError):
            return  # the client left
        finally:
            self._connections.discard(connection)
            self._pushes_dropped += connection.pushes_dropped
            await connection.close()

    async def _converse(self, connection: HubConnection) -> None:
        hello = await connection.hello()
        client = self._admit(hello, connection)
        self._accepted += 1
        try:
            await connection.serve(client.node, hello)
        finally:
            if self._clients.get(client.node.name) is client:
                del self._clients[client.node.name]
            client.node.leave()

    def _admit(self, hello: Hello, connection: HubConnection) -> _Client:
        name = hello.name
        former = self._clients.get(name) if name is not None else None
        if former is not None and former.token == hello.token:
            # The same client, whose former connection has not ended yet.
            former.connection.abort()
            former.node.leave()
        client = _Client(hello.token, self.network.node(self._free_name(name)), connection)
        self._clients[client.node.name] = client
        return client

    def _free_name(self, name: str | None) -> str | None:
        """Return an unused name: a name that is in use gets a number."""
        taken = {node.name for node in self.network.nodes}
        if name is None or name not in taken:
            return name
        return next(new for number in range(2, len(taken) + 3) if (new := f"{name}-{number}") not in taken)


def _loopback(host: str) -> str:
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigurationError(
            f"a local network is served on this machine only (anybody who connects takes part): "
            f"give 127.0.0.1 or ::1, not {host!r}"
        )
    return host


async def serve_until_stopped(
    network: LocalNetwork,
    *,
    on_ready: Callable[[NetworkServer], None],
    host: str = "127.0.0.1",
    port: int = 0,
    until_stdin_closes: bool = False,
) -> None:
    """Serve a network until the process should stop, then close both.

    ``on_ready`` is called when clients can connect. When this returns, the archive file has all published messages. For
    ``until_stdin_closes`` see `stop_event`. Raises `NodeUnavailableError` if the port is in use.
    """
    async with stop_event(until_stdin_closes=until_stdin_closes) as stopped:
        with network:
            async with NetworkServer(network, host, port) as server:
                on_ready(server)
                await stopped.wait()
