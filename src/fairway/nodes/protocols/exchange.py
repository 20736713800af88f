"""One request and its response on a libp2p stream, as in all Waku protocols except relay and filter push.

The client closes its side after the request and reads until the node closes: js-waku processes a response only then.
Clients open streams in advance, so a stream without a request stays open; the host bounds their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.errors import FrameTooLongError, StreamResetError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.stream import Stream
from fairway.nodes.protocols.pending_responses import PendingResponses

_BEGINNING_BYTES: Final = 512

Respond = Callable[[str, bytes], Awaitable[bytes]]
"""(peer id as text, bytes of the request) -> bytes of the response."""


def answering(
    respond: Respond,
    *,
    max_request_bytes: int,
    pending: PendingResponses | None = None,
    refuse: Respond | None = None,
) -> Callable[[Stream], Awaitable[None]]:
    """Return a stream handler that answers the one request on each stream.

    ``pending`` bounds the responses that peers do not read; handlers can share it. ``refuse`` gets the beginning of a
    request that is too long, and returns the response; without it the stream is reset.
    """
    responses = PendingResponses() if pending is None else pending

    async def handle(stream: Stream) -> None:
        try:
            request = await stream.read_frame(max_request_bytes)
        except FrameTooLongError:
            if refuse is None:
                raise
            # Read and drop the rest: a peer that is interrupted does not read the response.
            await responses.write(stream, await refuse(str(stream.peer_id), await _beginning(stream)))
            request = None
        if request is not None:
            await responses.write(stream, await respond(str(stream.peer_id), request))
        await stream.close()

    return handle


async def _beginning(stream: Stream) -> bytes:
    """Return the first bytes of a message, without its length."""
    read = b""
    while len(read) < _BEGINNING_BYTES and (more := await stream.read(_BEGINNING_BYTES - len(read))):
        read += more
    length = decode_uvarint(read)
    return read[length[1] :] if length else b""


async def ask(
    host: Host, peer_id: PeerId, protocol: str, request: bytes, *, max_response_bytes: int, timeout_s: float
) -> bytes:
    """Return the response of a peer.

    Raises `Libp2pError` if the stream cannot be opened, breaks, or ends without a response, and `TimeoutError`.
    """
    async with asyncio.timeout(timeout_s):
        stream = await host.open_stream(peer_id, [protocol], timeout_s=timeout_s)
        try:
            await stream.write_frame(request)
            await stream.close_write()
            response = await stream.read_frame(max_response_bytes)
        except BaseException:
            await stream.reset()
            raise
        await stream.close()
    if response is None:
        raise StreamResetError(f"{peer_id} ended the stream without a response")
    return response
