"""`Stream`: one stream of a connection, as protocols use it.

Both directions have back-pressure: `Stream.write` returns when the peer's window and the transport have taken the
bytes. Unread bytes use up the window of the peer, so that the peer stops sending. After a failure every call raises the
error; no call waits for a peer that has disconnected.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Protocol, Self

from fairway.errors import copy_of
from fairway.libp2p.decoding import decode_uvarint
from fairway.libp2p.errors import FrameError, StreamClosedError, StreamError, StreamResetError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.mux.muxer import Muxer
from fairway.libp2p.peer_id import PeerId
from fairway.wire.varint import encode_uvarint

CLOSE_LINGER_S: Final = 10.0
"""Time for the peer to close its half of a stream that this host closed; after it the stream is reset."""
_COMPACT_AT_BYTES: Final = 65_536


class ReceiveBuffer:
    """A queue of bytes. A piece added to an empty queue is not copied; further pieces are copied together."""

    __slots__ = ("data", "size", "start")

    def __init__(self) -> None:
        self.data: bytes | bytearray = b""
        """The bytes; those before ``start`` were taken already."""
        self.start = 0
        """Position of the first waiting byte in ``data``."""
        self.size = 0
        """Number of waiting bytes."""

    def append(self, piece: bytes) -> None:
        """Add received bytes at the end."""
        if not self.size:
            self.data = piece
            self.start = 0
        else:
            if not isinstance(self.data, bytearray):
                self.data = bytearray(memoryview(self.data)[self.start :])
                self.start = 0
            self.data += piece
        self.size += len(piece)

    def peek(self) -> bytes:
        """Return all waiting bytes, which stay."""
        return self._piece(self.start, self.start + self.size)

    def take(self, size: int, skip: int = 0) -> bytes:
        """Remove ``size`` bytes, which must have arrived, and return them without the first ``skip``."""
        first, self.start = self.start, self.start + size
        self.size -= size
        taken = self._piece(first + skip, self.start)
        if not self.size:
            self.data = b""
            self.start = 0
        elif self.start >= _COMPACT_AT_BYTES and isinstance(self.data, bytearray):
            del self.data[: self.start]
            self.start = 0
        return taken

    def _piece(self, first: int, end: int) -> bytes:
        """Return bytes of the queue, copied at most once."""
        if isinstance(self.data, bytes):
            return self.data[first:end]
        with memoryview(self.data) as view:
            return bytes(view[first:end])

    def clear(self) -> None:
        """Remove all bytes."""
        self.data = b""
        self.start = 0
        self.size = 0


_PIECE_BYTES: Final = 131_072
_REPORT_BYTES: Final = 32_768
_PART_BYTES: Final = 16_384
"""Smallest part in which an incomplete message is held, because each part costs the memory of an object as well."""


class StreamOwner(Protocol):
    """The connection that a stream belongs to."""

    peer_id: PeerId
    mux: Muxer

    @property
    def observed_address(self) -> Multiaddr:
        """The address from which the peer's packets come."""

    @property
    def is_full(self) -> bool:
        """Whether a writer must wait."""

    def schedule_flush(self) -> None:
        """Send the queued frames at the end of this turn of the event loop."""

    async def drain(self) -> None:
        """Wait until the transport has room, or for a turn of the event loop; then check `is_full` again."""

    def consumed(self, stream_id: int, size_bytes: int) -> None:
        """Note that the application has read bytes of a stream."""

    def wake_writers(self) -> None:
        """Wake all writers: a stream has ended."""

    def forget(self, stream_id: int) -> None:
        """Remove a stream that has ended in both directions."""

    def stream_relieved(self) -> None:
        """Note that a stream holds fewer bytes."""

    def message_grew(self, size_bytes: int) -> None:
        """Note that a stream holds ``size_bytes`` more of an incomplete message; a negative number means fewer."""


class Stream:
    """A bidirectional stream; one task reads and any number write. Made by a connection or given to a handler."""

    def __init__(self, connection: StreamOwner, stream_id: int, *, inbound: bool) -> None:
        self.connection = connection
        self.peer_id = connection.peer_id
        self.inbound = inbound
        """Whether the peer opened it."""
        self.protocol = ""
        """The protocol, once negotiated."""
        self._mux = connection.mux
        self._id = stream_id
        self._buffer = ReceiveBuffer()
        self._taken = 0
        self._unfinished_bytes = 0
        self._fault: StreamError | None = None
        self._is_whole = False
        self._peer_closed = False
        self._write_closed = False
        self._closed = False
        self._reader: asyncio.Future[None] | None = None
        self._window: asyncio.Future[None] | None = None
        self._writing = asyncio.Lock()
        self._writers = 0  # writers that hold or await the lock
        self._linger: asyncio.TimerHandle | None = None

    # ---- reading

    async def read(self, max_bytes: int = 65_536) -> bytes:
        """Return at least one byte, or ``b""`` when the peer has ended its writing.

        Raises:
            StreamResetError: the stream was reset, or the connection has ended.

        """
        return self._take(min(max_bytes, self._buffer.size)) if await self._is_readable() else b""

    async def peek(self) -> bytes:
        """Return all bytes that have arrived, at least one, which stay unread; ``b""`` and errors as for `read`."""
        return self._buffer.peek() if await self._is_readable() else b""

    def skip(self, size_bytes: int) -> None:
        """Read as many bytes of those that `peek` returned."""
        self._take(size_bytes, size_bytes)

    async def read_exactly(self, size: int) -> bytes:
        """Return ``size`` bytes.

        Raises:
            FrameError: the peer ended its writing before.
            StreamResetError: the stream was reset, or the connection has ended.

        """
        if self._buffer.size >= size:
            return self._take(size)
        parts = []
        missing = size
        try:
            while missing:
                while self._buffer.size < min(missing, _PART_BYTES):
                    if self._ended():
                        here = size - missing + self._buffer.size
                        raise FrameError(f"the peer ended the stream after {here} of {size} bytes")
                    await self._arrival()
                part = self._take(min(missing, self._buffer.size))
                parts.append(part)
                missing -= len(part)
                if missing:
                    self._message_grew(len(part))
            return b"".join(parts)
        finally:
            self._message_grew(-self._unfinished_bytes)
            # The traceback of an error keeps this frame alive until garbage collection; release the parts now.
            parts.clear()

    async def read_frame(self, max_bytes: int) -> bytes | None:
        """Return the next message, which follows its length (an unsigned varint); None if the stream ends before it.

        Raises:
            FrameTooLongError: the message is longer than ``max_bytes``; the next read returns its length.
            FrameError: its length is no varint, or the stream ends within it.
            StreamResetError: the stream was reset, or the connection has ended.

        """
        while True:
            prefix = decode_uvarint(self._buffer.data, self._buffer.start, max_value=max_bytes)
            if prefix is not None:
                size, body = prefix
                prefix_bytes = body - self._buffer.start
                if self._buffer.size - prefix_bytes >= size:
                    return self._take(prefix_bytes + size, skip=prefix_bytes)
                self._take(prefix_bytes)
                return await self.read_exactly(size)
            if self._ended():
                if self._buffer.size:
                    raise FrameError("the peer ended the stream within the length of a message")
                return None
            await self._arrival()

    # ---- writing

    async def write(self, data: bytes, timeout_s: float | None = None) -> None:
        """Send ``data``; return when the peer's window and the transport have taken it. Writers wait for each other.

        Raises:
            TimeoutError: they did not take it in time.
            StreamClosedError: this side was closed.
            StreamResetError: the stream was reset, or the connection has ended.

        """
        view = memoryview(data if isinstance(data, bytes) else bytes(data))
        if not self._writers:
            view = self._send(view)
            if not view.nbytes and not self.connection.is_full:
                return
        self._writers += 1
        try:
            async with asyncio.timeout(timeout_s), self._writing:
                while (view := self._send(view)).nbytes:
                    await (self.connection.drain() if self.connection.is_full else self._window_opening())
                while self.connection.is_full and self._fault is None:
                    await self.connection.drain()
        finally:
            self._writers -= 1

    async def write_frame(self, data: bytes) -> None:
        """Send one message behind its length; errors as for `write`."""
        await self.write(encode_uvarint(len(data)) + data)

    # ---- ending

    async def close_write(self) -> None:
        """End the writing of this side; the peer may still write."""
        if self._writers:
            async with self._writing:
                self._end_writing()
        else:
            self._end_writing()

    async def close(self) -> None:
        """End the writing and reading of this side.

        If a writer does not finish, or the peer does not end its writing, within `CLOSE_LINGER_S`, the stream is
        reset.
        """
        if self._closed:
            return
        self._closed = True
        self._wake_reader()
        if self._writers:
            try:
                async with asyncio.timeout(CLOSE_LINGER_S):
                    await self.close_write()
            except TimeoutError:
                self.reset_now()
        else:
            self._end_writing()
        if self._fault is not None:
            return
        self._buffer.clear()
        self._taken = 0
        self._mux.stop_reading(self._id)
        self.connection.schedule_flush()
        self.connection.stream_relieved()
        self._forget_if_done()
        if not self._peer_closed:
            loop = asyncio.get_running_loop()
            self._linger = loop.call_later(CLOSE_LINGER_S, self.reset_now)

    async def reset(self) -> None:
        """End the stream in both directions at once; bytes under way are lost."""
        self.reset_now()

    def reset_now(self) -> None:
        """Do the same as `reset`, outside of a coroutine."""
        self._is_whole = False
        if self._fault is None and not (self._peer_closed and self._write_closed and self._closed):
            self._mux.reset(self._id)
            self.connection.schedule_flush()
            self.connection.forget(self._id)
            self.connection.stream_relieved()
        self.fail(StreamResetError("the stream was reset by this side"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self.reset()

    # ---- for the connection

    @property
    def held_bytes(self) -> int:
        """Received bytes that are unread or belong to an incomplete message."""
        return self._buffer.size + self._unfinished_bytes

    def data_arrived(self, data: bytes) -> None:
        """Add received bytes."""
        if not self._closed:
            self._buffer.append(data)
            self._wake_reader()

    def peer_ended(self) -> None:
        """Note that the peer has ended its writing."""
        self._peer_closed = True
        self._stop_lingering()
        self._wake_reader()
        self._forget_if_done()

    def window_opened(self) -> None:
        """Wake the writer: the peer accepts more bytes."""
        if self._window is not None and not self._window.done():
            self._window.set_result(None)

    def fail(self, fault: StreamError, *, keep_what_is_whole: bool = False) -> None:
        """End the stream with an error, which all waiting calls raise.

        ``keep_what_is_whole``: if the peer had ended its writing before, its bytes can still be read.
        """
        if self._fault is None:
            self._fault = fault
            self._is_whole = keep_what_is_whole and self._peer_closed and not self._closed
        self._stop_lingering()
        self._message_grew(-self._unfinished_bytes)
        if not self._is_whole:
            self._buffer.clear()
        self._wake_reader()
        self.window_opened()
        if self._writers:
            self.connection.wake_writers()

    def __repr__(self) -> str:
        return f"<Stream {self._id} {self.protocol or 'unnegotiated'} with {self.peer_id}>"

    # ---- inside

    def _take(self, size: int, skip: int = 0) -> bytes:
        data = self._buffer.take(size, skip)
        # Each report costs a frame, so several reads are reported together.
        self._taken += size
        if self._taken >= _REPORT_BYTES or not self._buffer.size:
            taken, self._taken = self._taken, 0
            self.connection.consumed(self._id, taken)
            self._forget_if_done()
        return data

    def _message_grew(self, size_bytes: int) -> None:
        if size_bytes:
            self._unfinished_bytes += size_bytes
            self.connection.message_grew(size_bytes)

    def _forget_if_done(self) -> None:
        """Remove the stream from the connection if it has ended in both directions."""
        if self._peer_closed and self._write_closed and not self._buffer.size:
            self.connection.forget(self._id)

    def _ended(self) -> bool:
        if self._fault is not None and not self._is_whole:
            raise copy_of(self._fault)
        if self._closed:
            raise StreamClosedError("this side closed the stream: nothing is read from it any more")
        return self._peer_closed

    async def _is_readable(self) -> bool:
        """Wait for a byte, and return True; False if the peer has ended its writing."""
        while not self._buffer.size:
            if self._ended():
                return False
            await self._arrival()
        return True

    async def _arrival(self) -> None:
        if self._reader is not None:
            raise RuntimeError(f"{self!r} is being read by another task already: one task reads a stream")
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    async def _window_opening(self) -> None:
        self._window = asyncio.get_running_loop().create_future()
        try:
            await self._window
        finally:
            self._window = None

    def _send(self, view: memoryview) -> memoryview:
        """Queue what the connection and the peer's window have room for now, and return the rest."""
        taken = 1
        while view.nbytes and taken:
            self._check_writable()
            taken = 0 if self.connection.is_full else self._mux.send(self._id, view[:_PIECE_BYTES])
            if taken:
                self.connection.schedule_flush()
                view = view[taken:]
        return view

    def _end_writing(self) -> None:
        if not self._write_closed and self._fault is None:
            self._write_closed = True
            self._mux.close_write(self._id)
            self.connection.schedule_flush()
            self._forget_if_done()

    def _check_writable(self) -> None:
        if self._fault is not None:
            raise copy_of(self._fault)
        if self._write_closed:
            raise StreamClosedError("this side closed the stream for writing: open another one")

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _stop_lingering(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
