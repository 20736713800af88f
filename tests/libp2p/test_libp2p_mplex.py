"""mplex on the wire: frames by hand, as the specification writes them."""

from __future__ import annotations

import pytest

from fairway.libp2p.errors import FrameError
from fairway.libp2p.mux.mplex import Mplex
from fairway.libp2p.mux.muxer import DataReceived
from fairway.wire.varint import encode_uvarint

NEW, MESSAGE_RECEIVER, MESSAGE_INITIATOR, CLOSE_RECEIVER, CLOSE_INITIATOR, RESET_RECEIVER, RESET_INITIATOR = range(7)


def frame(number, flag, body=b""):
    return encode_uvarint(number << 3 | flag) + encode_uvarint(len(body)) + body


def server():
    return Mplex(initiator=False)


@pytest.mark.parametrize("size", [1_048_577, 1 << 31, 1 << 62])
def test_a_frame_longer_than_a_mebibyte_is_refused_by_its_header(size):
    core = server()
    core.receive_data(frame(0, NEW))
    with pytest.raises(FrameError, match="at most 1048576"):
        core.receive_data(encode_uvarint(MESSAGE_INITIATOR) + encode_uvarint(size))


def test_a_header_that_never_ends_is_refused():
    with pytest.raises(FrameError):
        server().receive_data(b"\xff" * 10)


def test_the_flag_that_does_not_exist_is_refused():
    with pytest.raises(FrameError, match="flag 7"):
        server().receive_data(frame(0, 7))


def test_a_stream_cannot_be_opened_twice():
    with pytest.raises(FrameError, match="twice"):
        server().receive_data(frame(0, NEW) * 2)


def test_a_stream_too_many_is_reset_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.mux.muxer.MAX_INBOUND_STREAMS", 1)
    core = server()
    core.receive_data(frame(0, NEW))
    assert core.receive_data(frame(1, NEW) + frame(0, MESSAGE_INITIATOR, b"kept")) == [DataReceived(0, b"kept")]
    assert core.data_to_send() == frame(1, RESET_RECEIVER)


def test_a_stream_that_nobody_reads_is_named_until_it_is_read(monkeypatch):
    monkeypatch.setattr("fairway.libp2p.mux.mplex.STREAM_BUFFER_BYTES", 1000)
    core = server()
    core.receive_data(frame(0, NEW) + frame(1, NEW) + frame(1, MESSAGE_INITIATOR, bytes(1000)))
    assert core.overfull() is None
    core.receive_data(frame(1, MESSAGE_INITIATOR, b"x"))
    assert core.overfull() == 2
    core.consumed(2, 1)
    assert core.overfull() is None
