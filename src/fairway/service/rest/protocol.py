"""HTTP connections that cannot be held for nothing: uvicorn's protocol with a limit for each way to be slow.

uvicorn ends a connection that is idle between two requests. This also ends one on which no first request comes, on
which a request stops in the middle of its head, and whose client leaves an answer unread; and when there are too many
connections, one on which no request is under way gives way to the new one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from fairway.service.rest import bounds

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
        """Admit the connection, in place of an idle one if there are too many."""
        if len(self.connections) >= bounds.MAX_CONNECTIONS:
            for other in self.connections:
                if isinstance(other, BoundedProtocol) and other.idle:
                    other.transport.abort()
                    self.connections.discard(other)
                    break
        super().connection_made(transport)
        self._wait_for_request()
        self._progress = self.loop.call_later(bounds.STALL_S, self._check_progress)

    def data_received(self, data: bytes) -> None:
        """Take bytes; whole heads stop the clock that waits for them."""
        super().data_received(data)
        if not self.idle:
            self._stop(self._patience)
            self._patience = None
        elif self._patience is None:
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all clocks."""
        self._stop(self._patience)
        self._stop(self._progress)
        super().connection_lost(exc)

    def _wait_for_request(self) -> None:
        self._patience = self.loop.call_later(bounds.REQUEST_TIMEOUT_S, self._lose_patience)

    def _lose_patience(self) -> None:
        if self.idle:
            self.transport.abort()

    def _check_progress(self) -> None:
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes and unread_bytes >= self._unread_bytes > 0:
            self.transport.abort()
            return
        self._unread_bytes = unread_bytes
        self._progress = self.loop.call_later(bounds.STALL_S / 2, self._check_progress)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
