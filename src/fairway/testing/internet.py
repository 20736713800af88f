"""`SimulatedInternet`: TCP between the machines of a `VirtualLoop`, under virtual time.

asyncio's ``create_connection`` and ``create_server`` work in such a loop as they do over sockets. Bytes arrive in
order, after a delay, perhaps in pieces; a reader that pauses slows its writer down. The seed draws the delays.

A test causes the faults: a split network (`part`), broken connections (`reset`), killed programs (`kill`), and machines
that lose their power (`power_off`). While a link is silent, sent bytes wait and arrive later, as TCP retransmits them,
unless one end has given up.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextvars import Context, copy_context
from enum import Enum
from itertools import count
from typing import Any, Final

LOOPBACK: Final = "127.0.0.1"
_LOCAL_NAMES: Final = frozenset({"127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "", None})  # noqa: S104 - read, not bound
_WINDOW_BYTES: Final = 262_144
"""Bytes in flight or unread in one direction; further ones wait at the sender."""
_PACKET_BYTES: Final = 65_536
"""Largest number of bytes that arrive at once."""
_HIGH_BYTES: Final = 65_536
_FIRST_PORT: Final = 49_152
_REPEATED_AFTER_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Pauses between attempts to connect; then the connection fails."""


class _Signal(Enum):
    FIN = "the sender has ended"
    RST = "the connection is broken"


_Packet = bytes | _Signal


class SimulatedInternet:
    """The network of a `VirtualLoop`, as ``loop.internet``; machines are known by their addresses."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seed: int = 0) -> None:
        self.random = random.Random(f"internet/{seed}")  # noqa: S311 - reproducible, not secret
        """Draws delays and pieces."""
        self.min_delay_ms = 10
        """Shortest delay of a packet between two machines; within a machine there is none."""
        self.max_delay_ms = 50
        """Longest delay."""
        self.pieces = 0.1
        """Share of packets that arrive in two pieces."""
        self._loop = loop
        self._ends: dict[_End, None] = {}
        self._listeners: dict[tuple[str, int], SimulatedServer] = {}
        self._ports = count(_FIRST_PORT)
        self._sides: tuple[frozenset[str], ...] = ()
        self._off: set[str] = set()
        self._context = copy_context()

    def __repr__(self) -> str:
        return f"<SimulatedInternet of {len(self._listeners)} servers and {len(self._ends) // 2} connections>"

    # For tests.

    def part(self, *sides: Collection[str]) -> None:
        """Split the machines into sides, by their addresses, until `heal`; all other machines form one more side."""
        self._sides = tuple(map(frozenset, sides))
        self._links_changed()

    def heal(self) -> None:
        """End the partition."""
        self.part()

    def reset(self, one: str, other: str | None = None) -> int:
        """End the connections between two machines, or all of one, with an error at both ends; return how many."""
        ended = 0
        for end in self._ends_of(one):
            if other in {None, end.remote[0]}:
                ended += 1
                for each in (end, end.peer):
                    each.lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        return ended

    def kill(self, address: str) -> None:
        """End the servers of a killed program and reset its connections."""
        self._close_all(address)
        for end in self._ends_of(address):
            end.vanish()
            self.transmit(end, _Signal.RST)

    def power_off(self, address: str) -> None:
        """End a machine without notice to the others."""
        self._close_all(address)
        for end in self._ends_of(address):
            end.vanish()
        self._off.add(address)

    def power_on(self, address: str) -> None:
        """Start a machine again, without its earlier connections."""
        self._off.discard(address)
        self._links_changed()

    def passes(self, one: str, other: str) -> bool:
        """Return whether packets between two machines arrive now."""
        if one == other:
            return one not in self._off
        if not self._off.isdisjoint((one, other)):
            return False
        return self._side_of(one) == self._side_of(other)

    @property
    def connections(self) -> int:
        """Number of open ends of connections; two for each connection, unless one end has closed."""
        return len(self._ends)

    # For asyncio.

    async def connect(
        self, source: str, host: str | None, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect a program of one machine to a server; raises `OSError` as a socket does."""
        target = _resolved(source, host)
        for pause_s in _REPEATED_AFTER_S:
            if self.passes(source, target):
                break
            await asyncio.sleep(pause_s)
        else:
            raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {(target, port)}")
        await asyncio.sleep(self._delay_s(source, target) + self._delay_s(target, source))
        listener = self._listeners.get((target, port))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {(target, port)}")
        here, there = (source, next(self._ports)), (target, port)
        end = _End(self, self._loop, copy_context(), here, there)
        other = _End(self, self._loop, listener.context.copy(), there, here)
        end.peer, other.peer = other, end
        self._ends |= {end: None, other: None}
        protocol = factory()
        end.begin(protocol)
        self._loop.call_soon(other.accept, listener.factory, context=listener.context)
        return end, protocol

    def listen(
        self, source: str, host: str | None, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> SimulatedServer:
        """Serve at a port of a machine, 0 for any; raises `OSError` if it is in use, or of another machine."""
        address = _resolved(source, host)
        if address != source:
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is no address of the machine at {source}")
        port = port or next(self._ports)
        if (address, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{address} port {port} is in use")
        server = SimulatedServer(self._loop, (address, port), factory, lambda: self._closed((address, port)))
        self._listeners[address, port] = server
        return server

    # For connections.

    def transmit(self, end: _End, packet: _Packet) -> None:
        """Send a packet to the other end."""
        here, there = end.local[0], end.remote[0]
        if isinstance(packet, bytes) and len(packet) > 1 and self.random.random() < self.pieces:
            cut = self.random.randrange(1, len(packet))
            self._send(end, here, there, packet[:cut])
            packet = packet[cut:]
        self._send(end, here, there, packet)

    def forget(self, end: _End) -> None:
        """Remove a closed end."""
        self._ends.pop(end, None)

    def _send(self, end: _End, here: str, there: str, packet: _Packet) -> None:
        end.arrives_s = max(end.arrives_s, self._loop.time() + self._delay_s(here, there))
        # Timers of one moment have no order, so each delivers the next packet in order.
        end.under_way.append(packet)
        self._loop.call_at(end.arrives_s, self._arrive, end, context=self._context)

    def _arrive(self, end: _End) -> None:
        packet = end.under_way.popleft()
        if end.held or not self.passes(end.local[0], end.remote[0]):
            end.held.append(packet)
            self._ends.setdefault(end)
        else:
            self._deliver(end, packet)

    def _deliver(self, end: _End, packet: _Packet) -> None:
        receiver = end.peer
        if not receiver.is_gone:
            receiver.arrived(packet)
        elif packet is not _Signal.RST and not end.is_gone:
            # The machine has no such connection any more.
            self._send(receiver, receiver.local[0], end.local[0], _Signal.RST)

    def _links_changed(self) -> None:
        for end in list(self._ends):
            if end.held and self.passes(end.local[0], end.remote[0]):
                # TCP retransmits unconfirmed bytes, at growing intervals.
                self._loop.call_later(self.random.uniform(0.2, 2.0), self._repeat, end, context=self._context)

    def _repeat(self, end: _End) -> None:
        while end.held and self.passes(end.local[0], end.remote[0]):
            self._deliver(end, end.held.popleft())
        if end.is_gone and not end.held:
            self.forget(end)

    def _delay_s(self, here: str, there: str) -> float:
        return 0.0 if here == there else self.random.uniform(self.min_delay_ms, self.max_delay_ms) / 1_000

    def _side_of(self, address: str) -> int:
        return next((number for number, side in enumerate(self._sides) if address in side), -1)

    def _ends_of(self, address: str) -> Iterator[_End]:
        return iter([end for end in self._ends if end.local[0] == address and not end.is_gone])

    def _close_all(self, address: str) -> None:
        for server in [server for place, server in self._listeners.items() if place[0] == address]:
            server.close()

    def _closed(self, place: tuple[str, int]) -> None:
        self._listeners.pop(place, None)


class SimulatedServer(asyncio.AbstractServer):
    """A server in a `SimulatedInternet`; made by ``loop.create_server``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        place: tuple[str, int],
        factory: Callable[[], asyncio.BaseProtocol],
        closed: Callable[[], None],
    ) -> None:
        self.factory = factory
        self.context = copy_context()
        self.sockets = (_Socket(place, None),)
        """The one socket that it listens on."""
        self._loop = loop
        self._closed = closed
        self._is_serving = True

    def close(self) -> None:
        """Accept no more connections; open ones continue."""
        if self._is_serving:
            self._is_serving = False
            self._closed()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop."""
        return self._loop

    def is_serving(self) -> bool:
        """Return whether it accepts connections."""
        return self._is_serving

    async def start_serving(self) -> None:
        """Do nothing: a server serves from the beginning."""

    async def serve_forever(self) -> None:
        """Serve until cancelled."""
        try:
            await self._loop.create_future()
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Do nothing: closing takes no time."""


class _Socket:
    """The socket of a transport, as far as programs use it."""

    def __init__(self, here: tuple[str, int], there: tuple[str, int] | None) -> None:
        self._here, self._there = here, there

    def setsockopt(self, *_: object) -> None:
        """Do nothing: packets are sent at once."""

    def getsockname(self) -> tuple[str, int]:
        """Return address and port of this end."""
        return self._here

    def getpeername(self) -> tuple[str, int]:
        """Return address and port of the other end."""
        if self._there is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self._there


class _End(asyncio.Transport):
    """One end of a connection."""

    peer: _End

    def __init__(
        self,
        internet: SimulatedInternet,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        local: tuple[str, int],
        remote: tuple[str, int],
    ) -> None:
        super().__init__({"sockname": local, "peername": remote, "socket": _Socket(local, remote)})
        self.local, self.remote = local, remote
        self.is_gone = False
        """Whether this end is closed."""
        self.arrives_s = 0.0
        """Arrival time of the last packet to the other end."""
        self.under_way: deque[_Packet] = deque()
        """Packets in flight, in order."""
        self.held: deque[_Packet] = deque()
        """Packets held at a silent link."""
        self._internet, self._loop, self._context = internet, loop, context
        self._protocol: asyncio.BaseProtocol | None = None
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._under_way_bytes = 0
        self._unread: deque[_Packet] = deque()
        self._closing = self._reading_paused = self._writing_paused = False
        self._high_bytes, self._low_bytes = _HIGH_BYTES, _HIGH_BYTES // 4

    # For the network.

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect a protocol."""
        self._protocol = protocol
        protocol.connection_made(self)

    def accept(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Connect the protocol of a server."""
        if not self.is_gone:
            self.begin(factory())
            self._read_on()

    def arrived(self, packet: _Packet) -> None:
        """Take a packet, or keep it until it can be read."""
        if packet is _Signal.RST:
            self.lose(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        elif self._unread or self._reading_paused or self._protocol is None:
            self._unread.append(packet)
        else:
            self._context.run(self._take, packet)

    def lose(self, error: Exception | None) -> None:
        """Close, and notify the protocol."""
        if not self.is_gone:
            self.vanish()
            if self._protocol is not None:
                self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)

    def vanish(self) -> None:
        """Close without notice to the protocol."""
        self.is_gone = self._closing = True
        self._queue.clear()
        self._unread.clear()
        self._queued_bytes = 0
        self._internet.forget(self)

    def _take(self, packet: _Packet) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.Protocol):
            raise TypeError(f"a connection needs an asyncio.Protocol, not {type(protocol).__name__}")
        if isinstance(packet, bytes):
            self.peer.confirmed(len(packet))
            protocol.data_received(packet)
        elif not protocol.eof_received():
            self.close()

    def confirmed(self, size_bytes: int) -> None:
        """Note that the other end has read bytes."""
        self._under_way_bytes -= size_bytes
        if self._queue:
            self._loop.call_soon(self._send_on, context=self._context)

    def _read_on(self) -> None:
        while self._unread and not (self._reading_paused or self.is_gone):
            self._take(self._unread.popleft())

    def _send_on(self) -> None:
        while self._queue and self._under_way_bytes < _WINDOW_BYTES:
            data = self._queue.popleft()
            if len(data) > _PACKET_BYTES:
                self._queue.appendleft(data[_PACKET_BYTES:])
                data = data[:_PACKET_BYTES]
            self._queued_bytes -= len(data)
            self._under_way_bytes += len(data)
            self._internet.transmit(self, data)
        if (
            self._writing_paused
            and self._queued_bytes <= self._low_bytes
            and isinstance(self._protocol, asyncio.Protocol)
        ):
            self._writing_paused = False
            self._protocol.resume_writing()
        if self._closing and not self._queue and not self.is_gone:
            self._internet.transmit(self, _Signal.FIN)
            self.lose(None)

    # For programs.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send bytes."""
        if self._closing or not data:
            return
        self._queue.append(bytes(data))
        self._queued_bytes += len(data)
        self._send_on()
        if self._queued_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            if isinstance(self._protocol, asyncio.Protocol):
                self._protocol.pause_writing()

    def close(self) -> None:
        """Close when all bytes are sent."""
        if not self._closing:
            self._closing = True
            self._send_on()

    def abort(self) -> None:
        """Reset the connection."""
        if not self.is_gone:
            self._internet.transmit(self, _Signal.RST)
            self.lose(None)

    def is_closing(self) -> bool:
        """Return whether it is closed or closing."""
        return self._closing

    def pause_reading(self) -> None:
        """Deliver no bytes to the protocol."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Deliver bytes to the protocol again."""
        self._reading_paused = False
        self._loop.call_soon(self._read_on, context=self._context)

    def is_reading(self) -> bool:
        """Return whether it reads."""
        return not (self._reading_paused or self._closing)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the numbers of waiting bytes at which the protocol is paused and resumed."""
        self._high_bytes = _HIGH_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Return the number of waiting bytes."""
        return self._queued_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the numbers of bytes at which the protocol is resumed and paused."""
        return self._low_bytes, self._high_bytes

    def can_write_eof(self) -> bool:
        """Return False: a connection ends as a whole."""
        return False

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol."""
        if self._protocol is None:
            raise RuntimeError("the connection has no protocol yet")
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol."""
        self._protocol = protocol


def _resolved(source: str, host: str | None) -> str:
    """Return the address of a machine by a host; names of other machines are unknown."""
    return source if host in _LOCAL_NAMES or host is None else host
