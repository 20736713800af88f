"""`RestStoreClient`: a blocking client of the store endpoint of nwaku's REST API, with retries.

The Spark pipeline uses it; ``http.client`` keeps one connection for all pages and needs no further package on an
executor. `fairway.nodes.rest.store_messages` has the format.

A page is whole, or a `NetworkError`. Temporary failures (no connection, 429, 5xx) are retried a few times, with growing
pauses; other failures are not. After a failure, or an answer that is too long, the node is asked for fewer messages
(`fairway.nodes.page_size`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final, Self

from fairway.errors import ConfigurationError, NodeUnavailableError, StoreQueryError, StoreRefusedError
from fairway.nodes.node import StoreQuery
from fairway.nodes.page_size import PageSize
from fairway.nodes.rest.address import RestAddress
from fairway.nodes.rest.store_messages import StoreAnswer, store_answer, store_request
from fairway.wire.store import is_refusal

TIMEOUT_S: Final = 30.0
"""Longest wait without a byte of an answer; nwaku itself waits 5 s for a store node."""
DEFAULT_ATTEMPTS: Final = 6
"""Attempts for one page; with pauses about half a minute."""
FIRST_PAUSE_S: Final = 1.0
"""Pause before the second attempt; each further pause is twice as long."""
LONGEST_PAUSE_S: Final = 60.0
"""Longest pause, even if the node asks for a longer one (``Retry-After``)."""
MAX_RESPONSE_BYTES: Final = 67_108_864
"""A page of 100 messages of 150 KiB has 20 MB as JSON; longer answers are not read."""

_OK, _TOO_MANY_REQUESTS, _SERVER_ERROR = 200, 429, 500
_SHOWN_CHARACTERS: Final = 200


class RestStoreClient:
    """A context manager over one node, ``http://127.0.0.1:8645`` or ``https://user:password@example.org/waku``.

    ``?peerAddr=/ip4/...`` after the address makes the node query another store node. Raises `ConfigurationError` for an
    invalid address.
    """

    def __init__(
        self,
        address: str,
        *,
        attempts: int = DEFAULT_ATTEMPTS,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        parsed = RestAddress.parse(address)
        self.name: Final = parsed.name
        self._base_path: Final = parsed.base_path
        self._peer: Final = parsed.peer
        self._headers: Final = {"Accept": "application/json", **parsed.headers}
        self._attempts: Final = attempts
        self._page_size: Final = PageSize()
        self._pause: Final = pause
        connection = HTTPSConnection if parsed.secure else HTTPConnection
        self._connection: Final = connection(parsed.host, parsed.port, timeout=TIMEOUT_S)

    def __repr__(self) -> str:
        """Show the node, without credentials."""
        return f"<StoreClient {self.name}>"

    def __enter__(self) -> Self:
        """Return the client; nothing is connected before the first page."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; the next page would open it again."""
        self._connection.close()

    def page(self, query: StoreQuery, cursor: bytes | None = None) -> StoreAnswer:
        """Return the first page, or the page after ``cursor`` of an earlier page.

        Raises `NodeUnavailableError` if the node cannot be reached, `StoreQueryError` if it does not return a page.
        """
        pause_s = FIRST_PAUSE_S
        attempts_left = self._attempts
        while attempts_left > 0:
            asked = self._page_size.of(query.page_size)
            path = self._base_path + store_request(replace(query, page_size=asked), cursor, peer=self._peer)
            began_s = time.monotonic()
            try:
                status, wait_s, body = self._get(path)
            except (OSError, HTTPException) as error:
                status = 0
                self.close()
                attempts_left -= 1
                if not attempts_left:
                    raise NodeUnavailableError(f"{self.name}: {type(error).__name__}: {error}") from error
            else:
                if len(body) > MAX_RESPONSE_BYTES:
                    if not self._page_size.failed(asked):
                        raise StoreRefusedError(f"{self.name}: one message makes more than {MAX_RESPONSE_BYTES} bytes")
                    continue
                if status == _OK:
                    self._page_size.came(asked, len(body), (time.monotonic() - began_s) / TIMEOUT_S)
                    return self._answer(body, query)
                attempts_left -= 1
                text = body[:_SHOWN_CHARACTERS].decode(errors="replace")
                if is_refusal(status, text):
                    raise StoreRefusedError(f"{self.name}: the node answers {status}: {text}")
                if not attempts_left or not (status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR):
                    raise StoreQueryError(f"{self.name}: the node answers {status}: {text}")
                pause_s = max(pause_s, wait_s)
            if status != _TOO_MANY_REQUESTS:
                self._page_size.failed(asked)
            self._pause(min(pause_s, LONGEST_PAUSE_S))
            pause_s *= 2
        raise ConfigurationError(f"attempts must be at least 1, not {self._attempts}")

    def pages(self, query: StoreQuery, cursor: bytes | None = None) -> Iterator[StoreAnswer]:
        """Yield all pages, from the first or after ``cursor`` of an earlier page.

        Raises as `page` does, and `StoreQueryError` if the node repeats a cursor.
        """
        seen: set[bytes] = set()
        while True:
            answer = self.page(query, cursor)
            yield answer
            if answer.cursor is None:
                return
            if answer.cursor in seen:
                raise StoreQueryError(f"{self.name}: the node gives the cursor 0x{answer.cursor.hex()} twice")
            seen.add(answer.cursor)
            cursor = answer.cursor

    def _answer(self, body: bytes, query: StoreQuery) -> StoreAnswer:
        try:
            return store_answer(body, query)
        except StoreQueryError as error:
            raise type(error)(f"{self.name}: {error}") from error

    def _get(self, path: str) -> tuple[int, float, bytes]:
        """Return status, the pause that the node asks for, and body; of one that is too long the beginning."""
        self._connection.request("GET", path, headers=self._headers)
        response = self._connection.getresponse()
        body = response.read(MAX_RESPONSE_BYTES + 1)
        if len(body) > MAX_RESPONSE_BYTES:
            self.close()
        return response.status, _retry_after(response), body


def _retry_after(response: HTTPResponse) -> float:
    with suppress(ValueError):
        return float(response.headers.get("Retry-After", ""))
    return 0.0
