"""Streams between two hosts: halves, resets, back-pressure, and what a failed one says."""

from __future__ import annotations

import asyncio

import pytest

from fairway.libp2p.errors import FrameError, NegotiationError, StreamClosedError, StreamResetError
from fairway.libp2p.host import Host
from muxers import MUXERS
from patience import until

YAMUX, MPLEX = "/yamux/1.0.0", "/mplex/6.7.0"
KIB = 1024


class Pair:
    """Two connected hosts; the server's streams of /test/1 come out of ``accepted``."""

    def __init__(self, muxer):
        self.muxer = muxer
        self.accepted = asyncio.Queue()
        self.finished = asyncio.Event()

    async def __aenter__(self):
        self.server = await Host.start(listen=["/ip4/127.0.0.1/tcp/0"])
        self.client = await Host.start(muxers=[self.muxer])
        self.server.handle("/test/1", self.hand_over)
        self.connection = await self.client.connect(self.server.addresses[0])
        return self

    async def hand_over(self, stream):
        await self.accepted.put(stream)
        await self.finished.wait()

    async def open(self):
        mine = await self.connection.open_stream(["/test/1"])
        return mine, await self.accepted.get()

    async def __aexit__(self, *_):
        self.finished.set()
        await self.client.close()
        await self.server.close()


@MUXERS
def test_each_half_ends_by_itself(run, muxer):
    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            await mine.write(b"question")
            await mine.close_write()
            assert await theirs.read() == b"question"
            assert await theirs.read() == b""
            await theirs.write(b"answer")
            await theirs.close_write()
            assert await mine.read() == b"answer"
            assert await mine.read() == b""
            with pytest.raises(StreamClosedError, match="open another"):
                await mine.write(b"more")

    run(scenario())


@MUXERS
def test_nothing_is_left_of_a_stream_whose_halves_are_closed_and_read(run, muxer):
    async def scenario():
        async with Pair(muxer) as pair:
            for _ in range(50):
                mine, theirs = await pair.open()
                await mine.write_frame(bytes(1000))
                await mine.close_write()
                assert await theirs.read_frame(1000) == bytes(1000)
                await theirs.close()
                assert await mine.read() == b""
            pair.finished.set()
            await until(lambda: pair.server.statistics().inbound_streams == 0)
            await until(lambda: pair.client.statistics().outbound_streams == 0)
            assert pair.server.statistics().buffered_bytes == 0

    run(scenario())


@MUXERS
def test_a_reset_is_learned_by_whoever_reads_writes_or_closes(run, muxer):
    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            reading = asyncio.create_task(mine.read())
            await asyncio.sleep(0)
            await theirs.reset()
            with pytest.raises(StreamResetError, match="peer reset"):
                await reading
            with pytest.raises(StreamResetError, match="peer reset"):
                await mine.write(b"x")
            await mine.close()
            with pytest.raises(StreamResetError, match="this side"):
                await theirs.read()

    run(scenario())


@MUXERS
def test_a_stream_that_the_peer_never_closes_is_reset_after_a_while(run, muxer, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.stream.CLOSE_LINGER_S", 0.05)

    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            await theirs.close()
            assert await mine.read() == b""
            await until(lambda: pair.client.statistics().outbound_streams == 0)
            with pytest.raises(StreamResetError):
                await mine.write(b"anybody?")

    run(scenario())


@MUXERS
def test_what_the_peer_wrote_and_ended_may_be_read_after_it_has_left(run, muxer):
    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            await theirs.write_frame(bytes(100_000))
            await theirs.close_write()
            unfinished, also_theirs = await pair.open()
            await also_theirs.write(bytes(100))
            await pair.server.disconnect(pair.client.peer_id)
            await until(lambda: not pair.client.connections())
            assert await mine.read_frame(100_000) == bytes(100_000)
            assert await mine.read_frame(100_000) is None
            with pytest.raises(StreamResetError, match="has ended"):
                await unfinished.read()

    run(scenario())


@MUXERS
def test_what_is_written_at_once_arrives_in_order_and_whole(run, muxer):
    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            messages = [bytes([number]) * (number * 997) for number in range(200)]
            writers = [asyncio.create_task(mine.write_frame(message)) for message in messages]
            assert [await theirs.read_frame(1 << 20) for _ in messages] == messages
            await asyncio.gather(*writers)

    run(scenario())


@MUXERS
@pytest.mark.parametrize("size", [1, 300_000, 3_000_000])
def test_bytes_are_read_in_any_portions(run, muxer, size):
    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            message = bytes(index % 249 for index in range(size))
            writer = asyncio.create_task(mine.write(message))
            first = await theirs.read_exactly(size // 3)
            second = await theirs.read(7)
            rest = await theirs.read_exactly(size - len(first) - len(second))
            assert first + second + rest == message
            await writer

    run(scenario())


@MUXERS
def test_a_frame_too_long_is_refused_before_it_is_read(run, muxer):
    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            await mine.write(b"\x80\x80\x80\x80\x08")
            with pytest.raises(FrameError, match="at most 1000"):
                await theirs.read_frame(1000)

    run(scenario())


@MUXERS
@pytest.mark.parametrize("cut", [b"\x80", b"\x05abc"])
def test_a_frame_that_is_cut_off_is_a_frame_error(run, muxer, cut):
    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            await mine.write(cut)
            await mine.close_write()
            with pytest.raises(FrameError, match="ended the stream"):
                await theirs.read_frame(1000)

    run(scenario())


@MUXERS
def test_a_slow_reader_stops_the_writer_and_memory_stays_bounded(run, muxer, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.mux.mplex.STREAM_BUFFER_BYTES", 256 * KIB)

    async def scenario():
        async with Pair(muxer) as pair:
            mine, theirs = await pair.open()
            written = 0

            async def pour():
                nonlocal written
                for _ in range(1000):
                    await mine.write(bytes(64 * KIB))
                    written += 64 * KIB

            writer = asyncio.create_task(pour())
            await until(lambda: pair.server.statistics().buffered_bytes > 192 * KIB)
            for _ in range(1_000):  # turns in which more would come
                await asyncio.sleep(0)
            assert not writer.done()
            # One window (yamux), or the stream's buffer and one read of the connection (mplex).
            assert pair.server.statistics().buffered_bytes <= (256 + (0 if muxer == YAMUX else 512)) * KIB
            read = 0
            while read < 1000 * 64 * KIB:
                read += len(await theirs.read())
            await writer
            assert pair.server.statistics().buffered_bytes == 0

    run(scenario())


def test_on_yamux_a_slow_reader_holds_up_no_other_stream(run):
    async def scenario():
        async with Pair(YAMUX) as pair:
            slow, _ = await pair.open()
            writer = asyncio.create_task(slow.write(bytes(5_000_000)))
            quick, theirs = await pair.open()
            for number in range(100):
                await quick.write_frame(bytes([number]) * 10_000)
                assert await theirs.read_frame(10_000) == bytes([number]) * 10_000
            assert not writer.done()
            await slow.reset()
            with pytest.raises(StreamResetError):
                await writer

    run(scenario())


def test_on_mplex_a_slow_reader_holds_up_others_for_a_bounded_time_and_is_then_reset(run, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.connection.SLOW_READER_TIMEOUT_S", 0.1)
    monkeypatch.setattr("fairway.libp2p.mux.mplex.STREAM_BUFFER_BYTES", 64 * KIB)

    async def scenario():
        async with Pair(MPLEX) as pair:
            slow, unread = await pair.open()
            quick, theirs = await pair.open()
            writer = asyncio.create_task(slow.write(bytes(50_000_000)))
            # On a slow machine it may be over before one looks.
            await until(lambda: pair.server.statistics().buffered_bytes > 64 * KIB or writer.done())
            await quick.write_frame(b"after all")
            assert await theirs.read_frame(100) == b"after all"
            with pytest.raises(StreamResetError, match="blocked others"):
                await unread.read()
            with pytest.raises(StreamResetError):
                await writer
            assert pair.server.statistics().buffered_bytes == 0

    run(scenario())


@MUXERS
def test_a_writer_that_waits_learns_that_the_connection_ended(run, muxer):
    async def scenario():
        async with Pair(muxer) as pair:
            mine, _ = await pair.open()
            writer = asyncio.create_task(mine.write(bytes(100_000_000)))
            await until(lambda: pair.server.statistics().buffered_bytes > 200_000)
            await pair.client.disconnect(pair.server.peer_id)
            with pytest.raises(StreamResetError, match="connection"):
                await writer

    run(scenario())


@MUXERS
def test_closing_does_not_wait_for_ever_for_a_writer_that_is_held_up(run, muxer, monkeypatch):
    monkeypatch.setattr("fairway.libp2p.stream.CLOSE_LINGER_S", 0.1)

    async def scenario():
        async with Pair(muxer) as pair:
            _, theirs = await pair.open()
            writer = asyncio.create_task(theirs.write(bytes(30_000_000)))
            await until(lambda: pair.client.statistics().buffered_bytes > 200_000)
            await theirs.close()
            with pytest.raises(StreamResetError):
                await writer

    run(scenario())


@MUXERS
def test_a_handler_that_fails_resets_its_stream_and_nothing_else(run, muxer):
    async def scenario():
        async def fail(stream):
            raise KeyError(await stream.read())

        async with Pair(muxer) as pair:
            pair.server.handle("/fail/1", fail)
            mine, theirs = await pair.open()
            failing = await pair.connection.open_stream(["/fail/1"])
            await failing.write(b"x")
            with pytest.raises(StreamResetError):
                await failing.read()
            await mine.write(b"still here")
            assert await theirs.read() == b"still here"

    run(scenario())


async def idle(*hosts):
    """Wait until all hosts know their peers, and no stream is open."""
    for host in hosts:
        await until(lambda host=host: all(host.protocols_of(one.peer_id) for one in host.connections()))
        await until(lambda host=host: not (host.statistics().inbound_streams or host.statistics().outbound_streams))


@MUXERS
def test_a_request_in_an_announced_protocol_is_sent_in_one_piece(run, muxer, monkeypatch):
    async def scenario():
        async with Pair(muxer) as pair:
            await idle(pair.client, pair.server)
            link, pieces = pair.connection.link, []
            send = link.send

            def note(data):
                pieces.append(data)
                send(data)

            monkeypatch.setattr(link, "send", note)
            asking = asyncio.create_task(
                pair.client.request(pair.server.peer_id, "/test/1", b"question", max_response_bytes=100)
            )
            theirs = await pair.accepted.get()
            assert await theirs.read_frame(100) == b"question"
            assert await theirs.read() == b""
            await theirs.write_frame(b"answer")
            await theirs.close()
            assert await asking == b"answer"
            assert len(pieces) == 1
            pair.finished.set()
            await idle(pair.client, pair.server)

    run(scenario())


@MUXERS
def test_a_request_in_a_protocol_that_the_peer_does_not_serve_is_refused(run, muxer):
    async def scenario():
        async with Pair(muxer) as pair:
            with pytest.raises(NegotiationError, match="supports none of /test/2"):
                await pair.client.request(pair.server.peer_id, "/test/2", bytes(1000), max_response_bytes=100)
            await idle(pair.client, pair.server)

    run(scenario())


@MUXERS
@pytest.mark.parametrize("is_announced", [True, False])
def test_a_request_that_the_peer_does_not_answer_has_no_response(run, muxer, is_announced):
    async def scenario():
        async with Pair(muxer) as pair:
            asking = asyncio.create_task(
                pair.connection.request("/test/1", b"", max_response_bytes=100, is_announced=is_announced)
            )
            await (await pair.accepted.get()).close()
            assert await asking is None

    run(scenario())
