"""mplex, sans-IO: /mplex/6.7.0 of libp2p, the only muxer that js-waku offers by default.

A frame is two unsigned varints, ``stream << 3 | flag`` and a length of at most 1 MiB, and the body. Each side numbers
the streams that it opens, and the flag identifies that side: odd flags (message 1, close 3, reset 5) come from the side
that accepted the stream, even ones (message 2, close 4, reset 6) from the side that opened it; 0 opens a stream.

There are no windows. A stream whose reader is slow fills up to a bound. Then `overfull` returns it, and the caller
stops reading the connection for a bounded time and resets the stream after it.

Specification: https://github.com/libp2p/specs/blob/master/mplex/README.md.
"""

from __future__ import annotations

from typing import ClassVar, Final

from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.errors import FrameError
from fairway.libp2p.mux.muxer import SEND_FRAME_BYTES, Muxer, StreamState
from fairway.wire.varint import encode_uvarint

_MAX_FRAME_BYTES: Final = 1_048_576
"""The longest frame that is accepted, by the specification of mplex."""
STREAM_BUFFER_BYTES: Final = 1_048_576
"""With more unconsumed bytes on a stream, the connection is not read until they are consumed."""
_NEW_STREAM: Final = 0
_MESSAGE: Final = 1
_CLOSE: Final = 3
_RESET: Final = 5


class Mplex(Muxer):
    """The mplex side of a connection.

    The numbers of both sides overlap, so the id of a stream is twice its number, plus one if this side opened it.
    """

    protocol: ClassVar[str] = "/mplex/6.7.0"

    def __init__(self, *, initiator: bool) -> None:
        super().__init__(initiator=initiator)
        self._next_number = 0
        self._full: dict[int, None] = {}

    def ping(self, value: int) -> bool:  # noqa: ARG002  the interface of every muxer
        """Do nothing: mplex has no ping."""
        return False

    def go_away(self, code: int) -> None:
        """Do nothing: mplex has no such frame."""

    def overfull(self) -> int | None:
        """Return the stream that has been too full for the longest time; None if none is."""
        while self._full:
            stream_id = next(iter(self._full))
            state = self._streams.get(stream_id)
            if state is not None and state.buffered > STREAM_BUFFER_BYTES:
                return stream_id
            del self._full[stream_id]
        return None

    # ---- frames that arrive

    def _begin_frame(self, data: bytes, at: int) -> int | None:
        header = decode_uvarint(data, at)
        length = header and decode_uvarint(data, header[1], max_value=_MAX_FRAME_BYTES)
        if not header or not length:
            return None
        self._body_left, begun = length
        self._body_of = None
        self._frame(header[0] >> 3, header[0] & 7)
        return begun

    def _frame(self, number: int, flag: int) -> None:
        if flag == _NEW_STREAM:
            # The body is a name without a meaning for the protocol: it is skipped.
            self._accept(number << 1)
            return
        if flag > 6:
            raise FrameError(f"mplex flag {flag}; 0 to 6 exist")
        state = self._streams.get((number << 1) | (flag & 1))
        if state is None or state.remote_closed:
            if state is not None and flag >= _RESET:
                self._peer_reset(state)
        elif flag < _CLOSE:
            self._body_of = state
        elif flag < _RESET:
            self._peer_closed(state)
        else:
            self._peer_reset(state)

    def _deliver(self) -> None:
        state = self._arriving
        super()._deliver()
        if state is not None and state.buffered > STREAM_BUFFER_BYTES:
            self._full[state.stream_id] = None

    # ---- outgoing frames

    def _next_outbound_id(self) -> int:
        number = self._next_number
        self._next_number += 1
        return (number << 1) | 1

    def _queue_frame(self, state: StreamState, flag: int, body: bytes = b"") -> None:
        """Queue a frame of a stream; ``flag`` is the odd flag, for a stream that this side accepted."""
        header = (state.stream_id >> 1) << 3 | (flag + 1 if state.outbound else flag)
        self._queue(encode_uvarint(header) + encode_uvarint(len(body)) + body)

    def _queue_open(self, state: StreamState) -> None:
        number = state.stream_id >> 1
        name = str(number).encode()
        self._queue(encode_uvarint(number << 3 | _NEW_STREAM) + encode_uvarint(len(name)) + name)

    def send(self, stream_id: int, data: memoryview) -> int:
        """Queue all bytes, and return their number: mplex has no windows."""
        state = self._writable(stream_id)
        total = len(data)
        header = encode_uvarint((state.stream_id >> 1) << 3 | (_MESSAGE + 1 if state.outbound else _MESSAGE))
        at = 0
        while at < total:
            size = min(total - at, SEND_FRAME_BYTES)
            self._queue(header + encode_uvarint(size))
            self._queue(data[at : at + size])
            at += size
        return total

    def _queue_close(self, state: StreamState) -> None:
        self._queue_frame(state, _CLOSE)

    def _queue_reset(self, state: StreamState) -> None:
        self._queue_frame(state, _RESET)

    def _queue_refusal(self, stream_id: int) -> None:
        self._queue_reply(encode_uvarint((stream_id >> 1) << 3 | _RESET) + b"\0")

    def _give_credit(self, state: StreamState, size_bytes: int) -> None:
        """Do nothing: mplex has no windows to give back."""
