"""`PeerRequests`: the requests of one host, over few streams at a time to each peer and protocol.

nim-libp2p, and so nwaku, serves at most 10 streams of one peer and protocol. On a further stream it agrees on the
protocol and then ends the stream without an answer. Other libraries have other limits, and reset the stream. So at most
`MAX_STREAMS` are open to a peer for a protocol, and other requests wait for one of them to end.

A request whose stream the peer ended without an answer is repeated. If other requests to that peer are under way, they
count as too many: one fewer stream is open until `_ANSWERS_BEFORE_ONE_MORE` answers arrived, and the request waits for
a stream again. A request that was alone is repeated at once, a few times, unless the caller can ask another peer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from fairway.libp2p.errors import LimitError, StreamResetError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId

MAX_STREAMS: Final = 8
"""Streams that are open at once to one peer for one protocol: nim-libp2p's 10, less those whose end it has not seen."""
_ANSWERS_BEFORE_ONE_MORE: Final = 32
_ATTEMPTS_ALONE: Final = 4
_PAUSE_S: Final = 0.05


class _Lane:
    """The streams to one peer for one protocol."""

    def __init__(self) -> None:
        self.open = 0
        self.requests = 0
        """Requests that have a stream or wait for one."""
        self._limit = MAX_STREAMS
        self._answers = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        """Whether a request would wait."""
        return self.open >= self._limit

    async def enter(self, timeout_s: float) -> None:
        """Wait until one more stream may be open, after all requests that wait already; raises `TimeoutError`."""
        if not self.is_full:
            self.open += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException:
            if not turn.cancelled():
                self.leave()
            raise

    def leave(self) -> None:
        """Note that a stream has ended."""
        self.open -= 1
        self._admit()

    def narrow(self) -> None:
        """Note that the peer serves fewer streams than are open now."""
        self._limit, self._answers = max(1, self.open - 1), 0

    def answered(self) -> None:
        """Note that the peer answered a request."""
        self._answers += 1
        if self._answers >= _ANSWERS_BEFORE_ONE_MORE and self._limit < MAX_STREAMS:
            self._limit, self._answers = self._limit + 1, 0
            self._admit()

    def _admit(self) -> None:
        while self._waiting and not self.is_full:
            turn = self._waiting.popleft()
            if not turn.cancelled():
                self.open += 1
                turn.set_result(None)


class PeerRequests:
    """The requests of one host."""

    def __init__(self, host: Host) -> None:
        self.host: Final = host
        self._lanes: dict[tuple[PeerId, str], _Lane] = {}
        """The streams in use."""

    def is_busy(self, peer: PeerId, protocol: str) -> bool:
        """Return whether a request would wait for a stream."""
        lane = self._lanes.get((peer, protocol))
        return lane is not None and lane.is_full

    async def ask(
        self,
        peer: PeerId,
        protocol: str,
        request: bytes,
        *,
        max_response_bytes: int,
        timeout_s: float,
        begun: Callable[[], None] = lambda: None,
        is_only: bool = True,
    ) -> bytes:
        """Return the response of a peer; ``begun`` is called each time that a stream is free for the request.

        ``is_only``: no other peer can be asked.

        Raises `LimitError` if no stream is free within ``timeout_s``. Then the request has ``timeout_s``: raises
        `Libp2pError` if the stream cannot be opened, breaks, or ends without a response, and `TimeoutError`.
        """
        lane = self._lanes.setdefault((peer, protocol), _Lane())
        lane.requests += 1
        try:
            attempts_alone = 0
            while True:
                try:
                    await lane.enter(timeout_s)
                except TimeoutError:
                    raise LimitError(
                        f"{lane.open} requests to {peer} were unanswered for {timeout_s:g} s, and no more are made at "
                        "once"
                    ) from None
                begun()
                try:
                    async with asyncio.timeout(timeout_s):
                        response = await self.host.request(
                            peer, protocol, request, max_response_bytes=max_response_bytes
                        )
                    if response is None:
                        raise StreamResetError(f"{peer} ended the stream without a response")  # noqa: TRY301
                except StreamResetError:
                    if lane.open > 1:
                        lane.narrow()
                        continue
                    attempts_alone += 1
                    if attempts_alone == _ATTEMPTS_ALONE or not is_only:
                        raise
                else:
                    lane.answered()
                    return response
                finally:
                    lane.leave()
                await asyncio.sleep(_PAUSE_S)
        finally:
            lane.requests -= 1
            if not lane.requests:
                del self._lanes[peer, protocol]
