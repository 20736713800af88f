"""`BoundedProtocol`: uvicorn's HTTP connection, with limits against slow clients.

uvicorn ends a connection that is idle between two requests. This class also ends one without a complete head of a
request, or with an unread answer.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT_S: Final = 10.0
"""Time to receive the first request of a connection, or the rest of a request's head."""
STALL_S: Final = 30.0
"""Time for which a client may leave an answer unread."""

_LOG: Final = logging.getLogger(__name__)
# uvicorn warns of every request that is not HTTP; any client could fill the log.
_LOG.setLevel(logging.ERROR)


class BoundedProtocol(H11Protocol):
    """One connection. Made by uvicorn."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _LOG
        self._timer: asyncio.TimerHandle | None = None
        self._progress: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept the connection."""
        super().connection_made(transport)
        self._await_request()
        self._check_progress()

    def data_received(self, data: bytes) -> None:
        """Process received bytes; the head of a request stops the timer that waits for it."""
        super().data_received(data)
        # A WebSocket has a protocol of its own from here on; an unread answer still ends its connection.
        if not self.is_idle or self.transport.get_protocol() is not self:
            self._stop_timer()
        elif self._timer is None:
            self._await_request()

    def send_400_response(self, msg: str) -> None:
        """Answer an invalid request with 431 for a long head, else mostly 400, and end the connection."""
        error = sys.exception()
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        head = h11.Response(status_code=status, headers=[("Content-Type", "text/plain"), ("Connection", "close")])
        for event in (head, h11.Data(data=msg.encode("ascii")), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event))
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_timer()
        if self._progress is not None:
            self._progress.cancel()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        self._timer = self.loop.call_later(REQUEST_TIMEOUT_S, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self.is_idle:
            self.transport.abort()

    def _check_progress(self) -> None:
        if self.transport.is_closing():
            return
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes >= self._unread_bytes > 0:
            self.transport.abort()
            return
        self._unread_bytes = unread_bytes
        self._progress = self.loop.call_later(STALL_S / 2, self._check_progress)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
