"""`BoundedProtocol`: uvicorn's HTTP connection, with limits against slow clients.

uvicorn ends a connection that is idle between two requests. This class also ends a connection without a first request,
with an incomplete head of a request, or with an unread answer. Beyond `MAX_CONNECTIONS` a new connection replaces an
idle one.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS: Final = 1_000
"""Open connections. A new connection beyond it ends one on which no request is under way."""
REQUEST_TIMEOUT_S: Final = 10.0
"""Time to receive the first request of a connection, or the rest of a request's head."""
STALL_S: Final = 30.0
"""Time for which a client may leave an answer unread."""

_LOG: Final = logging.getLogger(__name__)
# uvicorn warns of every request that is not HTTP; a hostile client could fill the log.
_LOG.setLevel(logging.ERROR)


class BoundedProtocol(H11Protocol):
    """One connection. Made by uvicorn."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _LOG
        self._patience: asyncio.TimerHandle | None = None
        self._progress: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept the connection; end an idle one if there are too many."""
        if len(self.connections) >= MAX_CONNECTIONS:
            for other in self.connections:
                if isinstance(other, BoundedProtocol) and other.idle:
                    other.transport.abort()
                    self.connections.discard(other)
                    break
        super().connection_made(transport)
        self._wait_for_request()
        self._progress = self.loop.call_later(STALL_S, self._check_progress)

    def shutdown(self) -> None:
        """End the connection after the answer that is under way.

        An idle one over TLS ends at once: a client that keeps it for later reads no farewell, and sends none.
        """
        if self.idle and self.scheme == "https":
            self.transport.abort()
        else:
            super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Process received bytes; the head of a request stops the timer that waits for it."""
        super().data_received(data)
        if not self.idle:
            self._stop(self._patience)
            self._patience = None
        elif self._patience is None:
            self._wait_for_request()

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request with 431 for a long head, else mostly 400, and end the connection."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        head = h11.Response(status_code=status, headers=[("Content-Type", "text/plain"), ("Connection", "close")])
        for event in (head, h11.Data(data=msg.encode("ascii")), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        self._stop(self._patience)
        self._stop(self._progress)
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self._patience = self.loop.call_later(REQUEST_TIMEOUT_S, self._lose_patience)

    def _lose_patience(self) -> None:
        if self.idle:
            self.transport.abort()

    def _check_progress(self) -> None:
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes and unread_bytes >= self._unread_bytes > 0:
            self.transport.abort()
            return
        self._unread_bytes = unread_bytes
        self._progress = self.loop.call_later(STALL_S / 2, self._check_progress)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
