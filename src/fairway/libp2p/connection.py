"""`Connection`: a secured, multiplexed connection with one peer.

One task reads it and passes the muxer's events to the streams. Every stream that the peer opens has a task, which
negotiates the protocol and runs its handler. All these tasks end with the connection. A peer that breaks a protocol,
sends garbage or reaches a bound loses this connection, or one of its streams; other connections continue.

All frames of one turn of the event loop are encrypted and sent together, so that many small writes become a few large
ones. The queue of frames is bounded: a writer waits while it is full, so that a slow peer slows its writers down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from fairway.libp2p.errors import (
    ConnectionClosedError,
    Libp2pError,
    LimitError,
    NegotiationError,
    StreamResetError,
)
from fairway.libp2p.handlers import Handlers
from fairway.libp2p.limits import ByteBudget
from fairway.libp2p.link import Upgraded, negotiate
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.multistream import MultistreamDialer, MultistreamListener
from fairway.libp2p.mux.muxer import (
    MAX_OUTBOUND_STREAMS,
    DataReceived,
    MuxEvent,
    RemoteWriteClosed,
    StreamOpened,
    StreamWasReset,
    WindowOpened,
)
from fairway.libp2p.stream import Stream
from fairway.owned_tasks import OwnedTasks
from fairway.wire.varint import length_prefixed

_log: Final = logging.getLogger(__name__)

NEGOTIATION_TIMEOUT_S: Final = 10.0
"""Time for the peer to negotiate the protocol of a stream that it opened."""
SLOW_READER_TIMEOUT_S: Final = 10.0
"""Time for which a full mplex stream may stop the reading of its connection; after it the stream is reset."""
KEEPALIVE_INTERVAL_S: Final = 30.0
"""A peer that sends nothing for this time gets a ping (yamux); after as long again the connection ends."""
WRITE_STALL_TIMEOUT_S: Final = 30.0
"""A connection ends if the transport takes none of the waiting bytes for this time."""
_HANDLER_GRACE_S: Final = 1.0
_STREAMS_PER_TURN: Final = 32
"""Streams that a peer may open before other tasks run: one read may open, and reset, many thousands."""
SEND_AT_ONCE_BYTES: Final = 131_072
"""Bytes of queued frames from which on a writer sends them before the end of the turn."""
_NORMAL: Final = 0
_PROTOCOL_ERROR: Final = 1


class Connection:
    """A connection of a `Host`, which makes and runs it."""

    def __init__(
        self,
        upgraded: Upgraded,
        *,
        dialled: bool,
        remote_address: Multiaddr,
        handlers: Handlers,
        budget: ByteBudget,
    ) -> None:
        self.peer_id = upgraded.peer_id
        """The peer's id, which the handshake has proven."""
        self.dialled = dialled
        """Whether this node opened the connection."""
        self.remote_address = remote_address
        """The address that was dialled, or from which the peer connected."""
        self.muxer = upgraded.muxer.protocol
        """The name of the negotiated muxer."""
        self.mux = upgraded.muxer
        """The streams of the connection as a state machine."""
        self.stalled_since: float | None = None
        """Loop time since which the transport has taken nothing, or None."""
        self.link = upgraded.link
        """Carries the frames of the muxer."""
        self.link.transport.on_writable = self._writable
        self._loop = asyncio.get_running_loop()
        self._flush_is_scheduled = False
        self._writers: list[asyncio.Future[None]] = []
        self._handlers = handlers
        self._budget = budget
        self._unfinished_bytes = 0
        self._streams: dict[int, Stream] = {}
        self._tasks = OwnedTasks()
        self._runner: asyncio.Task[None] | None = None
        self._closing = self._pinged = False
        self._relieved = asyncio.Event()
        self._stream_ended = asyncio.Event()
        self._ended = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._seen_bytes = 0

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended or is being closed."""
        return self._closing or self._ended.is_set()

    @property
    def observed_address(self) -> Multiaddr:
        """The IP address and port from which the peer's packets come, also if a DNS name was dialled."""
        return self.link.transport.remote_address

    # ---- for the host

    async def run(self) -> None:
        """Read until the connection ends, then end everything that belongs to it. Raises only `CancelledError`."""
        self._runner = asyncio.current_task()
        self._timer = self._loop.call_later(KEEPALIVE_INTERVAL_S, self._tick)
        try:
            await self._read_on()
        except Libp2pError as error:
            _log.debug("connection with %s: %s", self.peer_id, error)
            self.mux.go_away(_PROTOCOL_ERROR)
            self.flush()
        finally:
            self._closing = True
            await self._end()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a task that ends with the connection at the latest; its errors are logged."""
        self._tasks.spawn(self._guarded(work), name)

    # ---- for the application

    async def open_stream(self, protocols: Sequence[str], timeout_s: float = 10.0) -> Stream:
        """Open a stream with the first of ``protocols`` that the peer supports.

        Raises:
            NegotiationError: the peer supports none of them, or did not answer in time.
            StreamResetError: the peer accepts no more streams now.
            LimitError: too many streams are open, and none of them ended in time.
            ConnectionClosedError: the connection has ended.

        """
        negotiation = MultistreamDialer(protocols)
        stream: Stream | None = None
        try:
            async with asyncio.timeout(timeout_s):
                stream = await self._begin_stream()
                stream.protocol = await negotiate(stream, negotiation)
                return stream
        except TimeoutError as error:
            if stream is None:
                raise LimitError(
                    f"{MAX_OUTBOUND_STREAMS} streams to {self.peer_id} are open, and none ended within "
                    f"{timeout_s:g} s: close some first"
                ) from error
            raise NegotiationError(
                f"{self.peer_id} did not agree on {', '.join(protocols)} within {timeout_s:g} s"
            ) from error
        finally:
            if stream is not None and not stream.protocol:
                await stream.reset()

    async def request(
        self, protocol: str, request: bytes, *, max_response_bytes: int, is_announced: bool
    ) -> bytes | None:
        """Send one message on a new stream and return the one that answers it; None if the peer ends the stream first.

        If the peer has announced the protocol, its proposal, the request and the end of the writing are sent in one
        piece, so that an exchange takes one round trip. The caller sets the time limit.

        Raises:
            NegotiationError: the peer does not support the protocol.
            StreamResetError: the peer accepts no more streams now, or the stream or connection ended.
            FrameError: the response is longer than ``max_response_bytes``, or incomplete.
            ConnectionClosedError: the connection has ended.

        """
        negotiation = MultistreamDialer([protocol])
        async with await self._begin_stream() as stream:
            if not is_announced:
                stream.protocol = await negotiate(stream, negotiation)
            await stream.write(negotiation.data_to_send() + length_prefixed(request))
            await stream.close_write()
            if is_announced:
                stream.protocol = await negotiate(stream, negotiation)
            return await stream.read_frame(max_response_bytes)

    async def close(self) -> None:
        """End the connection with its streams and tasks."""
        if not self._closing:
            self._closing = True
            self.mux.go_away(_NORMAL)
            self.flush()
            self._fail_streams()
            await self.link.transport.close()
        # A handler that closes its own connection cannot wait for its own end.
        current = asyncio.current_task()
        if current is not self._runner and current not in self._tasks:
            await self._ended.wait()

    async def wait_closed(self) -> None:
        """Wait until the connection and its streams and tasks have ended."""
        await self._ended.wait()

    def streams(self) -> tuple[Stream, ...]:
        """Return the open streams, opened by either side."""
        return tuple(self._streams.values())

    @property
    def received_bytes(self) -> int:
        """Encrypted bytes from the network."""
        return self.link.received_bytes

    @property
    def sent_bytes(self) -> int:
        """Encrypted bytes to the network."""
        return self.link.sent_bytes

    # ---- for the streams

    @property
    def is_full(self) -> bool:
        """Whether a writer must wait."""
        return self.mux.queued_bytes >= SEND_AT_ONCE_BYTES or not self.link.transport.can_write

    def schedule_flush(self) -> None:
        """Send the queued frames at the end of this turn of the event loop."""
        if not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self._loop.call_soon(self.flush)

    async def drain(self) -> None:
        """Wait until the transport has room, or for a turn of the event loop; then check `is_full` again."""
        self.flush()
        if self.is_full and not self.link.transport.is_closed:
            writer = self._loop.create_future()
            self._writers.append(writer)
            await writer
        else:
            await asyncio.sleep(0)

    def consumed(self, stream_id: int, size_bytes: int) -> None:
        """Note that the application has read bytes of a stream."""
        self.mux.consumed(stream_id, size_bytes)
        if self.mux.queued_bytes:
            self.schedule_flush()
        self.stream_relieved()

    def wake_writers(self) -> None:
        """Wake all writers: the transport has room, or it or a stream has ended."""
        for writer in self._writers:
            if not writer.done():
                writer.set_result(None)
        self._writers.clear()

    def stream_relieved(self) -> None:
        """Note that a stream holds fewer bytes, so that a waiting reading task continues."""
        self._recount()
        self._relieved.set()

    def message_grew(self, size_bytes: int) -> None:
        """Note that a stream holds ``size_bytes`` more of an incomplete message; a negative number means fewer."""
        self._unfinished_bytes += size_bytes
        self._recount()
        if size_bytes > 0:
            self._budget.enforce()

    def forget(self, stream_id: int) -> None:
        """Remove a stream that has ended in both directions."""
        if self._streams.pop(stream_id, None) is not None:
            self._stream_ended.set()

    # ---- for the budget of all connections

    def free_bytes(self) -> None:
        """Reset the stream that holds the most bytes, because all connections together hold too many."""
        stream_id, stream = max(self._streams.items(), key=lambda one: one[1].held_bytes, default=(0, None))
        if stream is not None and stream.held_bytes:
            self.mux.reset(stream_id)
            self.schedule_flush()
            self.forget(stream_id)
            stream.fail(StreamResetError("all peers together sent more than this host may hold, and this stream most"))
            self.stream_relieved()

    # ---- inside

    def flush(self) -> None:
        """Send the queued frames now, or as soon as the transport has room."""
        self._flush_is_scheduled = False
        transport = self.link.transport
        if transport.is_closed:
            self.mux.data_to_send()
        elif transport.can_write:
            if self.mux.queued_bytes:
                self.link.send(self.mux.data_to_send())
        elif self.stalled_since is None:
            self.stalled_since = self._loop.time()

    def _writable(self) -> None:
        self.stalled_since = None
        self.flush()
        self.wake_writers()
        if self.link.transport.is_closed:
            # The reader of the connection may wait until a full stream is read; wake it so that it ends.
            self.stream_relieved()

    async def _read_on(self) -> None:
        mux, link = self.mux, self.link
        while data := await link.read():
            opened = 0
            for event in mux.receive_data(data):
                self._handle(event)
                if isinstance(event, StreamOpened):
                    opened += 1
                    if opened % _STREAMS_PER_TURN == 0:
                        await asyncio.sleep(0)
            self._recount()
            self._budget.enforce()
            if mux.queued_bytes:
                self.schedule_flush()
            while (stream_id := mux.overfull()) is not None and not link.transport.is_closed:
                await self._wait_for_reader(stream_id)

    def _handle(self, event: MuxEvent) -> None:
        match event:
            case DataReceived(stream_id, data):
                if (stream := self._streams.get(stream_id)) is not None:
                    stream.data_arrived(data)
            case WindowOpened(stream_id):
                if (stream := self._streams.get(stream_id)) is not None:
                    stream.window_opened()
            case RemoteWriteClosed(stream_id):
                if (stream := self._streams.get(stream_id)) is not None:
                    stream.peer_ended()
            case StreamOpened(stream_id):
                stream = self._streams[stream_id] = Stream(self, stream_id, inbound=True)
                self.spawn(self._serve(stream), f"stream {stream_id} of {self.peer_id}")
            case StreamWasReset(stream_id, by_peer):
                self._stream_ended.set()
                if (stream := self._streams.pop(stream_id, None)) is not None:
                    stream.fail(StreamResetError(_reset_reason(by_peer)), keep_what_is_whole=by_peer)

    def _recount(self) -> None:
        """Report to the budget of the host how many bytes this connection holds."""
        if not self._ended.is_set():
            self._budget.hold(self, self.mux.buffered_bytes + self._unfinished_bytes)

    async def _wait_for_reader(self, stream_id: int) -> None:
        """Stop reading the network until a full stream is read; reset the stream after `SLOW_READER_TIMEOUT_S`."""
        self._relieved.clear()
        try:
            async with asyncio.timeout(SLOW_READER_TIMEOUT_S):
                while self.mux.overfull() == stream_id and not self.link.transport.is_closed:
                    await self._relieved.wait()
                    self._relieved.clear()
        except TimeoutError:
            self.mux.reset(stream_id)
            self.schedule_flush()
            if (stream := self._streams.pop(stream_id, None)) is not None:
                reason = f"the stream was not read for {SLOW_READER_TIMEOUT_S:g} s, and blocked others"
                stream.fail(StreamResetError(reason))
            self._recount()

    async def _begin_stream(self) -> Stream:
        while not self.is_closed:
            if not self.mux.is_full:
                stream_id = self.mux.open_stream()
                stream = self._streams[stream_id] = Stream(self, stream_id, inbound=False)
                self.schedule_flush()
                return stream
            self._stream_ended.clear()
            await self._stream_ended.wait()
        raise ConnectionClosedError(f"the connection with {self.peer_id} has ended: connect again")

    async def _serve(self, stream: Stream) -> None:
        try:
            too_late = self._loop.call_later(NEGOTIATION_TIMEOUT_S, stream.reset_now)
            try:
                stream.protocol = await negotiate(stream, MultistreamListener(self._handlers.serves))
            finally:
                too_late.cancel()
            handler = self._handlers.begin(stream.protocol, self.peer_id)
            try:
                await handler(stream)
            finally:
                self._handlers.end(stream.protocol, self.peer_id)
            await stream.close()
        except BaseException:
            # After any error the stream is reset, so that the peer stops using it.
            await stream.reset()
            raise

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (Libp2pError, TimeoutError) as error:
            _log.debug("with %s: %s", self.peer_id, error)
        except Exception:  # noqa: BLE001  whatever it is, it belongs to one stream of one peer
            # A fault in a handler ends only its stream.
            _log.debug("with %s: a handler failed", self.peer_id, exc_info=True)

    async def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fail_streams()
        try:
            await self.link.transport.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(_HANDLER_GRACE_S):
                    await self._tasks.wait()
        finally:
            self.link.transport.abort()
            await self._tasks.close()
            self._budget.hold(self, 0)
            self._ended.set()

    def _fail_streams(self) -> None:
        """Fail all streams and wake all tasks that wait for a stream or for room: the connection has ended."""
        fault = StreamResetError(f"the connection with {self.peer_id} has ended")
        streams = list(self._streams.values())
        self._streams.clear()
        for stream in streams:
            stream.fail(fault, keep_what_is_whole=True)
        self.wake_writers()
        self._stream_ended.set()

    def _tick(self) -> None:
        """End the connection if the peer reads nothing or does not answer a ping; called every interval."""
        self._timer = self._loop.call_later(KEEPALIVE_INTERVAL_S, self._tick)
        stalled = self.stalled_since
        silent = self.link.received_bytes == self._seen_bytes
        self._seen_bytes = self.link.received_bytes
        if stalled is not None and self._loop.time() - stalled > WRITE_STALL_TIMEOUT_S:
            _log.debug("%s takes nothing: disconnected", self.peer_id)
            self.link.transport.abort()
        elif not silent:
            self._pinged = False
        elif self._pinged:
            _log.debug("%s does not answer a ping: disconnected", self.peer_id)
            self.link.transport.abort()
        else:
            # mplex has no ping: only TCP's keep-alive detects a vanished peer.
            self._pinged = self.mux.ping(self._seen_bytes & 0xFFFFFFFF)
            self.schedule_flush()

    def __repr__(self) -> str:
        return f"<Connection with {self.peer_id} at {self.remote_address} over {self.muxer}>"


def _reset_reason(by_peer: bool) -> str:
    return "the peer reset the stream" if by_peer else "more bytes waited unread than a connection may hold"
