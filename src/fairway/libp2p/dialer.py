"""`Dialer`: connects a host to addresses over TCP, WebSocket and TLS, and secures the connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from ssl import SSLContext
from typing import Final

from fairway.libp2p.connection import Connection
from fairway.libp2p.errors import AddressError, ConnectionClosedError, DialError, Libp2pError
from fairway.libp2p.limits import HANDSHAKE_TIMEOUT_S
from fairway.libp2p.link import Link, Upgraded, Upgrader
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.noise.pattern import Role
from fairway.libp2p.transports.tcp import dial_tcp
from fairway.libp2p.transports.tls import TlsTransport, client_context
from fairway.libp2p.transports.transport import ByteTransport
from fairway.libp2p.transports.websocket import WebSocketTransport
from fairway.owned_tasks import OwnedTasks

_DIAL_TIMEOUT_S: Final = 10.0
"""Longest time of an attempt: name look-up, TCP, TLS, WebSocket and handshake."""

Run = Callable[[Upgraded, Multiaddr, "asyncio.Future[Connection]"], Awaitable[None]]
"""Runs a new connection until it ends, and resolves the future once the connection can be used."""


class Dialer:
    """The attempts of one host to connect."""

    def __init__(
        self,
        *,
        upgrader: Upgrader,
        run: Run,
        tasks: OwnedTasks,
        tls_ca_file: Path | None = None,
    ) -> None:
        """``tasks`` are those of the host. ``tls_ca_file`` names further authorities that are trusted.

        Raises `ConfigurationError` if that file is wrong.
        """
        self._upgrader = upgrader
        self._run = run
        self._tasks = tasks
        self.attempts = 0
        """Attempts since the start."""
        self.failures = 0
        """Attempts that failed."""
        # The system's authorities are slow to read, and few addresses need them.
        self._trust: SSLContext | None = None if tls_ca_file is None else client_context(tls_ca_file)

    async def connect(self, address: Multiaddr, timeout_s: float) -> Connection:
        """Return a new connection.

        Raises:
            DialError: no connection was made in time; the cause is chained.
            AddressError: the address cannot be dialled.

        """
        ready: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        attempt = self._tasks.spawn(self._attempt(address, ready), f"dial {address}")
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait([ready])
        except TimeoutError as error:
            raise DialError(f"cannot connect to {address}: it took longer than {timeout_s:g} s") from error
        finally:
            if not ready.done():
                self._tasks.cancel(attempt)
        return ready.result()

    async def _attempt(self, address: Multiaddr, ready: asyncio.Future[Connection]) -> None:
        self.attempts += 1
        try:
            upgraded = await self._reach(address)
            try:
                await self._run(upgraded, address.without_peer_id(), ready)
            finally:
                upgraded.link.transport.abort()
        except Libp2pError as error:
            _fail(ready, error)
        finally:
            _fail(ready, ConnectionClosedError("this host is closed: start another one"))
            self.failures += ready.exception() is not None

    async def _reach(self, address: Multiaddr) -> Upgraded:
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                transport = await self._transport_to(address)
                try:
                    async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                        return await self._upgrader.upgrade(Link(transport), Role.INITIATOR, address.peer_id)
                except BaseException:
                    transport.abort()
                    raise
        except AddressError:
            raise
        except TimeoutError as error:
            raise DialError(f"cannot connect to {address}: it took too long") from error
        except (Libp2pError, OSError) as error:
            raise DialError(f"cannot connect to {address}: {_words(error)}") from error

    async def _transport_to(self, address: Multiaddr) -> ByteTransport:
        kind = address.transport
        if kind is None:
            raise AddressError(f"{address} cannot be dialled: only /tcp, /tcp/ws and /tcp/tls/ws addresses can")
        raw = await dial_tcp(address)
        if kind == "tcp":
            return raw
        try:
            below: ByteTransport = raw
            if kind == "wss":
                self._trust = self._trust or client_context()
                below = await TlsTransport.connect(raw, self._trust, address.server_name or address.host or "")
            return await WebSocketTransport.connect(below, address)
        except BaseException:
            raw.abort()
            raise


def _words(error: Exception) -> str:
    """Return the text of an error; asyncio replaces the system's text by the address, which the caller adds anyway."""
    if isinstance(error, OSError) and error.errno and (error.strerror or "").startswith("Connect call failed"):
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _fail(ready: asyncio.Future[Connection], error: Libp2pError) -> None:
    """Pass a failure on to the callers that wait, if there are any."""
    if not ready.done():
        ready.set_exception(error)
        # Marks it as retrieved: a cancelled attempt has no caller left to do so.
        ready.exception()
