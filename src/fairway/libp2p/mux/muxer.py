"""`Muxer`: the common part of the two muxers: streams, bounds, events, and frames that wait to be sent.

A muxer does no I/O: ``receive_data`` takes bytes and returns events, calls such as ``send`` queue frames, and
``data_to_send`` returns these. It reads no clock.

Invariant: a muxer holds at most one partial frame header, one small record for each open stream, and the number of
unconsumed bytes. The record of a stream is removed when both halves are closed and read, or on a reset. A frame for a
stream that has ended is skipped: the peer may have sent it before it learned of the end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Final

from msgspec import Struct

from fairway.libp2p.errors import FrameError, LimitError, StreamClosedError


class StreamOpened(Struct, frozen=True):
    """The peer opened a stream, which the muxer has accepted."""

    stream_id: int


class DataReceived(Struct, frozen=True):
    """Bytes arrived on a stream; the application calls ``consumed`` once it has read them."""

    stream_id: int
    data: bytes


class WindowOpened(Struct, frozen=True):
    """The peer allows more bytes on a stream (yamux only)."""

    stream_id: int


class RemoteWriteClosed(Struct, frozen=True):
    """The peer has ended its writing on a stream; this side may still write."""

    stream_id: int


class StreamWasReset(Struct, frozen=True):
    """A stream has ended in both directions, and the muxer has removed it."""

    stream_id: int
    by_peer: bool
    """False if the muxer reset it because a bound was reached."""


MuxEvent = StreamOpened | DataReceived | WindowOpened | RemoteWriteClosed | StreamWasReset


MAX_INBOUND_STREAMS: Final = 512
"""Open streams of the peer; one more is reset."""
MAX_OUTBOUND_STREAMS: Final = 128
"""Open streams of this side; one more waits until one of them ends. nim-libp2p ends an mplex connection with more than
200; rust-libp2p refuses more than 128."""
SEND_FRAME_BYTES: Final = 65_536
"""Longest frame that is sent; longer data are split, so that streams take turns."""
MAX_BUFFERED_BYTES: Final = 16_777_216
"""Unconsumed bytes of all streams of a connection; beyond it the fullest stream is reset."""
MAX_QUEUED_REPLIES: Final = 16_384
"""Answers (to pings, to refused streams) that wait because the peer does not read; more raise `FrameError`."""
RECEIVE_WINDOW_BYTES: Final = 262_144
"""Unconsumed bytes that the peer may send on a yamux stream: the initial window of the specification."""


INITIAL_SEND_WINDOW_BYTES: Final = 256_000
"""Bytes that are sent on a yamux stream before the peer's first window update. The specification grants 262,144;
nim-libp2p up to 2.2.1 grants 256,000, and ends the connection (GO_AWAY 1) if more arrive."""


class StreamState:
    """The state of one stream."""

    __slots__ = (
        "buffered",
        "credit",
        "gone",
        "local_closed",
        "outbound",
        "reading",
        "receive_window",
        "remote_closed",
        "send_window",
        "stream_id",
    )

    def __init__(self, stream_id: int, *, outbound: bool) -> None:
        self.stream_id = stream_id
        self.outbound = outbound
        self.send_window = INITIAL_SEND_WINDOW_BYTES
        self.receive_window = RECEIVE_WINDOW_BYTES
        self.credit = 0
        self.buffered = 0
        self.reading = True
        self.local_closed = False
        self.remote_closed = False
        self.gone = False


class Muxer(ABC):
    """The streams of one connection; `Yamux` and `Mplex` add the frames."""

    protocol: ClassVar[str]
    """The name under which it is negotiated."""

    def __init__(self, *, initiator: bool) -> None:
        """Begin a connection; ``initiator`` says whether this side dialled."""
        self._initiator = initiator
        self._streams: dict[int, StreamState] = {}
        self.inbound_streams = 0
        """Streams that the peer opened and that are still in use."""
        self.outbound_streams = 0
        """Streams that this side opened and that are still in use."""
        self.buffered_bytes = 0
        """Received bytes that are not consumed."""
        self._out: list[bytes | memoryview] = []
        self.queued_bytes = 0
        """Size of the frames that wait for `data_to_send`."""
        self._replies = 0
        self._events: list[MuxEvent] = []
        self._arriving: StreamState | None = None
        self._chunks: list[memoryview] = []
        self._partial = b""
        self._body_left = 0
        self._body_of: StreamState | None = None

    # ---- for the application

    @property
    def is_full(self) -> bool:
        """Whether this side has as many open streams as it may have."""
        return self.outbound_streams >= MAX_OUTBOUND_STREAMS

    def open_stream(self) -> int:
        """Open a stream and return its number.

        Raises:
            LimitError: too many are open.

        """
        if self.is_full:
            raise LimitError(
                f"{self.outbound_streams} streams are open, and a connection has at most {MAX_OUTBOUND_STREAMS}: "
                "close some first"
            )
        state = self._begin(self._next_outbound_id(), outbound=True)
        self._queue_open(state)
        return state.stream_id

    @abstractmethod
    def send(self, stream_id: int, data: memoryview) -> int:
        """Queue as many bytes as the peer accepts now, and return their number.

        Raises:
            StreamClosedError: this side has closed its half, or the stream has ended.

        """

    def close_write(self, stream_id: int) -> None:
        """End the writing of this side, unless it has ended already."""
        state = self._streams.get(stream_id)
        if state is not None and not state.local_closed:
            state.local_closed = True
            self._queue_close(state)
            self._release_if_done(state)

    def stop_reading(self, stream_id: int) -> None:
        """Drop unread and future bytes of a stream, because it has no reader."""
        state = self._streams.get(stream_id)
        if state is not None:
            state.reading = False
            if state.buffered:
                self.consumed(stream_id, state.buffered)

    def reset(self, stream_id: int) -> None:
        """End a stream in both directions at once, unless it has ended already."""
        state = self._streams.get(stream_id)
        if state is not None:
            self._queue_reset(state)
            self._release(state)

    def consumed(self, stream_id: int, size_bytes: int) -> None:
        """Note that the application has read bytes of a stream: the peer may send as many again."""
        state = self._streams.get(stream_id)
        if state is not None:
            state.buffered -= size_bytes
            self.buffered_bytes -= size_bytes
            self._give_credit(state, size_bytes)
            self._release_if_done(state)

    def overfull(self) -> int | None:
        """Return a stream whose bytes must be consumed before the connection is read again; None if there is none."""
        return None

    def data_to_send(self) -> bytes:
        """Remove and return all frames that wait."""
        data = b"".join(self._out)
        self._out.clear()
        self.queued_bytes = 0
        self._replies = 0
        return data

    @abstractmethod
    def ping(self, value: int) -> bool:
        """Queue a ping with a value below 2**32, which the peer sends back; return False if there is no ping."""

    @abstractmethod
    def go_away(self, code: int) -> None:
        """Queue the announcement that this side ends the connection, if there is one."""

    # ---- frames of the peer

    def receive_data(self, data: bytes) -> list[MuxEvent]:
        """Process received bytes, cut anywhere, and return the events.

        Raises:
            FrameError: the peer broke the protocol; the connection must be closed.

        """
        if self._partial:
            data = self._partial + data
            self._partial = b""
        view = memoryview(data)
        end = len(data)
        at = 0
        while at < end:
            if self._body_left:
                size = min(self._body_left, end - at)
                if self._body_of is not None:
                    self._collect(self._body_of, view[at : at + size])
                at += size
                self._body_left -= size
                if not self._body_left:
                    self._end_frame()
                continue
            begun = self._begin_frame(data, at)
            if begun is None:
                self._partial = bytes(view[at:])
                break
            at = begun
        self._deliver()
        events, self._events = self._events, []
        return events

    # ---- for Yamux and Mplex to add

    @abstractmethod
    def _begin_frame(self, data: bytes, at: int) -> int | None:
        """Process the header of a frame, and return where its body begins; None if the header is incomplete."""

    def _end_frame(self) -> None:
        """Note that the body of a frame is complete."""
        self._body_of = None

    @abstractmethod
    def _next_outbound_id(self) -> int: ...

    @abstractmethod
    def _queue_open(self, state: StreamState) -> None: ...

    @abstractmethod
    def _queue_close(self, state: StreamState) -> None: ...

    @abstractmethod
    def _queue_reset(self, state: StreamState) -> None: ...

    @abstractmethod
    def _queue_refusal(self, stream_id: int) -> None: ...

    @abstractmethod
    def _give_credit(self, state: StreamState, size_bytes: int) -> None: ...

    # ---- for both muxers

    def _writable(self, stream_id: int) -> StreamState:
        state = self._streams.get(stream_id)
        if state is None or state.local_closed:
            raise StreamClosedError(f"stream {stream_id} is closed for writing: open another one")
        return state

    def _queue(self, frame: bytes | memoryview) -> None:
        self._out.append(frame)
        self.queued_bytes += len(frame)

    def _queue_reply(self, frame: bytes) -> None:
        """Queue an answer, within a bound, because a peer can send requests without reading the answers."""
        self._replies += 1
        if self._replies > MAX_QUEUED_REPLIES:
            raise FrameError(f"more than {MAX_QUEUED_REPLIES} answers wait for a peer that asks and does not read")
        self._queue(frame)

    def _begin(self, stream_id: int, *, outbound: bool) -> StreamState:
        state = self._streams[stream_id] = StreamState(stream_id, outbound=outbound)
        if outbound:
            self.outbound_streams += 1
        else:
            self.inbound_streams += 1
        return state

    def _accept(self, stream_id: int) -> StreamState | None:
        """Begin a stream that the peer opened, unless it has too many."""
        if stream_id in self._streams:
            raise FrameError(f"the peer opened stream {stream_id} twice")
        if self.inbound_streams >= MAX_INBOUND_STREAMS:
            self._queue_refusal(stream_id)
            return None
        state = self._begin(stream_id, outbound=False)
        self._report(StreamOpened(stream_id))
        return state

    def _release(self, state: StreamState) -> None:
        if state.gone:
            return
        state.gone = True
        del self._streams[state.stream_id]
        self.buffered_bytes -= state.buffered
        state.buffered = 0
        if state.outbound:
            self.outbound_streams -= 1
        else:
            self.inbound_streams -= 1

    def _release_if_done(self, state: StreamState) -> None:
        if state.local_closed and state.remote_closed and not state.buffered:
            self._release(state)

    def _collect(self, state: StreamState, chunk: memoryview) -> None:
        """Add a piece of a frame's body; successive pieces of one stream become one event."""
        if state.gone:
            return
        if not state.reading:
            self._give_credit(state, len(chunk))
            return
        if self._arriving is not state:
            self._deliver()
            self._arriving = state
        self._chunks.append(chunk)

    def _deliver(self) -> None:
        """Add an event with the collected bytes."""
        state = self._arriving
        if state is None:
            return
        self._arriving = None
        data = b"".join(self._chunks)
        self._chunks.clear()
        state.buffered += len(data)
        self.buffered_bytes += len(data)
        self._events.append(DataReceived(state.stream_id, data))
        if self.buffered_bytes > MAX_BUFFERED_BYTES:
            self._reset_the_fullest()

    def _reset_the_fullest(self) -> None:
        state = max(self._streams.values(), key=lambda stream: stream.buffered)
        self._queue_reset(state)
        self._release(state)
        self._events.append(StreamWasReset(state.stream_id, by_peer=False))

    def _report(self, event: MuxEvent) -> None:
        self._deliver()
        self._events.append(event)

    def _peer_closed(self, state: StreamState) -> None:
        if not state.remote_closed:
            self._report(RemoteWriteClosed(state.stream_id))
            state.remote_closed = True
            self._release_if_done(state)

    def _peer_reset(self, state: StreamState) -> None:
        self._deliver()
        if not state.gone:
            self._release(state)
            self._events.append(StreamWasReset(state.stream_id, by_peer=True))
