"""mplex on the wire: frames by hand, as the specification writes them."""

from __future__ import annotations

import pytest

from fairway.libp2p.errors import FrameError, LimitError, StreamClosedError
from fairway.libp2p.mux.mplex import Mplex
from fairway.libp2p.mux.muxer import DataReceived, MuxerLimits, RemoteWriteClosed, StreamOpened, StreamWasReset
from fairway.wire.varint import encode_uvarint

NEW, MESSAGE_RECEIVER, MESSAGE_INITIATOR, CLOSE_RECEIVER, CLOSE_INITIATOR, RESET_RECEIVER, RESET_INITIATOR = range(7)


def frame(number, flag, body=b""):
    return encode_uvarint(number << 3 | flag) + encode_uvarint(len(body)) + body


def server(**limits):
    return Mplex(initiator=False, limits=MuxerLimits(**limits))


def test_both_sides_number_their_streams_from_zero():
    core = server()
    ours = core.open_stream()
    assert core.data_to_send() == frame(0, NEW, b"0")
    (theirs,) = core.receive_data(frame(0, NEW, b"any name"))
    assert theirs.stream_id != ours
    core.send(ours, memoryview(b"mine"))
    core.send(theirs.stream_id, memoryview(b"yours"))
    assert core.data_to_send() == frame(0, MESSAGE_INITIATOR, b"mine") + frame(0, MESSAGE_RECEIVER, b"yours")


def test_a_flag_says_whose_number_it_is():
    core = server()
    ours = core.open_stream()
    (theirs,) = core.receive_data(frame(0, NEW))
    events = core.receive_data(frame(0, MESSAGE_RECEIVER, b"to mine") + frame(0, MESSAGE_INITIATOR, b"to yours"))
    assert events == [DataReceived(ours, b"to mine"), DataReceived(theirs.stream_id, b"to yours")]


def test_closing_and_resetting_use_the_flag_of_the_side_that_does_it():
    core = server()
    first, second = core.open_stream(), core.open_stream()
    core.receive_data(frame(0, NEW) + frame(1, NEW))
    core.data_to_send()
    core.close_write(first)
    core.reset(second)
    core.close_write(0)
    core.reset(2)
    sent = [frame(0, CLOSE_INITIATOR), frame(1, RESET_INITIATOR), frame(0, CLOSE_RECEIVER), frame(1, RESET_RECEIVER)]
    assert core.data_to_send() == b"".join(sent)


def test_the_peer_closes_one_half_and_resets_both():
    core = server()
    core.receive_data(frame(7, NEW) + frame(9, NEW))
    assert core.receive_data(frame(7, CLOSE_INITIATOR)) == [RemoteWriteClosed(14)]
    core.send(14, memoryview(b"still possible"))
    assert core.receive_data(frame(9, RESET_INITIATOR)) == [StreamWasReset(18, by_peer=True)]
    with pytest.raises(StreamClosedError):
        core.send(18, memoryview(b"impossible"))


def test_a_frame_may_be_cut_anywhere():
    core = server()
    wire = frame(300, NEW, b"a name") + frame(300, MESSAGE_INITIATOR, bytes(200))
    events = [event for byte in wire for event in core.receive_data(bytes([byte]))]
    assert events[0] == StreamOpened(600)
    assert sum(len(event.data) for event in events[1:]) == 200


def test_data_go_out_in_frames_of_bounded_size():
    core = server(send_frame_bytes=1000)
    core.receive_data(frame(0, NEW))
    assert core.send(0, memoryview(bytes(2500))) == 2500
    assert core.data_to_send() == b"".join(frame(0, MESSAGE_RECEIVER, bytes(size)) for size in (1000, 1000, 500))


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


def test_a_stream_too_many_is_reset_and_the_others_go_on():
    core = server(max_inbound_streams=1)
    core.receive_data(frame(0, NEW))
    assert core.receive_data(frame(1, NEW) + frame(0, MESSAGE_INITIATOR, b"kept")) == [DataReceived(0, b"kept")]
    assert core.data_to_send() == frame(1, RESET_RECEIVER)
    assert core.statistics().refused_streams == 1


def test_own_streams_are_bounded():
    core = server(max_outbound_streams=1)
    core.open_stream()
    with pytest.raises(LimitError, match="1 streams are open"):
        core.open_stream()


def test_nothing_is_sent_for_a_stream_that_the_peer_reset():
    core = server()
    core.receive_data(frame(0, NEW) + frame(0, MESSAGE_INITIATOR, b"abc") + frame(0, RESET_INITIATOR))
    core.reset(0)
    core.close_write(0)
    core.consumed(0, 3)
    assert core.data_to_send() == b""


def test_there_is_neither_ping_nor_go_away():
    core = server()
    assert core.ping(1) is False
    core.go_away(0)
    assert core.data_to_send() == b""


def test_late_frames_are_counted_and_answered_with_nothing():
    core = server()
    assert core.receive_data(frame(5, MESSAGE_INITIATOR, b"who?") + frame(5, CLOSE_INITIATOR)) == []
    assert core.data_to_send() == b""
    assert core.statistics().late_frames == 2


def test_a_stream_that_nobody_reads_is_named_until_it_is_read():
    core = server(stream_buffer_bytes=1000)
    core.receive_data(frame(0, NEW) + frame(1, NEW) + frame(1, MESSAGE_INITIATOR, bytes(1000)))
    assert core.overfull() is None
    core.receive_data(frame(1, MESSAGE_INITIATOR, b"x"))
    assert core.overfull() == 2
    core.consumed(2, 1)
    assert core.overfull() is None


def test_a_full_stream_that_is_reset_holds_up_nobody():
    core = server(stream_buffer_bytes=1000)
    core.receive_data(frame(0, NEW) + frame(0, MESSAGE_INITIATOR, bytes(2000)))
    assert core.overfull() == 0
    core.reset(0)
    assert core.overfull() is None
    assert core.statistics().buffered_bytes == 0
