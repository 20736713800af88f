"""Keys of members: what verifies, what does not, and which bytes are no key."""

import hashlib

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.protocol.signing import SigningKey, public_key_of, public_key_text
from fairway.protocol.signing.keys import SMALL_ORDER, verify

ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
KINDS = pytest.mark.parametrize("kind", ["ed25519", "secp256k1"])


def key_of(name, kind="ed25519"):
    return SigningKey(hashlib.sha256(name.encode()).digest(), kind)


def test_an_ed25519_key_signs_as_rfc_8032_says():
    # RFC 8032, section 7.1, TEST 2.
    key = SigningKey(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    assert key.public_key.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert key.sign(b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )


def test_a_secp256k1_signature_is_ecdsa_with_sha256():
    key = key_of("alice", "secp256k1")
    signature = key.sign(b"hello")
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), key.public_key)
    public.verify(utils.encode_dss_signature(r, s), b"hello", ec.ECDSA(hashes.SHA256()))


@KINDS
def test_a_signature_holds_for_its_key_and_its_data_only(kind):
    alice, bob = key_of("alice", kind), key_of("bob", kind)
    signature = alice.sign(b"hello")
    assert len(signature) == 64
    assert signature == key_of("alice", kind).sign(b"hello"), "signatures are deterministic"
    assert verify(alice.public_key, signature, b"hello")
    assert not verify(bob.public_key, signature, b"hello")
    assert not verify(alice.public_key, signature, b"hallo")


@KINDS
@given(data=st.binary(max_size=50), place=st.integers(0, 511))
def test_no_altered_bit_of_a_signature_verifies(kind, data, place):
    key = key_of("alice", kind)
    altered = bytearray(key.sign(data))
    altered[place // 8] ^= 1 << place % 8
    assert not verify(key.public_key, bytes(altered), data)


@KINDS
@given(signature=st.binary(min_size=64, max_size=64))
def test_any_bytes_are_no_signature(kind, signature):
    assert not verify(key_of("alice", kind).public_key, signature, b"hello")


def test_the_other_valid_s_is_refused():
    key = key_of("alice", "secp256k1")
    signature = key.sign(b"hello")
    mirrored = signature[:32] + (ORDER - int.from_bytes(signature[32:])).to_bytes(32, "big")
    assert verify(key.public_key, signature, b"hello")
    assert not verify(key.public_key, mirrored, b"hello")


@KINDS
def test_a_public_key_is_bytes_or_text(kind):
    key = key_of("alice", kind).public_key
    text = public_key_text(key)
    assert text == f"{kind}:{key.hex()}"
    assert public_key_of(key) == public_key_of(text) == public_key_of(key.hex()) == public_key_of(f" {text}\n") == key


@pytest.mark.parametrize(
    ("given_key", "text"),
    [
        (b"", "0 bytes"),
        (bytes(31), "31 bytes"),
        (bytes(65), "no public key of secp256k1"),
        ("bob", "hexadecimal"),
        ("secp256k1:" + "11" * 32, "which is no secp256k1 key"),
        (7, "a int"),
    ],
)
def test_other_values_are_no_public_key(given_key, text):
    with pytest.raises(ConfigurationError, match=text):
        public_key_of(given_key)


PRIME = 2**255 - 19


def times_eight_is_nothing(encoding):
    """Return whether eight times an encoded point of Ed25519 is the neutral element (RFC 8032, section 5.1)."""
    d = -121665 * pow(121666, -1, PRIME) % PRIME
    y = int.from_bytes(encoding, "little") % PRIME
    x_squared = (y * y - 1) * pow(d * y * y + 1, -1, PRIME) % PRIME
    x = pow(x_squared, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != x_squared:
        x = x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    assert x * x % PRIME == x_squared, "a point of the curve"
    for _ in range(3):
        product = d * x * x * y * y
        x, y = (
            2 * x * y * pow(1 + product, -1, PRIME) % PRIME,
            (y * y + x * x) * pow(1 - product, -1, PRIME) % PRIME,
        )
    return (x, y) == (0, 1)


@pytest.mark.parametrize("encoding", sorted(SMALL_ORDER), ids=lambda encoding: encoding.hex()[:8])
def test_a_key_without_a_secret_is_no_key(encoding):
    assert times_eight_is_nothing(encoding)
    for sign in (0, 0x80):
        with pytest.raises(ConfigurationError, match="no public key of ed25519"):
            public_key_of(encoding[:-1] + bytes([encoding[-1] | sign]))


def test_the_secret_is_not_shown():
    for kind in ("ed25519", "secp256k1"):
        key = key_of("alice", kind)
        assert key.secret.hex() not in repr(key)
        assert key.public_key.hex() in repr(key)
