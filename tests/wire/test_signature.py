"""Where the signature of an SDS message is, and what it covers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.wire.sds import NIM_SDS, WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.signature import read_signature, signed_bytes, with_signature, with_signer_key

MESSAGE = SdsMessage(
    message_id="m1",
    sender_id="alice",
    channel_id="harbour",
    lamport_timestamp=1_760_000_000_000,
    causal_history=(HistoryEntry("m0", b"\x01" * 32, "bob"),),
    content=b"who is on watch?",
    vouches=True,
)
SIGNATURE, KEY = bytes(range(64)), bytes(range(100, 132))


def test_the_bytes_of_a_signed_message_are_these():
    encoded = with_signature(with_signer_key(b"SDS", KEY), SIGNATURE)
    # Field 50001 and field 50002 of wire type 2: 50001 << 3 | 2 and 50002 << 3 | 2 as varints, then the lengths.
    assert encoded.hex() == b"SDS".hex() + "8ab518" + "20" + KEY.hex() + "92b518" + "40" + SIGNATURE.hex()


def test_what_is_signed_names_the_channel_and_the_sender():
    domain = b"fairway SDS signature 1\x00"
    assert signed_bytes("harbour", "\u00e6gir", b"SDS") == domain + b"\x00\x07harbour" + b"\x00\x05\xc3\xa6gir" + b"SDS"


@given(
    one=st.tuples(st.text(max_size=3), st.text(max_size=3), st.binary(max_size=4)),
    other=st.tuples(st.text(max_size=3), st.text(max_size=3), st.binary(max_size=4)),
)
def test_different_messages_are_signed_as_different_bytes(one, other):
    assert (signed_bytes(*one) == signed_bytes(*other)) == (one == other)


@pytest.mark.parametrize("codec", [WAKU_SDS, NIM_SDS], ids=lambda codec: codec.name)
@pytest.mark.parametrize("key", [None, KEY, b"\x04" * 65], ids=["no key", "ed25519", "secp256k1"])
def test_decoders_skip_the_signature(codec, key):
    encoded = codec.encode(MESSAGE)
    covered = encoded if key is None else with_signer_key(encoded, key)
    signed = with_signature(covered, SIGNATURE)
    assert codec.decode(signed) == codec.decode(encoded)
    assert read_signature(signed) == (covered, SIGNATURE, key)


@given(st.binary(max_size=300))
def test_any_bytes_have_a_signature_or_none(data):
    signed = read_signature(data)
    assert signed is None or data == with_signature(signed.covered, signed.signature)


@given(st.binary(min_size=1, max_size=80))
def test_a_signature_with_anything_after_it_is_none(more):
    signed = with_signature(b"SDS", SIGNATURE)
    read = read_signature(signed + more)
    assert read is None or read.covered.startswith(signed)
