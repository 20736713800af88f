"""Public key recovery in Python integers, against the curve of the cryptography package."""

from __future__ import annotations

import hashlib
import pickle

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ConfigurationError, DecryptionError
from fairway.protocol.encryption import get_public_key
from fairway.protocol.encryption.secp256k1 import PrivateKey, recover_public_key, require_public_key

ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
GENERATOR = get_public_key((1).to_bytes(32, "big"))
SECRET = bytes(range(1, 33))

scalars = st.integers(1, ORDER - 1)
digests = st.binary(min_size=32, max_size=32)


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def verifies(public_key: bytes, digest: bytes, signature: bytes) -> bool:
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), public_key)
    try:
        key.verify(utils.encode_dss_signature(r, s), digest, ec.ECDSA(utils.Prehashed(hashes.SHA256())))
    except InvalidSignature:
        return False
    return True


@examples(0.25)
@given(secret=scalars, digest=digests)
def test_a_signature_verifies_elsewhere_and_recovers_to_its_signer(secret, digest):
    key = PrivateKey(word(secret))
    signature = key.sign(digest)
    assert len(signature) == 65
    assert verifies(key.public_key, digest, signature)
    assert recover_public_key(digest, signature) == key.public_key


@examples(0.25)
@given(digest=digests)
def test_signatures_are_repeatable_and_have_the_lower_s(digest):
    key = PrivateKey(SECRET)
    signature = key.sign(digest)
    assert signature == key.sign(digest)
    assert int.from_bytes(signature[32:64], "big") <= ORDER // 2


@examples(0.25)
@given(r=scalars, s=scalars, digest=digests, recovery_id=st.sampled_from([0, 1, 27, 28]))
def test_any_signature_recovers_to_a_key_that_verifies_it_or_to_none(r, s, digest, recovery_id):
    signature = word(r) + word(s) + bytes([recovery_id])
    try:
        public_key = recover_public_key(digest, signature)
    except DecryptionError:
        return
    assert verifies(public_key, digest, signature)


@examples(0.25)
@given(s=scalars, z=scalars, mirrored=st.booleans())
def test_recovery_over_the_generator_itself_agrees_with_scalar_arithmetic(s, z, mirrored):
    # R = G or -G: the sum of both bases is then a doubling or the point at infinity.
    r = int.from_bytes(GENERATOR[1:33], "big")
    parity = (GENERATOR[-1] + mirrored) % 2
    scalar = pow(r, -1, ORDER) * ((-s if mirrored else s) - z) % ORDER
    signature = word(r) + word(s) + bytes([parity])
    if scalar:
        assert recover_public_key(word(z), signature) == get_public_key(word(scalar))
    else:
        with pytest.raises(DecryptionError):
            recover_public_key(word(z), signature)


def test_a_signature_that_recovers_to_infinity_has_no_signer():
    z = 12345
    signature = GENERATOR[1:33] + word(z) + bytes([GENERATOR[-1] % 2])
    with pytest.raises(DecryptionError, match="no public key"):
        recover_public_key(word(z), signature)


def test_both_spellings_of_the_recovery_id_and_both_values_of_s_name_the_same_signer():
    key, digest = PrivateKey(SECRET), hashlib.sha256(b"x").digest()
    signature = key.sign(digest)
    recovery_id = signature[64]
    high_s = word(ORDER - int.from_bytes(signature[32:64], "big"))
    for same in (
        signature[:64] + bytes([recovery_id + 27]),
        signature[:32] + high_s + bytes([1 - recovery_id]),
    ):
        assert recover_public_key(digest, same) == key.public_key
    assert recover_public_key(digest, signature[:64] + bytes([1 - recovery_id])) != key.public_key


@pytest.mark.parametrize("recovery_id", [2, 3, 4, 26, 29, 255])
def test_other_recovery_ids_are_refused(recovery_id):
    signature = PrivateKey(SECRET).sign(bytes(32))[:64] + bytes([recovery_id])
    with pytest.raises(DecryptionError, match="0, 1, 27 or 28"):
        recover_public_key(bytes(32), signature)


@pytest.mark.parametrize("size", [0, 64, 66])
def test_signatures_of_other_sizes_are_refused(size):
    with pytest.raises(DecryptionError, match="65 bytes"):
        recover_public_key(bytes(32), bytes(size))


@pytest.mark.parametrize(("r", "s"), [(0, 1), (1, 0), (ORDER, 1), (1, ORDER), (2**256 - 1, 1)])
def test_numbers_outside_the_order_are_refused(r, s):
    with pytest.raises(DecryptionError, match="order"):
        recover_public_key(bytes(32), word(r) + word(s) + b"\x00")


def test_an_r_that_is_no_coordinate_is_refused():
    # 5**3 + 7 has no square root modulo the field's prime.
    with pytest.raises(DecryptionError, match="coordinate"):
        recover_public_key(bytes(32), word(5) + word(1) + b"\x00")


@pytest.mark.parametrize(
    "secret",
    [b"", bytes(31), bytes(33), bytes(32), word(ORDER), b"\xff" * 32, "00" * 32],
    ids=["empty", "short", "long", "zero", "order", "beyond", "text"],
)
def test_bytes_that_are_no_private_key_are_refused(secret):
    with pytest.raises(ConfigurationError):
        get_public_key(secret)


@pytest.mark.parametrize(
    "public_key",
    [
        b"",
        GENERATOR[:-1],
        GENERATOR + b"\x00",
        b"\x02" + GENERATOR[1:33],
        b"\x06" + GENERATOR[1:],
        GENERATOR[:-1] + bytes([GENERATOR[-1] ^ 1]),
        bytes([4]) + bytes(64),
        None,
    ],
    ids=["empty", "short", "long", "compressed", "hybrid", "off the curve", "zero", "none"],
)
def test_bytes_that_are_no_public_key_are_refused(public_key):
    with pytest.raises(ConfigurationError, match="65 bytes"):
        require_public_key(public_key)


def test_a_private_key_shows_only_its_public_half_and_survives_a_copy():
    key = PrivateKey(SECRET)
    assert SECRET.hex() not in repr(key)
    assert key.public_key.hex() in repr(key)
    assert pickle.loads(pickle.dumps(key)).sign(bytes(32)) == key.sign(bytes(32))
