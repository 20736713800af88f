"""yamux on the wire: frames by hand, as the specification writes them."""

from __future__ import annotations

import struct

import pytest

from fairway.libp2p.errors import FrameError, LimitError
from fairway.libp2p.mux.muxer import DataReceived, WindowOpened
from fairway.libp2p.mux.yamux import Yamux

WINDOW = 262_144
DATA, UPDATE, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8


def frame(kind, flags, stream_id, length, body=b"", version=0):
    return struct.pack("!BBHII", version, kind, flags, stream_id, length) + body


def data(stream_id, body, flags=0):
    return frame(DATA, flags, stream_id, len(body), body)


def server():
    return Yamux(initiator=False)


def client():
    return Yamux(initiator=True)


def test_after_a_go_away_no_stream_is_opened():
    core = client()
    assert core.receive_data(frame(GO_AWAY, 0, 0, 1)) == []
    with pytest.raises(LimitError, match="goes away"):
        core.open_stream()


def test_the_first_bytes_of_a_stream_fit_the_initial_window_of_nim_libp2p_and_an_update_allows_more():
    """nim-libp2p up to 2.2.1 grants 256,000 bytes, and ends the connection (GO_AWAY 1) at the next byte."""
    dialer, listener = client(), server()
    listener.receive_data(frame(UPDATE, SYN, 1, 0))
    for core, stream in ((dialer, dialer.open_stream()), (listener, 1)):
        assert core.send(stream, memoryview(bytes(300_000))) == 256_000
        assert core.send(stream, memoryview(b"x")) == 0
        assert core.receive_data(frame(UPDATE, ACK, stream, 10)) == [WindowOpened(stream)]
        assert core.send(stream, memoryview(b"0123456789abc")) == 10


def test_the_window_is_given_back_by_halves_as_the_reader_takes_the_bytes():
    core = server()
    core.receive_data(data(1, bytes(WINDOW), SYN))
    core.data_to_send()
    core.consumed(1, WINDOW // 2 - 1)
    assert core.data_to_send() == b""
    core.consumed(1, 1)
    assert core.data_to_send() == frame(UPDATE, 0, 1, WINDOW // 2)


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


def test_a_stream_too_many_is_reset_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.mux.muxer.MAX_INBOUND_STREAMS", 1)
    core = server()
    core.receive_data(frame(UPDATE, SYN, 1, 0))
    core.data_to_send()
    assert core.receive_data(data(3, b"lost", SYN) + data(1, b"kept")) == [DataReceived(1, b"kept")]
    assert core.data_to_send() == frame(UPDATE, RST, 3, 0)


def test_a_peer_that_pings_and_never_reads_is_cut_off(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.mux.muxer.MAX_QUEUED_REPLIES", 100)
    core = server()
    core.receive_data(frame(PING, SYN, 0, 1) * 100)
    with pytest.raises(FrameError, match="answers wait"):
        core.receive_data(frame(PING, SYN, 0, 1))
