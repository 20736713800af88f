import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.libp2p.errors import FrameError, Libp2pError
from fairway.libp2p.noise.pattern import SessionKeys
from fairway.libp2p.noise.session import NoiseSession

ONE, TWO, HASH = b"\1" * 32, b"\2" * 32, b"\3" * 32


def sessions():
    ours = NoiseSession(SessionKeys(send=ONE, receive=TWO, handshake_hash=HASH))
    theirs = NoiseSession(SessionKeys(send=TWO, receive=ONE, handshake_hash=HASH))
    return ours, theirs


@examples(0.5)
@given(st.lists(st.binary(max_size=300), max_size=8), st.data())
def test_what_was_sealed_is_opened_however_reads_are_cut(messages, data):
    ours, theirs = sessions()
    waiting = b"".join(ours.encrypt(message) for message in messages)
    opened = b""
    while waiting:
        size = data.draw(st.integers(1, len(waiting)))
        opened += theirs.receive_data(waiting[:size])
        waiting = waiting[size:]
    assert opened == b"".join(messages)
    theirs.receive_eof()


@given(st.data())
def test_a_changed_frame_is_refused(data):
    ours, theirs = sessions()
    sealed = bytearray(ours.encrypt(b"some plaintext"))
    position = data.draw(st.integers(2, len(sealed) - 1))
    sealed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(FrameError, match="Noise frame 0"):
        theirs.receive_data(bytes(sealed))


def test_frames_come_once_and_in_order():
    ours, theirs = sessions()
    first, second = ours.encrypt(b"1"), ours.encrypt(b"2")
    with pytest.raises(FrameError):
        theirs.receive_data(second)
    ours, theirs = sessions()
    assert theirs.receive_data(ours.encrypt(b"1")) == b"1"
    with pytest.raises(FrameError):
        theirs.receive_data(first)


@pytest.mark.parametrize("size", range(16))
def test_a_frame_without_room_for_its_tag_is_refused_at_once(size):
    _, theirs = sessions()
    with pytest.raises(FrameError, match="a tag"):
        theirs.receive_data(bytes([0, size]))


def test_a_stream_that_ends_inside_a_frame_was_cut_off():
    ours, theirs = sessions()
    theirs.receive_data(ours.encrypt(b"whole") + b"\0")
    with pytest.raises(FrameError, match="inside a Noise frame"):
        theirs.receive_eof()


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_garbage_raises_nothing_but_a_libp2p_error(pieces):
    _, theirs = sessions()
    opened = b""
    try:
        for piece in pieces:
            opened += theirs.receive_data(piece)
    except Libp2pError as error:
        assert str(error)  # noqa: PT017 - any error of the tree is right, and it says something
    assert opened == b""


def test_a_session_shows_its_name_and_no_key():
    ours, _ = sessions()
    assert HASH.hex()[:16] in repr(ours)
    assert ONE.hex() not in repr(ours)
