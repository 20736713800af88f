"""yamux on the wire: frames by hand, as the specification writes them."""

from __future__ import annotations

import struct

import pytest

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import FrameError, LimitError, StreamClosedError
from fairway.libp2p.mux.muxer import (
    DataReceived,
    MuxerLimits,
    RemoteWriteClosed,
    StreamOpened,
    StreamWasReset,
    WindowOpened,
)
from fairway.libp2p.mux.yamux import Yamux

WINDOW = 262_144
DATA, UPDATE, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8


def frame(kind, flags, stream_id, length, body=b"", version=0):
    return struct.pack("!BBHII", version, kind, flags, stream_id, length) + body


def data(stream_id, body, flags=0):
    return frame(DATA, flags, stream_id, len(body), body)


def server(**limits):
    return Yamux(initiator=False, limits=MuxerLimits(**limits))


def client(**limits):
    return Yamux(initiator=True, limits=MuxerLimits(**limits))


def test_a_dialer_numbers_its_streams_odd_and_a_listener_even():
    dialer, listener = client(), server()
    assert [dialer.open_stream(), dialer.open_stream()] == [1, 3]
    assert [listener.open_stream(), listener.open_stream()] == [2, 4]
    assert dialer.data_to_send() == frame(UPDATE, SYN, 1, 0) + frame(UPDATE, SYN, 3, 0)


@pytest.mark.parametrize("opening", [frame(UPDATE, SYN, 1, 0), frame(DATA, SYN, 1, 0)])
def test_a_stream_may_open_with_either_frame_and_is_acknowledged(opening):
    core = server()
    assert core.receive_data(opening) == [StreamOpened(1)]
    assert core.data_to_send() == frame(UPDATE, ACK, 1, 0)


def test_one_frame_may_open_carry_data_and_end_the_writing():
    assert server().receive_data(data(1, b"all", SYN | FIN)) == [
        StreamOpened(1),
        DataReceived(1, b"all"),
        RemoteWriteClosed(1),
    ]


def test_a_frame_may_be_cut_anywhere():
    core = server()
    events = [event for byte in data(1, b"abc", SYN) for event in core.receive_data(bytes([byte]))]
    assert events[0] == StreamOpened(1)
    assert b"".join(event.data for event in events[1:]) == b"abc"


def test_a_ping_is_answered_with_its_own_number():
    core = server()
    assert core.receive_data(frame(PING, SYN, 0, 77)) == []
    assert core.data_to_send() == frame(PING, ACK, 0, 77)
    assert core.ping(5)
    assert core.data_to_send() == frame(PING, SYN, 0, 5)
    assert core.receive_data(frame(PING, ACK, 0, 5)) == []


def test_after_a_go_away_no_stream_is_opened():
    core = client()
    assert core.receive_data(frame(GO_AWAY, 0, 0, 1)) == []
    with pytest.raises(LimitError, match="goes away"):
        core.open_stream()


def test_a_go_away_says_why():
    core = client()
    core.go_away(2)
    assert core.data_to_send() == frame(GO_AWAY, 0, 0, 2)


def test_the_first_bytes_of_a_stream_fit_the_initial_window_of_nim_libp2p_and_an_update_allows_more():
    """nim-libp2p up to 2.2.1 grants 256,000 bytes, and ends the connection (GO_AWAY 1) at the next byte."""
    dialer, listener = client(), server()
    listener.receive_data(frame(UPDATE, SYN, 1, 0))
    for core, stream in ((dialer, dialer.open_stream()), (listener, 1)):
        assert core.send(stream, memoryview(bytes(300_000))) == 256_000
        assert core.send(stream, memoryview(b"x")) == 0
        assert core.receive_data(frame(UPDATE, ACK, stream, 10)) == [WindowOpened(stream)]
        assert core.send(stream, memoryview(b"0123456789abc")) == 10


def test_data_go_out_in_frames_of_bounded_size():
    core = client(send_frame_bytes=1000)
    stream = core.open_stream()
    core.data_to_send()
    core.send(stream, memoryview(bytes(2500)))
    assert core.data_to_send() == b"".join(data(stream, bytes(size)) for size in (1000, 1000, 500))


def test_the_window_is_given_back_by_halves_as_the_reader_takes_the_bytes():
    core = server()
    core.receive_data(data(1, bytes(WINDOW), SYN))
    core.data_to_send()
    core.consumed(1, WINDOW // 2 - 1)
    assert core.data_to_send() == b""
    core.consumed(1, 1)
    assert core.data_to_send() == frame(UPDATE, 0, 1, WINDOW // 2)


def test_a_larger_window_is_announced_with_the_first_frame():
    core = server(receive_window_bytes=WINDOW + 1000)
    core.receive_data(frame(UPDATE, SYN, 1, 0))
    assert core.data_to_send() == frame(UPDATE, ACK, 1, 1000)
    assert core.receive_data(data(1, bytes(WINDOW + 1000)))[0].stream_id == 1


def test_a_window_below_the_initial_one_cannot_be():
    with pytest.raises(ConfigurationError, match="at least that"):
        server(receive_window_bytes=1000)


def test_a_frame_beyond_the_window_ends_the_connection_by_its_header_alone():
    core = server()
    core.receive_data(data(1, bytes(WINDOW - 10), SYN))
    with pytest.raises(FrameError, match="window has 10 left"):
        core.receive_data(frame(DATA, 0, 1, 11))


@pytest.mark.parametrize("stream_id", [1, 99])
def test_a_frame_that_claims_two_gigabytes_is_refused_by_its_header(stream_id):
    core = server()
    core.receive_data(frame(UPDATE, SYN, 1, 0))
    with pytest.raises(FrameError, match="2147483648 bytes"):
        core.receive_data(frame(DATA, 0, stream_id, 1 << 31))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (frame(DATA, 0, 1, 0, version=1), "version 1"),
        (frame(4, 0, 1, 0), "type 4"),
        (frame(UPDATE, SYN, 2, 0), "not its to use"),
        (frame(UPDATE, SYN, 0, 0), "not its to use"),
        (frame(UPDATE, SYN, 1, 0) * 2, "twice"),
    ],
)
def test_a_frame_that_breaks_the_protocol_is_a_typed_error(bad, reason):
    with pytest.raises(FrameError, match=reason):
        server().receive_data(bad)


def test_a_stream_too_many_is_reset_and_the_others_go_on():
    core = server(max_inbound_streams=1)
    core.receive_data(frame(UPDATE, SYN, 1, 0))
    core.data_to_send()
    assert core.receive_data(data(3, b"lost", SYN) + data(1, b"kept")) == [DataReceived(1, b"kept")]
    assert core.data_to_send() == frame(UPDATE, RST, 3, 0)
    assert core.statistics().refused_streams == 1


def test_a_refused_stream_is_one_that_was_reset():
    core = client(max_outbound_streams=1)
    stream = core.open_stream()
    assert core.is_full
    assert core.receive_data(frame(UPDATE, RST, stream, 0)) == [StreamWasReset(stream, by_peer=True)]
    assert not core.is_full
    with pytest.raises(StreamClosedError):
        core.send(stream, memoryview(b"x"))


def test_nothing_is_sent_for_a_stream_that_the_peer_reset():
    core = server()
    core.receive_data(data(1, b"abc", SYN) + frame(UPDATE, RST, 1, 0))
    core.data_to_send()
    core.reset(1)
    core.close_write(1)
    core.consumed(1, 3)
    assert core.data_to_send() == b""


def test_a_peer_that_pings_and_never_reads_is_cut_off():
    core = server(max_queued_replies=100)
    core.receive_data(frame(PING, SYN, 0, 1) * 100)
    with pytest.raises(FrameError, match="answers wait"):
        core.receive_data(frame(PING, SYN, 0, 1))


def test_data_after_the_end_of_writing_are_not_delivered():
    core = server()
    core.receive_data(frame(DATA, SYN | FIN, 1, 0))
    assert core.receive_data(data(1, b"more")) == []
    assert core.statistics().late_frames == 1
