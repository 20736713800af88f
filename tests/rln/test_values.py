"""Field elements, epochs, identities and proofs on the wire: what is accepted, and what every other value is."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.rln.epochs import RlnNetwork, decode_epoch, encode_epoch
from fairway.rln.field import FIELD_ORDER, element, hash_to_field, number_of, poseidon
from fairway.rln.identity import RlnIdentity
from fairway.rln.proof import SignalProof, recover_secret
from fairway.wire.waku_message import RateLimitProof, decode_rate_limit_proof, encode_rate_limit_proof

ELEMENTS = st.integers(0, FIELD_ORDER - 1).map(element)
PROOFS = st.builds(
    SignalProof,
    proof=st.binary(min_size=128, max_size=128),
    root=ELEMENTS,
    epoch=st.integers(0, 2**64 - 1),
    share_x=ELEMENTS,
    share_y=ELEMENTS,
    nullifier=ELEMENTS,
    identifier=st.binary(min_size=32, max_size=32),
)
# The identity of the known answer in WAKU-RLN-KEYSTORE, "Test Vectors".
TRAPDOOR = bytes.fromhex("d317422ab382836fc9cdf4221beef4d883f0bc2dc1ac04a8e1e12bc572b07e09")
NULLIFIER = bytes.fromhex("eea8ef41493f6913843ed5cdbfffd109b29befc9837de988f6d909ed3759512a")
SECRET = bytes.fromhex("9636c21c12d88afd5f8b786d6281926529c224246098985997a0760fde7cbb04")
COMMITMENT = bytes.fromhex("70d81b59bc87cb13a8d3750de787e53a5e14f6082141ee25706141f1ff5dab0f")


def test_hashing_to_the_field_is_keccak_read_from_its_low_end():
    # Keccak-256 of no bytes is c5d2...a470.
    keccak = bytes.fromhex("c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470")
    assert hash_to_field(b"") == element(int.from_bytes(keccak, "little") % FIELD_ORDER)


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(33), FIELD_ORDER.to_bytes(32, "little"), b"\xff" * 32])
def test_other_bytes_are_no_element(data):
    with pytest.raises(DecodeError, match="share_x"):
        number_of(data, "share_x")


@given(st.integers(0, 2**64 - 1))
def test_an_epoch_survives_the_wire(epoch):
    assert decode_epoch(encode_epoch(epoch)) == epoch


@pytest.mark.parametrize("data", [b"", bytes(8), bytes(33), bytes(8) + b"\1" + bytes(23)])
def test_other_bytes_are_no_epoch(data):
    with pytest.raises(DecodeError, match="epoch"):
        decode_epoch(data)


def test_the_external_nullifier_is_another_one_in_each_epoch_and_network(compiled):
    network, other = RlnNetwork(), RlnNetwork(identifier=b"another")
    epoch = (2_985_000).to_bytes(8, "little") + bytes(24)
    named = b"rln/waku-rln-relay/v2.0.0" + bytes(7)
    assert network.external_nullifier(2_985_000) == poseidon(hash_to_field(epoch), hash_to_field(named))
    found = [network.external_nullifier(1), network.external_nullifier(2), other.external_nullifier(1)]
    assert len(set(found)) == 3


def test_an_identity_has_the_published_secret_and_commitment(compiled):
    identity = RlnIdentity.of(TRAPDOOR, NULLIFIER)
    assert (identity.secret, identity.commitment) == (SECRET, COMMITMENT)


def test_no_text_of_an_identity_shows_a_secret(identities):
    shown = repr(identities[0])
    assert shown == f"RlnIdentity(commitment={identities[0].commitment!r})"


@pytest.mark.parametrize("secrets", [(b"", bytes(32)), (bytes(32), b"\xff" * 32)])
def test_secrets_that_are_no_elements_are_refused_without_showing_them(secrets):
    with pytest.raises(DecodeError) as told:
        RlnIdentity.of(*secrets)
    assert "xff" not in str(told.value)


@given(PROOFS)
def test_a_proof_survives_the_wire(proof):
    assert SignalProof.decode(proof.encode()) == proof


@given(PROOFS, st.data())
def test_a_proof_with_a_field_that_cannot_be_is_refused(proof, data):
    name = data.draw(st.sampled_from(list(asdict(RateLimitProof()))))
    wrong = data.draw(st.binary(max_size=200).filter(lambda value: len(value) not in {32, 128}))
    wire = replace(decode_rate_limit_proof(proof.encode()), **{name: wrong})
    with pytest.raises(DecodeError):
        SignalProof.decode(encode_rate_limit_proof(wire))


@given(st.binary(max_size=400))
def test_any_other_bytes_are_a_decode_error(data):
    with pytest.raises(DecodeError):
        SignalProof.decode(data)


@given(*[st.integers(0, FIELD_ORDER - 1)] * 4, PROOFS)
def test_two_points_of_a_line_give_the_secret_and_one_does_not(secret, slope, x1, x2, proof):
    first, second = (
        replace(proof, share_x=element(x), share_y=element((secret + slope * x) % FIELD_ORDER)) for x in (x1, x2)
    )
    assert recover_secret(first, first) is None
    assert recover_secret(first, second) == (element(secret) if x1 != x2 else None)
