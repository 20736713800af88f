"""The serving side of one request and its response on a stream, as in all Waku protocols but relay and filter push.

The client closes its side after the request and reads until the node closes: js-waku processes a response only then.
Clients open streams in advance, so a stream without a request stays open; the host bounds their number.

`PendingResponses` bounds the responses that peers request and do not read. Responses under way have at most
`MAX_PENDING_BYTES` together, or there is only one. Beyond that the oldest is dropped: an honest peer reads quickly. A
response waits at most `WRITE_TIMEOUT_S`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fairway.libp2p.stream import Stream
from fairway.wire.varint import length_prefixed

MAX_PENDING_BYTES: Final = 67_108_864
"""64 MiB: some twenty of the longest pages of a store."""
WRITE_TIMEOUT_S: Final = 60.0


class PendingResponses:
    """The responses of one node on their way out."""

    def __init__(self) -> None:
        self.size_bytes = 0
        """Bytes of the responses that are being written."""
        self.given_up = 0
        """Responses that were dropped for later ones."""
        self._sizes: dict[Stream, int] = {}

    def __len__(self) -> int:
        """Return how many responses are being written."""
        return len(self._sizes)

    async def write(self, stream: Stream, response: bytes) -> None:
        """Write a response; raises `StreamResetError` if it was dropped, and `TimeoutError`."""
        frame = length_prefixed(response)
        del response  # the frame is a copy, and one is enough to hold
        self._sizes[stream] = len(frame)
        self.size_bytes += len(frame)
        try:
            while self.size_bytes > MAX_PENDING_BYTES and len(self._sizes) > 1:
                self.given_up += 1
                oldest = next(iter(self._sizes))
                self._forget(oldest)
                await oldest.reset()
            await stream.write(frame, WRITE_TIMEOUT_S)
        finally:
            self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        self.size_bytes -= self._sizes.pop(stream, 0)


Respond = Callable[[str, bytes], Awaitable[bytes]]
"""(peer id as text, bytes of the request) -> bytes of the response."""


def answering(
    respond: Respond, *, max_request_bytes: int, pending: PendingResponses | None = None
) -> Callable[[Stream], Awaitable[None]]:
    """Return a stream handler that answers the one request on each stream; a longer request resets the stream.

    ``pending`` bounds the responses that peers do not read; handlers can share it.
    """
    responses = PendingResponses() if pending is None else pending

    async def handle(stream: Stream) -> None:
        request = await stream.read_frame(max_request_bytes)
        if request is not None:
            await responses.write(stream, await respond(str(stream.peer_id), request))
        await stream.close()

    return handle
