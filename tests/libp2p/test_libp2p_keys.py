import json
import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.libp2p.errors import IdentityError
from fairway.libp2p.keys import IdentityKey, KeyType, PublicKey

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "libp2p" / "keys_and_peer_ids.json").read_text())
OWN_KINDS = (KeyType.ED25519, KeyType.SECP256K1)
SECP256K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

DER = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def keys_by_type(name):
    return next(vector for vector in VECTORS["keys"] if vector["type"] == name)


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda vector: vector["type"])
def test_a_public_key_of_the_specification_is_read_and_written_unchanged(vector):
    key = PublicKey.from_bytes(bytes.fromhex(vector["public"]))
    assert key.type.name.lower() == vector["type"]
    assert key.to_bytes().hex() == vector["public"]


@pytest.mark.parametrize("name", ["ed25519", "secp256k1"])
def test_a_private_key_of_the_specification_leads_to_its_public_key(name):
    vector = keys_by_type(name)
    key = IdentityKey.from_bytes(bytes.fromhex(vector["private"]))
    assert key.public_key.to_bytes().hex() == vector["public"]
    assert key.to_bytes().hex() == vector["private"]


@pytest.mark.parametrize("vector", VECTORS["signatures"], ids=lambda vector: vector["type"])
def test_a_signature_of_go_libp2p_is_verified(vector):
    key = PublicKey.from_bytes(bytes.fromhex(vector["public"]))
    signature, message = bytes.fromhex(vector["signature"]), bytes.fromhex(vector["message"])
    key.verify(signature, message)
    with pytest.raises(IdentityError, match="not a signature"):
        key.verify(signature, message + b".")
    with pytest.raises(IdentityError, match="not a signature"):
        key.verify(signature[:-1], message)


@pytest.mark.parametrize("vector", VECTORS["signatures"][:2], ids=lambda vector: vector["type"])
def test_an_ed25519_signature_is_the_one_that_go_libp2p_makes(vector):
    key = IdentityKey.from_bytes(bytes.fromhex(vector["private"]))
    assert key.sign(bytes.fromhex(vector["message"])).hex() == vector["signature"]


@given(st.binary(max_size=64))
def test_a_secp256k1_signature_has_the_low_s_that_js_libp2p_demands(message):
    signature = IdentityKey.from_secret(b"\x07" * 32, KeyType.SECP256K1).sign(message)
    assert 0 < decode_dss_signature(signature)[1] <= SECP256K1_ORDER // 2


def test_a_peers_secp256k1_signature_with_a_high_s_is_accepted_as_go_libp2p_does():
    key = IdentityKey.generate(KeyType.SECP256K1)
    r, s = decode_dss_signature(key.sign(b"m"))
    key.public_key.verify(encode_dss_signature(r, SECP256K1_ORDER - s), b"m")


def test_a_p256_peer_is_verified():
    own = ec.generate_private_key(ec.SECP256R1())
    key = PublicKey(KeyType.ECDSA, own.public_key().public_bytes(*DER))
    key.verify(own.sign(b"m", ec.ECDSA(hashes.SHA256())), b"m")
    with pytest.raises(IdentityError):
        key.verify(own.sign(b"m", ec.ECDSA(hashes.SHA256())), b"n")


def test_keys_that_are_not_verified_are_refused_with_the_reason():
    p384 = ec.generate_private_key(ec.SECP384R1()).public_key().public_bytes(*DER)
    weak = rsa.generate_private_key(65537, 1024).public_key().public_bytes(*DER)
    with pytest.raises(IdentityError, match="only P-256"):
        PublicKey(KeyType.ECDSA, p384)
    with pytest.raises(IdentityError, match="1024 bits"):
        PublicKey(KeyType.RSA, weak)
    with pytest.raises(IdentityError, match="another kind"):
        PublicKey(KeyType.RSA, p384)
    with pytest.raises(IdentityError, match="33 bytes"):
        PublicKey(KeyType.SECP256K1, bytes(65))
    with pytest.raises(IdentityError):
        PublicKey(KeyType.ED25519, bytes(31))


ED25519 = keys_by_type("ed25519")["public"]


@pytest.mark.parametrize(
    "encoded",
    [
        ED25519[4:] + ED25519[:4],  # the other order
        "088100" + ED25519[4:],  # a type that is not minimal
        ED25519[4:],  # no type
        ED25519[:4],  # no data
        ED25519 + "1801",  # one more field
        "0801" + ED25519,  # a field twice
        "0804" + ED25519[4:],  # an unknown type
        "08" + "ff" * 12,
        "",
    ],
)
def test_any_other_encoding_of_a_public_key_is_refused(encoded):
    with pytest.raises(IdentityError):
        PublicKey.from_bytes(bytes.fromhex(encoded))


def test_an_ed25519_private_key_must_fit_the_public_keys_beside_it():
    older = bytes.fromhex(VECTORS["signatures"][1]["private"])
    assert len(older) == 100
    with pytest.raises(IdentityError):
        IdentityKey.from_bytes(older[:-1] + b"\0")
    newer = bytes.fromhex(keys_by_type("ed25519")["private"])
    with pytest.raises(IdentityError, match="does not belong"):
        IdentityKey.from_bytes(newer[:-1] + b"\0")


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_a_key_file_is_read_in_either_form_and_only_its_owner_may_read_it(tmp_path, kind):
    secret = bytes(range(1, 33))
    key = IdentityKey.from_secret(secret, kind)
    key.save(tmp_path / "node.key")
    own: Ed25519PrivateKey | ec.EllipticCurvePrivateKey = Ed25519PrivateKey.from_private_bytes(secret)
    if kind is KeyType.SECP256K1:
        own = ec.derive_private_key(int.from_bytes(secret), ec.SECP256K1())
    pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "node.pem").write_bytes(own.private_bytes(*pem))
    assert IdentityKey.load(tmp_path / "node.key").to_bytes() == key.to_bytes()
    assert IdentityKey.load(tmp_path / "node.pem").to_bytes() == key.to_bytes()
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "node.key").stat().st_mode) == 0o600


def test_a_key_file_is_never_written_over(tmp_path):
    IdentityKey.generate().save(tmp_path / "node.key")
    before = (tmp_path / "node.key").read_bytes()
    with pytest.raises(FileExistsError):
        IdentityKey.generate().save(tmp_path / "node.key")
    assert (tmp_path / "node.key").read_bytes() == before


@pytest.mark.parametrize("kind", OWN_KINDS)
def test_a_private_key_never_shows(kind):
    secret = bytes(range(1, 33))
    key = IdentityKey.from_secret(secret, kind)
    for text in (repr(key), str(key), repr(key.public_key), f"{[key]}"):
        assert secret.hex() not in text
        assert str(secret)[2:-1] not in text
        assert str(int.from_bytes(secret)) not in text


def test_an_error_about_a_private_key_does_not_show_it():
    encoded = keys_by_type("ecdsa")["private"]
    with pytest.raises(IdentityError) as caught:
        IdentityKey.from_bytes(bytes.fromhex(encoded))
    assert "ECDSA" in str(caught.value) or "32 secret bytes" in str(caught.value)
    assert encoded[60:80] not in str(caught.value).lower()


@pytest.mark.parametrize("secret", [bytes(32), SECP256K1_ORDER.to_bytes(32), b"\x01" * 31])
def test_bytes_that_are_no_secp256k1_secret_are_refused(secret):
    with pytest.raises(ConfigurationError):
        IdentityKey.from_secret(secret, KeyType.SECP256K1)
