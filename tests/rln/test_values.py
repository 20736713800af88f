"""Field elements, epochs, identities and proofs on the wire: what is accepted, and what every other value is."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecodeError
from fairway.rln.epochs import RlnNetwork, decode_epoch, encode_epoch
from fairway.rln.field import FIELD_ORDER, element, hash_to_field, number_of
from fairway.rln.identity import Identity, rate_commitment
from fairway.rln.native import poseidon
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


@given(st.integers(0, FIELD_ORDER - 1))
def test_a_number_comes_back_from_its_element(number):
    assert number_of(element(number)) == number


@given(st.binary())
def test_whatever_is_hashed_becomes_an_element(data):
    assert 0 <= number_of(hash_to_field(data)) < FIELD_ORDER


def test_hashing_to_the_field_is_keccak_read_from_its_low_end():
    # Keccak-256 of no bytes is c5d2...a470.
    keccak = bytes.fromhex("c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470")
    assert hash_to_field(b"") == element(int.from_bytes(keccak, "little") % FIELD_ORDER)


@pytest.mark.parametrize("data", [b"", bytes(31), bytes(33), FIELD_ORDER.to_bytes(32, "little"), b"\xff" * 32])
def test_other_bytes_are_no_element(data):
    with pytest.raises(DecodeError, match="share_x"):
        number_of(data, "share_x")


@pytest.mark.parametrize("number", [-1, FIELD_ORDER])
def test_other_numbers_are_no_element(number):
    with pytest.raises(ConfigurationError, match=str(number)):
        element(number)


@given(st.integers(0, 2**64 - 1))
def test_an_epoch_comes_back_from_its_bytes(epoch):
    assert decode_epoch(encode_epoch(epoch)) == epoch


@pytest.mark.parametrize("data", [b"", bytes(8), bytes(33), bytes(8) + b"\1" + bytes(23)])
def test_other_bytes_are_no_epoch(data):
    with pytest.raises(DecodeError, match="epoch"):
        decode_epoch(data)


@pytest.mark.parametrize("epoch", [-1, 2**64])
def test_other_numbers_are_no_epoch(epoch):
    with pytest.raises(ConfigurationError, match="epoch"):
        encode_epoch(epoch)


def test_epochs_begin_as_the_validators_count_them():
    network = RlnNetwork()
    assert [network.epoch(now_ms) for now_ms in (0, 599_999, 600_000, 1_791_000_000_000)] == [0, 0, 1, 2_985_000]


@pytest.mark.parametrize(
    "wrong", [{"identifier": b""}, {"identifier": b"x" * 33}, {"epoch_ms": 0}, {"max_epoch_gap": -1}]
)
def test_a_network_that_cannot_be_is_refused(wrong):
    with pytest.raises(ConfigurationError):
        RlnNetwork(**wrong)


def test_the_external_nullifier_is_another_one_in_each_epoch_and_network(compiled):
    network, other = RlnNetwork(), RlnNetwork(identifier=b"another")
    epoch = (2_985_000).to_bytes(8, "little") + bytes(24)
    named = b"rln/waku-rln-relay/v2.0.0" + bytes(7)
    assert network.external_nullifier(2_985_000) == poseidon(hash_to_field(epoch), hash_to_field(named))
    found = [network.external_nullifier(1), network.external_nullifier(2), other.external_nullifier(1)]
    assert len(set(found)) == 3


def test_an_identity_has_the_published_secret_and_commitment(compiled):
    identity = Identity.of(TRAPDOOR, NULLIFIER)
    assert (identity.secret, identity.commitment) == (SECRET, COMMITMENT)


def test_no_text_of_an_identity_shows_a_secret(identities):
    shown = repr(identities[0])
    assert shown == f"Identity(commitment={identities[0].commitment!r})"


def test_new_identities_differ(compiled):
    assert Identity.create().commitment != Identity.create().commitment


@pytest.mark.parametrize("secrets", [(b"", bytes(32)), (bytes(32), b"\xff" * 32)])
def test_secrets_that_are_no_elements_are_refused_without_showing_them(secrets):
    with pytest.raises(DecodeError) as told:
        Identity.of(*secrets)
    assert "xff" not in str(told.value)


def test_a_limit_is_part_of_the_leaf(identities):
    commitment = identities[0].commitment
    assert rate_commitment(commitment, 20) == poseidon(commitment, element(20)) != rate_commitment(commitment, 21)
    with pytest.raises(ConfigurationError, match="limit"):
        rate_commitment(commitment, 0)


@given(PROOFS)
def test_a_proof_comes_back_from_the_wire(proof):
    assert SignalProof.decode(proof.encode()) == proof


@given(PROOFS)
def test_a_proof_has_the_length_that_nodes_write(proof):
    assert len(proof.encode()) == 335


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
