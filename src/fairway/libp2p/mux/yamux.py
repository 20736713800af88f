"""yamux, sans-IO: /yamux/1.0.0 of hashicorp and libp2p.

A frame is a header of 12 bytes (version 0, type, flags, stream, length; big-endian) and, for data, ``length`` bytes.
Each stream has a window per direction, and window updates add the bytes that the reader has read. So a slow reader
stops its own stream only. The header of a frame that is longer than the rest of the window ends the connection; its
body is not read. This side grants the 256 KiB of the specification at first, and sends 256,000 bytes, which every
implementation accepts (docs/interop.md, "Constants of libp2p").

Specification: https://github.com/hashicorp/yamux/blob/master/spec.md, and libp2p/specs, yamux/README.md.
"""

from __future__ import annotations

from struct import Struct
from typing import ClassVar, Final

from fairway.libp2p.errors import FrameError, LimitError
from fairway.libp2p.mux.muxer import RECEIVE_WINDOW_BYTES, SEND_FRAME_BYTES, Muxer, StreamState, WindowOpened

_HEADER: Final = Struct("!BBHII")
_VERSION: Final = 0
_DATA: Final = 0
_WINDOW_UPDATE: Final = 1
_PING: Final = 2
_GO_AWAY: Final = 3
_SYN: Final = 1
_ACK: Final = 2
_FIN: Final = 4
_RST: Final = 8


class Yamux(Muxer):
    """The yamux side of a connection."""

    protocol: ClassVar[str] = "/yamux/1.0.0"

    def __init__(self, *, initiator: bool) -> None:
        super().__init__(initiator=initiator)
        self._next_id = 1 if initiator else 2
        self._body_flags = 0
        self._peer_left = False

    def open_stream(self) -> int:
        """Open a stream and return its number.

        Raises:
            LimitError: too many are open, or the peer accepts no more.

        """
        if self._peer_left:
            raise LimitError("the peer said that it goes away: connect again")
        return super().open_stream()

    def ping(self, value: int) -> bool:
        """Queue a ping with a value below 2**32."""
        self._queue(_HEADER.pack(_VERSION, _PING, _SYN, 0, value))
        return True

    def go_away(self, code: int) -> None:
        """Queue the announcement that this side disconnects; 0: normal, 1: protocol error, 2: internal error."""
        self._queue(_HEADER.pack(_VERSION, _GO_AWAY, 0, 0, code))

    # ---- frames that arrive

    def _begin_frame(self, data: bytes, at: int) -> int | None:
        begun = at + _HEADER.size
        if len(data) < begun:
            return None
        version, kind, flags, stream_id, length = _HEADER.unpack_from(data, at)
        if version != _VERSION:
            raise FrameError(f"yamux version {version} in a frame header; only 0 exists")
        if kind == _DATA:
            self._begin_data(flags, stream_id, length)
        elif kind == _WINDOW_UPDATE:
            self._window_update(flags, stream_id, length)
        elif kind == _PING:
            self._ping_frame(flags, length)
        elif kind == _GO_AWAY:
            self._peer_left = True
        else:
            raise FrameError(f"yamux frame type {kind}; 0 to 3 exist")
        return begun

    def _begin_data(self, flags: int, stream_id: int, length: int) -> None:
        state = self._streams.get(stream_id)
        if flags & _SYN:
            state = self._opened(stream_id)
        if state is None or state.remote_closed:
            # At most one window of bytes can be under way for a stream that has ended.
            if length > RECEIVE_WINDOW_BYTES:
                raise FrameError(f"a yamux frame of {length} bytes for a stream that is closed")
            state = None
        elif length > state.receive_window:
            raise FrameError(
                f"a yamux frame of {length} bytes on stream {stream_id}, whose window has {state.receive_window} left"
            )
        else:
            state.receive_window -= length
        self._body_of = state
        self._body_left = length
        self._body_flags = flags
        if not length:
            self._end_frame()

    def _end_frame(self) -> None:
        """Process the flags of a data frame once its body is complete."""
        state, flags = self._body_of, self._body_flags
        self._body_of = None
        if state is not None and not state.gone and flags & (_FIN | _RST):
            self._ended(state, flags)

    def _window_update(self, flags: int, stream_id: int, delta: int) -> None:
        state = self._streams.get(stream_id)
        if flags & _SYN:
            state = self._opened(stream_id)
        if state is None:
            return
        if delta:
            state.send_window += delta
            self._report(WindowOpened(stream_id))
        if flags & (_FIN | _RST):
            self._ended(state, flags)

    def _opened(self, stream_id: int) -> StreamState | None:
        # The side that dialled uses odd numbers, the other one even ones, and 0 is the connection itself.
        if stream_id == 0 or (stream_id % 2 == 1) == self._initiator:
            raise FrameError(f"the peer opened yamux stream {stream_id}, a number that is not its to use")
        state = self._accept(stream_id)
        if state is not None:
            self._queue_reply(_HEADER.pack(_VERSION, _WINDOW_UPDATE, _ACK, stream_id, 0))
        return state

    def _ended(self, state: StreamState, flags: int) -> None:
        if flags & _RST:
            self._peer_reset(state)
        else:
            self._peer_closed(state)

    def _ping_frame(self, flags: int, value: int) -> None:
        if flags & _SYN:
            self._queue_reply(_HEADER.pack(_VERSION, _PING, _ACK, 0, value))

    # ---- outgoing frames

    def _next_outbound_id(self) -> int:
        stream_id = self._next_id
        self._next_id += 2
        return stream_id

    def _queue_open(self, state: StreamState) -> None:
        self._queue(_HEADER.pack(_VERSION, _WINDOW_UPDATE, _SYN, state.stream_id, 0))

    def send(self, stream_id: int, data: memoryview) -> int:
        """Queue as many bytes as the window of the peer has room for, and return their number."""
        state = self._writable(stream_id)
        total = min(len(data), state.send_window)
        at = 0
        while at < total:
            size = min(total - at, SEND_FRAME_BYTES)
            self._out.append(_HEADER.pack(_VERSION, _DATA, 0, state.stream_id, size))
            self._out.append(data[at : at + size])
            self.queued_bytes += 12 + size
            at += size
        state.send_window -= total
        return total

    def _queue_close(self, state: StreamState) -> None:
        self._queue(_HEADER.pack(_VERSION, _DATA, _FIN, state.stream_id, 0))

    def _queue_reset(self, state: StreamState) -> None:
        self._queue(_HEADER.pack(_VERSION, _WINDOW_UPDATE, _RST, state.stream_id, 0))

    def _queue_refusal(self, stream_id: int) -> None:
        self._queue_reply(_HEADER.pack(_VERSION, _WINDOW_UPDATE, _RST, stream_id, 0))

    def _give_credit(self, state: StreamState, size_bytes: int) -> None:
        state.credit += size_bytes
        # An update for each half window: the sender need not wait for a fast reader, and updates are rare.
        if state.credit >= RECEIVE_WINDOW_BYTES // 2 and not state.remote_closed:
            self._queue(_HEADER.pack(_VERSION, _WINDOW_UPDATE, 0, state.stream_id, state.credit))
            state.receive_window += state.credit
            state.credit = 0
