"""`JsonRpc`: calls to a node of a chain over HTTP/1.1, one at a time, for worker threads.

Every call ends within its timeout, however slowly the server sends, and takes a bounded number of bytes. The path of
the address often holds a key, so no text but the request has it.
"""

from __future__ import annotations

import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import h11
import msgspec

from fairway.errors import ConfigurationError, DecodeError, NodeUnavailableError
from fairway.json_reading import read_json

MAX_ANSWER_BYTES: Final = 65_536
_CHUNK_BYTES: Final = 16_384
_OK: Final = 200
_FAULTS: Final = (OSError, h11.ProtocolError, EOFError)


class CallRefusedError(NodeUnavailableError):
    """The node answered with an error of JSON-RPC: the contract reverts the call, or the node is asked too often."""


class _Error(msgspec.Struct, frozen=True):
    code: int = 0
    message: str = ""


class _Answer(msgspec.Struct, frozen=True):
    id: int | str | None = None
    result: Any = None
    error: _Error | None = None


class JsonRpc:
    """A node of a chain at an address, ``https://rpc.example.org/v3/KEY``."""

    def __init__(self, address: str, *, timeout_s: float) -> None:
        """Take an address. Raises `ConfigurationError` for what is none, and for a timeout that is not positive."""
        try:
            parts = urlsplit(address)
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        if parts.scheme not in {"http", "https"} or not host:
            raise ConfigurationError(
                "not the address of a chain's node; an example is https://rpc.example.org (the address is not shown, "
                "because it may hold a key)"
            )
        if timeout_s <= 0:
            raise ConfigurationError(f"timeout_s must be positive, not {timeout_s}")
        self._host, self._port = host, port or (443 if parts.scheme == "https" else 80)
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        shown = f"[{host}]" if ":" in host else host
        self._authority = shown if port is None else f"{shown}:{port}"
        self._credentials = _basic(parts.username, parts.password)
        self._timeout_s = timeout_s
        self._number = 0
        self.name: Final = f"{parts.scheme}://{self._authority}"
        """The address without its path and credentials, for people."""

    def __repr__(self) -> str:
        return f"JsonRpc({self.name!r})"

    def call(self, method: str, parameters: Sequence[Any]) -> Any:
        """Return the result of a call.

        Raises `NodeUnavailableError` if no whole answer comes in time, `DecodeError` if it is no answer to the call,
        and `CallRefusedError` for an error of JSON-RPC.
        """
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": list(parameters)}
        try:
            status, body = self._exchange(msgspec.json.encode(request))
        except TimeoutError as error:
            raise NodeUnavailableError(f"{self.name}: no answer to {method} within {self._timeout_s:g} s") from error
        except _FAULTS as error:
            raise NodeUnavailableError(f"{self.name}: {method}: {type(error).__name__}: {error}") from error
        try:
            answer = read_json(body, _Answer)
        except DecodeError as error:
            if status != _OK:
                raise NodeUnavailableError(f"{self.name}: {method}: HTTP status {status}") from error
            raise DecodeError(f"{self.name}: the answer to {method} is no JSON-RPC: {error}") from error
        if answer.error is not None:
            raise CallRefusedError(f"{self.name}: {method}: {answer.error.message[:200]} ({answer.error.code})")
        if status != _OK:
            raise NodeUnavailableError(f"{self.name}: {method}: HTTP status {status}")
        if answer.id != self._number:
            raise DecodeError(f"{self.name}: the answer to {method} is to call {answer.id!r}, not {self._number}")
        return answer.result

    def _exchange(self, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer. The connection is not kept: calls are seconds apart."""
        ends_s = time.monotonic() + self._timeout_s
        headers = [
            ("Host", self._authority),
            ("Content-Type", "application/json"),
            ("Accept", "application/json"),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
            *self._credentials,
        ]
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_ANSWER_BYTES)
        request = h11.Request(method="POST", target=self._target, headers=headers)
        data = b"".join(http.send(event) or b"" for event in (request, h11.Data(data=body), h11.EndOfMessage()))
        with socket.create_connection((self._host, self._port), timeout=_left(ends_s)) as plain:
            plain.settimeout(_left(ends_s))
            stream = plain if self._tls is None else self._tls.wrap_socket(plain, server_hostname=self._host)
            with stream:
                stream.settimeout(_left(ends_s))
                stream.sendall(data)
                return _answer(http, stream, ends_s)


def _answer(http: h11.Connection, stream: socket.socket, ends_s: float) -> tuple[int, bytes]:
    status, body = 0, bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            stream.settimeout(_left(ends_s))
            http.receive_data(stream.recv(_CHUNK_BYTES))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > MAX_ANSWER_BYTES:
                raise EOFError(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return status, bytes(body)
        elif not isinstance(event, h11.InformationalResponse):
            raise EOFError("the connection ended before an answer")


def _left(ends_s: float) -> float:
    left = ends_s - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _basic(user: str | None, password: str | None) -> list[tuple[str, str]]:
    if user is None:
        return []
    credentials = f"{unquote(user)}:{unquote(password or '')}"
    return [("Authorization", f"Basic {b64encode(credentials.encode()).decode()}")]
