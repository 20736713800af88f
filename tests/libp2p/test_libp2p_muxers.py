"""Two muxer cores joined by pipes that cut anywhere: what arrives is what was sent, and nothing is left behind."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import examples
from fairway.libp2p.errors import StreamClosedError
from fairway.libp2p.mux.mplex import Mplex
from fairway.libp2p.mux.muxer import DataReceived, Muxer, RemoteWriteClosed, StreamOpened, StreamWasReset
from fairway.libp2p.mux.yamux import Yamux

WINDOW_BYTES = 262_144
SIDES = st.sampled_from((0, 1))


@pytest.fixture(autouse=True, scope="module")
def _few_streams():
    """Make the bounds small, so that random steps reach them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fairway.libp2p.mux.muxer.MAX_INBOUND_STREAMS", 6)
        patch.setattr("fairway.libp2p.mux.muxer.MAX_OUTBOUND_STREAMS", 6)
        patch.setattr("fairway.libp2p.mux.muxer.MAX_BUFFERED_BYTES", 1 << 30)
        for muxer in ("yamux", "mplex"):
            patch.setattr(f"fairway.libp2p.mux.{muxer}.SEND_FRAME_BYTES", 1_000)
        yield


def pattern(begin: int, size: int) -> bytes:
    """Bytes that show by themselves where in a stream they belong."""
    block = bytes(range(251))
    start = begin % 251
    return (block * (size // 251 + 2))[start : start + size]


class TwoMuxers(RuleBasedStateMachine):
    """Everything that two applications can do with a connection, in any order, over any cuts of the bytes."""

    muxer: type[Muxer]
    streams = Bundle("streams")

    @initialize()
    def connect(self):
        self.cores = [self.muxer(initiator=side == 0) for side in (0, 1)]
        self.pipes = [bytearray(), bytearray()]  # what each side has sent and the other has not yet received
        self.sent: dict[tuple[int, int], int] = defaultdict(int)
        self.got: dict[tuple[int, int], int] = defaultdict(int)
        self.unread: dict[tuple[int, int], int] = defaultdict(int)
        self.writing: set[tuple[int, int]] = set()
        self.peer_open: set[tuple[int, int]] = set()
        self.reset_streams: set[int] = set()

    def wire_id(self, side, stream_id):
        """One name for a stream on both sides: who opened it, and its number."""
        if self.muxer is Yamux:
            return stream_id
        return (stream_id & ~1) | (side if stream_id & 1 else 1 - side)

    def local_id(self, side, name):
        if self.muxer is Yamux:
            return name
        return (name & ~1) | (1 if name & 1 == side else 0)

    def collect(self, side):
        self.pipes[side] += self.cores[side].data_to_send()

    @rule(target=streams, side=SIDES)
    def open(self, side):
        if self.cores[side].is_full:
            return -1
        name = self.wire_id(side, self.cores[side].open_stream())
        self.writing |= {(side, name)}
        self.peer_open |= {(side, name)}
        self.collect(side)
        return name

    @rule(side=SIDES, name=streams, size=st.sampled_from((1, 90, 70_000, 300_000)))
    def send(self, side, name, size):
        if (side, name) not in self.writing:
            return
        begin = self.sent[side, name]
        taken = self.cores[side].send(self.local_id(side, name), memoryview(pattern(begin, size)))
        assert 0 <= taken <= size
        self.sent[side, name] += taken
        self.collect(side)

    @rule(side=SIDES, size=st.one_of(st.integers(1, 40), st.integers(1, 600_000)))
    def deliver(self, side, size):
        """Let the other side receive some of what is under way."""
        piece = bytes(self.pipes[side][:size])
        del self.pipes[side][:size]
        other = 1 - side
        for event in self.cores[other].receive_data(piece):
            self.note(other, event)
        self.collect(other)

    def note(self, side, event):
        name = self.wire_id(side, getattr(event, "stream_id", 0))
        match event:
            case StreamOpened():
                self.writing |= {(side, name)}
                self.peer_open |= {(side, name)}
            case DataReceived(_, data):
                assert (side, name) in self.peer_open
                assert data == pattern(self.got[side, name], len(data))
                self.got[side, name] += len(data)
                self.unread[side, name] += len(data)
            case RemoteWriteClosed():
                assert self.got[side, name] == self.sent[1 - side, name]
                self.peer_open -= {(side, name)}
            case StreamWasReset():
                self.forget(side, name)

    def forget(self, side, name):
        self.reset_streams |= {name}
        self.writing -= {(side, name)}
        self.peer_open -= {(side, name)}
        self.unread.pop((side, name), None)

    @rule(side=SIDES, name=streams, part=st.floats(0, 1))
    def consume(self, side, name, part):
        size = int(self.unread.get((side, name), 0) * part)
        if size:
            self.unread[side, name] -= size
            self.cores[side].consumed(self.local_id(side, name), size)
            self.collect(side)

    @rule(side=SIDES, name=streams)
    def close_write(self, side, name):
        if (side, name) in self.writing:
            self.writing -= {(side, name)}
            self.cores[side].close_write(self.local_id(side, name))
            self.collect(side)
            with pytest.raises(StreamClosedError):
                self.cores[side].send(self.local_id(side, name), memoryview(b"x"))

    @precondition(lambda self: len(self.reset_streams) < 3)
    @rule(side=SIDES, name=streams)
    def reset(self, side, name):
        if (side, name) in self.writing:
            self.cores[side].reset(self.local_id(side, name))
            self.forget(side, name)
            self.collect(side)

    @invariant()
    def what_waits_unread_is_counted_and_bounded(self):
        for side, core in enumerate(getattr(self, "cores", ())):
            waiting = [size for (of, _), size in self.unread.items() if of == side]
            assert core.buffered_bytes == sum(waiting)
            if self.muxer is Yamux:
                assert max(waiting, default=0) <= WINDOW_BYTES

    def settle(self):
        """Deliver and read everything, until nothing is under way."""
        while any(self.pipes) or any(self.unread.values()):
            for side in (0, 1):
                self.deliver(side, 1 << 30)
            for side, name in tuple(self.unread):
                self.consume(side, name, 1.0)

    def teardown(self):
        """Finish everything: all that was sent arrives, and no stream is left in either core."""
        if not hasattr(self, "cores"):
            return
        self.settle()
        for side, name in tuple(self.writing):
            before = self.sent[side, name]
            self.send(side, name, 1000)
            # Whatever was read has been given back, so no writer is stuck.
            assert self.sent[side, name] == before + 1000
            self.close_write(side, name)
        self.settle()
        for side, name in self.sent:
            if name not in self.reset_streams:
                assert self.got[1 - side, name] == self.sent[side, name]
        for core in self.cores:
            assert (core.inbound_streams, core.outbound_streams) == (0, 0)
            assert core.buffered_bytes == core.queued_bytes == 0


class TwoYamux(TwoMuxers):
    muxer = Yamux


class TwoMplex(TwoMuxers):
    muxer = Mplex


PROFILE = examples(0.4, stateful_step_count=40)
TwoYamux.TestCase.settings = PROFILE
TwoMplex.TestCase.settings = PROFILE


@pytest.mark.parametrize("muxer", [Yamux, Mplex])
def test_a_thousand_requests_leave_nothing_in_either_core(muxer):
    client, server = muxer(initiator=True), muxer(initiator=False)
    for _ in range(1000):
        request = client.open_stream()
        client.send(request, memoryview(b"question"))
        client.close_write(request)
        opened, asked, closed = server.receive_data(client.data_to_send())
        assert (asked.data, closed) == (b"question", RemoteWriteClosed(opened.stream_id))
        server.consumed(opened.stream_id, 8)
        server.send(opened.stream_id, memoryview(b"answer"))
        server.close_write(opened.stream_id)
        answered = [event for event in client.receive_data(server.data_to_send()) if isinstance(event, DataReceived)]
        client.consumed(request, len(answered[0].data))
        server.receive_data(client.data_to_send())
    for core in (client, server):
        assert core.inbound_streams == core.outbound_streams == core.buffered_bytes == core.queued_bytes == 0
