import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ConfigurationError
from fairway.libp2p.errors import Libp2pError, NegotiationError
from fairway.libp2p.multistream import (
    MAX_PROPOSALS,
    MultistreamDialer,
    MultistreamListener,
    Negotiated,
    encode_message,
)

HEADER = b"\x13/multistream/1.0.0\n"
NA = b"\x03na\n"

names = st.text(st.characters(codec="ascii", exclude_characters="\n"), min_size=1, max_size=20).map("/{}".format)
name_lists = st.lists(names, min_size=1, max_size=6, unique=True)


def test_a_message_is_written_as_the_specification_shows():
    assert encode_message("na").hex() == "036e610a"


@examples(0.5)
@given(name_lists, st.sets(names, max_size=6), st.binary(max_size=8), st.data())
def test_both_sides_agree_on_the_dialers_first_that_the_listener_speaks_however_reads_are_cut(
    offered, spoken, extra, data
):
    dialer, listener = MultistreamDialer(offered), MultistreamListener(spoken.__contains__)
    expected = next((name for name in offered if name in spoken), None)
    agreed = {}
    sides = {"listener": (listener, dialer), "dialer": (dialer, listener)}
    for _ in range(2 * len(offered) + 2):
        for name, (side, other) in sides.items():
            waiting = other.data_to_send()
            while waiting and name not in agreed:
                size = data.draw(st.integers(1, len(waiting)))
                piece, waiting = waiting[:size], waiting[size:]
                if expected is None and name == "dialer":
                    try:
                        side.receive_data(piece)
                    except NegotiationError:
                        return
                elif (result := side.receive_data(piece)) is not None:
                    agreed[name] = Negotiated(result.protocol, result.leftover + waiting + extra)
        if len(agreed) == 2:
            break
    assert agreed == {side: Negotiated(expected, extra) for side in sides}


@pytest.mark.parametrize("side", [MultistreamDialer(["/a"]), MultistreamListener({"/a"}.__contains__)])
def test_another_first_message_than_the_header_is_refused(side):
    with pytest.raises(NegotiationError, match="multistream"):
        side.receive_data(b"\x03GET\n")


@pytest.mark.parametrize(
    "garbage",
    [b"\x05nonl.", b"\0", b"\x81\x00", b"\x81\x08", b"\xff\xff\xff", b"\x03\xff\xff\n", encode_message("/other")],
)
def test_a_dialer_refuses_any_answer_but_its_proposal_and_na(garbage):
    dialer = MultistreamDialer(["/a"])
    with pytest.raises(NegotiationError):
        dialer.receive_data(HEADER + garbage)


def test_a_message_that_claims_too_much_is_refused_before_it_arrives():
    listener = MultistreamListener({"/a"}.__contains__)
    assert listener.receive_data(HEADER) is None
    with pytest.raises(NegotiationError, match="at most 1024"):
        listener.receive_data(b"\x81\x08")


def test_a_listener_lets_itself_be_asked_a_bounded_number_of_times():
    listener = MultistreamListener({"/a"}.__contains__)
    assert listener.receive_data(HEADER + encode_message("/x") * (MAX_PROPOSALS - 1)) is None
    with pytest.raises(NegotiationError, match="too many"):
        listener.receive_data(encode_message("/x"))
    assert listener.data_to_send() == HEADER + NA * MAX_PROPOSALS


@pytest.mark.parametrize("names", [[], [""], ["na"], ["ls"], ["/a\n"], ["/" + "x" * 1024]])
def test_a_name_that_cannot_be_sent_is_not_proposed(names):
    with pytest.raises(ConfigurationError):
        MultistreamDialer(names)


@given(st.lists(st.binary(max_size=40), max_size=5), st.booleans(), st.booleans())
def test_garbage_raises_nothing_but_a_libp2p_error(pieces, greeted, as_dialer):
    side = MultistreamDialer(["/a", "/b"]) if as_dialer else MultistreamListener({"/a"}.__contains__)
    try:
        for piece in [HEADER, *pieces] if greeted else pieces:
            side.receive_data(piece)
    except Libp2pError as error:
        assert str(error)  # noqa: PT017 - any error of the tree is right, and it says something
