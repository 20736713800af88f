"""`HttpClient`: HTTP/1.1 to one server over asyncio streams and h11, with requests and endless answers.

An answer is whole, or a `NodeUnavailableError`. Heads, bodies, connections and times are bounded. After
`HttpClient.close` no connection is left. A connection that the server has closed is replaced.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import h11

from fairway.errors import NodeUnavailableError
from fairway.libp2p.transports.tls import client_context, distrust
from fairway.nodes.rest.address import RestAddress

MAX_HEAD_BYTES: Final = 65_536
MAX_BODY_BYTES: Final = 33_554_432
"""A page of 100 messages of 150 KiB has 20 MB as JSON."""
MAX_CONNECTIONS: Final = 8
"""Most connections for requests; each content topic received as a stream has one more."""
_IDLE_S: Final = 15.0
"""Idle time after which a connection is not used again, because servers close idle connections."""
_CHUNK_BYTES: Final = 262_144
_FAULTS: Final = (OSError, h11.ProtocolError, EOFError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReply:
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes = field(repr=False)

    @property
    def text(self) -> str:
        """The beginning of the body, for people."""
        return self.body[:300].decode(errors="replace")


class AnswerTooLongError(NodeUnavailableError):
    """The body of an answer is longer than `MAX_BODY_BYTES`."""


class _Connection:
    """One connection, with its state in h11."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader: Final = reader
        self.writer: Final = writer
        self.http: Final = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self.used_s = time.monotonic()

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return not self.reader.at_eof() and time.monotonic() - self.used_s < _IDLE_S

    async def send(self, request: h11.Request, body: bytes) -> None:
        events: tuple[Any, ...] = (request, h11.Data(data=body), h11.EndOfMessage())
        self.writer.write(b"".join(self.http.send(event) or b"" for event in events))
        await self.writer.drain()

    async def next_event(self) -> Any:
        while True:
            event = self.http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self.http.receive_data(await self.reader.read(_CHUNK_BYTES))

    async def head(self) -> tuple[int, dict[str, str]]:
        event = await self.next_event()
        while isinstance(event, h11.InformationalResponse):
            event = await self.next_event()
        if event is h11.PAUSED or not isinstance(event, h11.Response):
            raise EOFError("the connection ended before an answer")
        return event.status_code, {name.decode(): value.decode("latin-1") for name, value in event.headers}

    async def body(self, max_bytes: int) -> bytes:
        body = bytearray()
        while isinstance(event := await self.next_event(), h11.Data):
            body += event.data
            if len(body) > max_bytes:
                raise AnswerTooLongError(f"an answer of more than {max_bytes} bytes")
        return bytes(body)

    async def close(self) -> None:
        # Abort: an orderly end would wait for the server to read, or for the end of TLS.
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()


class HttpStream:
    """An endless answer: its head, and its body as it arrives. An async context manager."""

    def __init__(self, connection: _Connection, status: int, headers: Mapping[str, str], name: str) -> None:
        self.status: Final = status
        self.headers: Final = headers
        self._connection: Final = connection
        self._name: Final = name

    async def read(self, timeout_s: float) -> bytes:
        """Return the next bytes, ``b""`` at the end; raise `NodeUnavailableError` after ``timeout_s`` without any."""
        try:
            async with asyncio.timeout(timeout_s):
                event = await self._connection.next_event()
        except _FAULTS as error:
            raise _unavailable(self._name, error, timeout_s) from error
        return bytes(event.data) if isinstance(event, h11.Data) else b""

    async def text(self, timeout_s: float) -> str:
        """Return the beginning of the body, for people."""
        return (await self.read(timeout_s))[:300].decode(errors="replace")

    async def __aenter__(self) -> Self:
        """Return the stream itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the connection."""
        await self._connection.close()


class HttpClient:
    """Requests to one address."""

    def __init__(self, address: RestAddress, *, timeout_s: float, tls_ca_file: Path | None = None) -> None:
        """``tls_ca_file`` names authorities to trust for https; raises `ConfigurationError` if it is wrong."""
        self.address: Final = address
        self.timeout_s: Final = timeout_s
        """Longest wait for an answer."""
        self._slots: Final = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[_Connection] = []
        self._ssl: Final = client_context(tls_ca_file) if address.secure else None
        self._closed = False

    async def request(self, method: str, path: str, body: bytes = b"") -> HttpReply:
        """Return the answer to a request with a JSON body, if any; raise `NodeUnavailableError`."""
        async with self._slots:
            self._check_open()
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await self._exchange(method, path, body)
            except AnswerTooLongError as error:
                raise AnswerTooLongError(f"{self.address.name}: {error}") from error
            except _FAULTS as error:
                raise _unavailable(self.address.name, error, self.timeout_s) from error

    async def stream(self, path: str, headers: Mapping[str, str] | None = None) -> HttpStream:
        """Return the answer to a GET when its head has arrived; raise `NodeUnavailableError`."""
        self._check_open()
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self.timeout_s):
                connection = await self._connect()
                await connection.send(self._request("GET", path, b"", headers), b"")
                status, answered = await connection.head()
        except BaseException as error:
            if connection is not None:
                await connection.close()
            if isinstance(error, _FAULTS):
                raise _unavailable(self.address.name, error, self.timeout_s) from error
            raise
        return HttpStream(connection, status, answered, self.address.name)

    async def close(self) -> None:
        """End the connections that are not in use; the others end with their requests. Can be called twice."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()

    def _check_open(self) -> None:
        if self._closed:
            raise NodeUnavailableError(f"{self.address.name}: this client is closed")

    async def _exchange(self, method: str, path: str, body: bytes) -> HttpReply:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                try:
                    return await self._over(connection, method, path, body)
                except (OSError, h11.ProtocolError, EOFError):
                    continue  # the server had closed it; repeating is safe, because nodes drop known message hashes
            await connection.close()
        return await self._over(await self._connect(), method, path, body)

    async def _over(self, connection: _Connection, method: str, path: str, body: bytes) -> HttpReply:
        try:
            await connection.send(self._request(method, path, body, None), body)
            status, headers = await connection.head()
            answered = await connection.body(MAX_BODY_BYTES)
            if connection.http.our_state is h11.DONE and connection.http.their_state is h11.DONE and not self._closed:
                connection.http.start_next_cycle()
                connection.used_s = time.monotonic()
                self._idle.append(connection)
            else:
                await connection.close()
        except BaseException:
            await connection.close()
            raise
        return HttpReply(status=status, headers=headers, body=answered)

    async def _connect(self) -> _Connection:
        address = self.address
        port = address.port or (443 if address.secure else 80)
        return _Connection(*await asyncio.open_connection(address.host, port, ssl=self._ssl))

    def _request(self, method: str, path: str, body: bytes, headers: Mapping[str, str] | None) -> h11.Request:
        address = self.address
        host = f"[{address.host}]" if ":" in address.host else address.host
        fields = {
            "Host": host if address.port is None else f"{host}:{address.port}",
            "Accept": "*/*",
            **address.headers,
            **(headers or {}),
        }
        if body or method != "GET":
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        return h11.Request(method=method, target=f"{address.base_path}{path}", headers=list(fields.items()))


def _unavailable(name: str, error: BaseException, timeout_s: float) -> NodeUnavailableError:
    if isinstance(error, TimeoutError):
        return NodeUnavailableError(f"{name}: no answer within {timeout_s:g} s")
    if isinstance(error, ssl.SSLCertVerificationError):
        return NodeUnavailableError(f"{name}: {distrust(error)}")
    return NodeUnavailableError(f"{name}: {type(error).__name__}: {error}")
