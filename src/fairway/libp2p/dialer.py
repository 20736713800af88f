"""`Dialer`: connects to addresses, with one attempt per address at a time.

All callers that want an address share the attempt; it is cancelled when all of them have been cancelled or timed out.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Final

from fairway.errors import copy_of
from fairway.libp2p.connection import Connection
from fairway.libp2p.errors import AddressError, ConnectionClosedError, DialError, Libp2pError
from fairway.libp2p.limits import HostLimits
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


@dataclass(slots=True)
class _Attempt:
    ready: asyncio.Future[Connection]
    task: asyncio.Task[None]
    waiting: int = 0


class Dialer:
    """The attempts of one host to connect."""

    def __init__(
        self,
        *,
        upgrader: Upgrader,
        limits: HostLimits,
        run: Run,
        tasks: OwnedTasks,
        tls_ca_file: Path | None = None,
    ) -> None:
        """``tasks`` are those of the host. ``tls_ca_file`` names further authorities that are trusted.

        Raises `ConfigurationError` if that file is wrong.
        """
        self._upgrader = upgrader
        self._limits = limits
        self._run = run
        self._tasks = tasks
        self._attempts: dict[Multiaddr, _Attempt] = {}
        self.attempts = 0
        """Attempts since the start."""
        self.failures = 0
        """Attempts that failed."""
        # The system's authorities take their time to read, and few addresses need them.
        self._trust: SSLContext | None = None if tls_ca_file is None else client_context(tls_ca_file)

    async def connect(self, address: Multiaddr, timeout_s: float) -> Connection:
        """Return a new connection, or the one of an attempt at the same address that is under way.

        Raises:
            DialError: no connection came about in time; the cause is chained.
            AddressError: the address cannot be dialled.

        """
        attempt = self._attempts.get(address)
        if attempt is None:
            ready: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
            attempt = _Attempt(ready, self._tasks.spawn(self._attempt(address, ready), f"dial {address}"))
            self._attempts[address] = attempt
        attempt.waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait([attempt.ready])
        except TimeoutError as error:
            raise DialError(f"cannot connect to {address}: it took longer than {timeout_s:g} s") from error
        finally:
            attempt.waiting -= 1
            if not attempt.waiting and not attempt.ready.done():
                self._tasks.cancel(attempt.task)
        failure = attempt.ready.exception()
        if failure is not None:
            raise copy_of(failure)
        return attempt.ready.result()

    async def _attempt(self, address: Multiaddr, ready: asyncio.Future[Connection]) -> None:
        self.attempts += 1
        try:
            upgraded = await self._reach(address)
            try:
                self._attempts.pop(address, None)
                await self._run(upgraded, address.without_peer_id(), ready)
            finally:
                upgraded.link.transport.abort()
        except Libp2pError as error:
            _fail(ready, error)
        finally:
            self._attempts.pop(address, None)
            _fail(ready, ConnectionClosedError("this host is closed: start another one"))
            self.failures += ready.exception() is not None

    async def _reach(self, address: Multiaddr) -> Upgraded:
        try:
            async with asyncio.timeout(_DIAL_TIMEOUT_S):
                transport = await self._transport_to(address)
                try:
                    async with asyncio.timeout(self._limits.handshake_timeout_s):
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
