"""`JsonRpc`: calls to a node of a chain over HTTP/1.1, one at a time, for worker threads.

A call reads a bounded number of bytes, and waits at most its timeout for the next ones. The path of the address often
holds a key, so it appears only in the request.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

from fairway.errors import ConfigurationError, DecodeError, NodeUnavailableError
from fairway.json_reading import read_json

MAX_ANSWER_BYTES: Final = 65_536
_OK: Final = 200


class CallRefusedError(NodeUnavailableError):
    """The node answered with a JSON-RPC error: the contract reverts the call, or the node limits its clients."""


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
        """Raise `ConfigurationError` for an invalid address, and for a timeout that is not positive."""
        try:
            parts = urlsplit(address)
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError:
            parts, host, port = urlsplit(""), "", None
        if parts.scheme not in {"http", "https"} or not host:
            raise ConfigurationError(
                "the address of a node of a chain is invalid; an example is https://rpc.example.org (the address is "
                "not shown, because it may hold a key)"
            )
        if timeout_s <= 0:
            raise ConfigurationError(f"timeout_s must be positive, not {timeout_s}")
        self._connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = host, port
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"Content-Type": "application/json", "Connection": "close"}
        if parts.username is not None:
            credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
        self._timeout_s = timeout_s
        self._number = 0
        shown = f"[{host}]" if ":" in host else host
        self.name: Final = f"{parts.scheme}://{shown}" + ("" if port is None else f":{port}")
        """The address without path and credentials."""

    def __repr__(self) -> str:
        return f"JsonRpc({self.name!r})"

    def call(self, method: str, parameters: Sequence[Any]) -> Any:
        """Return the result of a call.

        Raises `NodeUnavailableError` without a whole answer in time, `DecodeError` for an answer that is not to this
        call, and `CallRefusedError` for a JSON-RPC error.
        """
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": list(parameters)}
        try:
            status, body = self._exchange(msgspec.json.encode(request))
        except TimeoutError as error:
            raise NodeUnavailableError(f"{self.name}: no answer to {method} within {self._timeout_s:g} s") from error
        except (OSError, HTTPException) as error:
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
        with closing(self._connect(self._host, self._port, timeout=self._timeout_s)) as connection:
            connection.request("POST", self._target, body, self._headers)
            response = connection.getresponse()
            answer = response.read(MAX_ANSWER_BYTES + 1)
        if len(answer) > MAX_ANSWER_BYTES:
            raise HTTPException(f"an answer of more than {MAX_ANSWER_BYTES} bytes")
        return response.status, answer
