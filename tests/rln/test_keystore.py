"""Keystores: the published known answers, several memberships in a file, and files that are damaged or lie."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import (
    ConfigurationError,
    StoreCorruptError,
    StoreVersionError,
    WrongPasswordError,
)
from fairway.rln.keyfile import Keyfile, decrypted, encrypted
from fairway.rln.keystore import Keystore, KeystoreMembership

pytestmark = pytest.mark.usefixtures("compiled")

KNOWN = json.loads((Path(__file__).parents[1] / "vectors" / "rln" / "keystores.json").read_text())
FEW = 2
"""Rounds of PBKDF2, so that tests take no second each."""


@pytest.fixture
def published(tmp_path) -> Path:
    path = tmp_path / "published.json"
    path.write_text(json.dumps(KNOWN["keystore"]))
    return path


@pytest.fixture(scope="module")
def opened() -> bytes | None:
    """What is encrypted in the published keystore; to derive its key takes long, as it should."""
    (credential,) = KNOWN["keystore"]["credentials"].values()
    return decrypted(msgspec.convert(credential, Keyfile), KNOWN["password"])


@pytest.fixture
def memberships(identities) -> list[KeystoreMembership]:
    contract = "0x8e1F3742B987d8BA376c0CBbD7357fE1F003ED71"
    return [
        KeystoreMembership(identity=identities[0]),
        KeystoreMembership(identity=identities[1], chain_id="59141", contract=contract, index=7, limit=20),
        KeystoreMembership(identity=identities[1], chain_id="59141", contract=contract, index=8, limit=100),
    ]


def test_the_published_keystore_has_the_published_membership(published):
    known = KNOWN["membership"]
    found = Keystore(published).membership(KNOWN["password"])
    assert found.membership_hash == next(iter(KNOWN["keystore"]["credentials"]))
    assert (found.chain_id, found.contract, found.index) == (known["chain_id"], known["contract"], known["index"])
    assert found.limit is None
    for name in ("trapdoor", "nullifier", "secret", "commitment"):
        assert getattr(found.identity, name).hex() == known[name]


@pytest.mark.parametrize("known", KNOWN["keyfiles"], ids=["pbkdf2", "scrypt"])
def test_the_published_keyfiles_have_the_published_secret(known):
    keyfile = msgspec.convert(known["keyfile"], Keyfile)
    assert decrypted(keyfile, known["password"]).hex() == known["secret"]
    assert decrypted(keyfile, "another password") is None


@given(st.binary(max_size=700), st.text(min_size=1), st.integers(1, 5))
def test_a_secret_is_decrypted_with_its_own_password_only(secret, password, rounds):
    keyfile = encrypted(secret, password, rounds=rounds)
    assert decrypted(keyfile, password) == secret
    assert decrypted(keyfile, password + "x") is None
    assert decrypted(msgspec.json.decode(msgspec.json.encode(keyfile), type=Keyfile), password) == secret


def test_a_keystore_is_written_once_with_a_password_and_for_its_owner_alone(tmp_path, memberships):
    path = tmp_path / "alice.keystore"
    with pytest.raises(ConfigurationError, match="empty"):
        Keystore.create(path, memberships, "")
    Keystore.create(path, memberships, "open", rounds=FEW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().count("\n") == 1  # other nodes take each line for a keystore
    with pytest.raises(ConfigurationError, match="exists"):
        Keystore.create(path, [], "open")
    assert len(Keystore(path)) == 3


def test_a_keystore_has_several_memberships_and_finds_each_by_its_hash(tmp_path, memberships):
    names = [each.membership_hash for each in memberships]
    Keystore.create(tmp_path / "alice.keystore", memberships, "open", rounds=FEW)
    again = Keystore(tmp_path / "alice.keystore")
    assert again.memberships("open") == dict(zip(names, memberships, strict=True))
    for name, each in zip(names, memberships, strict=True):
        assert again.membership("open", name.lower()) == each
    with pytest.raises(ConfigurationError, match=f"3 memberships with this password: name one of {names[0]}"):
        again.membership("open")


def test_a_wrong_password_is_an_error_of_its_own(published):
    with pytest.raises(WrongPasswordError, match="check the password"):
        Keystore(published).membership("sup3rsecure ")


def test_a_keystore_without_memberships_raises_an_error(tmp_path):
    keystore = Keystore.create(tmp_path / "alice.keystore", [], "open")
    with pytest.raises(ConfigurationError, match="has no memberships"):
        keystore.memberships("open")
    with pytest.raises(ConfigurationError, match="has no membership AB; it has none"):
        keystore.membership("open", "AB")


def of_crypto(**changes):
    return lambda crypto: crypto | changes


def of_parameters(**changes):
    return lambda crypto: crypto | {"kdfparams": crypto["kdfparams"] | changes}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (of_crypto(cipher="aes-256-gcm"), "cipher 'aes-256-gcm' is unknown"),
        (of_crypto(cipherparams={"iv": "00"}), "the iv has 16 bytes, not 1"),
        (of_crypto(ciphertext="xx"), "the ciphertext is not in hex digits"),
        (of_crypto(mac="0"), "the mac is not in hex digits"),
        (of_crypto(kdf="argon2"), "the key derivation 'argon2' is unknown"),
        (of_crypto(kdf="scrypt"), "the parameters of scrypt are wrong"),
        (of_parameters(c=0), "rounds here, not 0"),
        (of_parameters(c=10**12), "rounds here, not 1000000000000"),
        (of_parameters(c="1"), "the parameters of pbkdf2 are wrong"),
        (of_parameters(prf="hmac-md5"), "pbkdf2 with 'hmac-md5' is not known"),
        (of_parameters(salt="0"), "the salt is not in hex digits"),
        (of_parameters(dklen=16), "a derived key has 32 to 128 bytes, not 16"),
        (
            lambda crypto: (
                crypto | {"kdf": "scrypt", "kdfparams": {"dklen": 32, "n": 1 << 40, "r": 8, "p": 1, "salt": "00"}}
            ),
            "128 \\* n \\* r at most",
        ),
        (
            lambda crypto: crypto | {"kdf": "scrypt", "kdfparams": {"dklen": 32, "n": 3, "r": 8, "p": 1, "salt": "00"}},
            "n is a power of 2",
        ),
    ],
)
def test_a_keystore_that_cannot_be_decrypted_raises_an_error_with_the_reason(published, change, said):
    file = json.loads(published.read_text())
    name = next(iter(file["credentials"]))
    file["credentials"][name]["crypto"] = change(file["credentials"][name]["crypto"])
    published.write_text(json.dumps(file))
    with pytest.raises(StoreCorruptError, match=f"the membership {name}: .*{said}"):
        Keystore(published).membership(KNOWN["password"])


@pytest.mark.parametrize("place", ["ciphertext", "mac"])
def test_a_changed_ciphertext_or_mac_is_never_decrypted(tmp_path, memberships, place):
    path = tmp_path / "alice.keystore"
    Keystore.create(path, memberships[:1], "open", rounds=FEW)
    file = json.loads(path.read_text())
    crypto = file["credentials"][memberships[0].membership_hash]["crypto"]
    crypto[place] = f"{int(crypto[place][:1], 16) ^ 1:x}{crypto[place][1:]}"
    path.write_text(json.dumps(file))
    with pytest.raises(WrongPasswordError):
        Keystore(path).membership("open")


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        (b"", "no membership"),
        (b"\xff", "no membership"),
        (b'{"treeIndex": 1}', "no membership"),
        ({"identityCredential": {"idTrapdoor": [256]}}, "no membership"),
        ({"identityCredential": {"idTrapdoor": [255] * 32}}, "the trapdoor is not below the order"),
        ({"identityCredential": {"idNullifier": [1]}}, "the nullifier has 32 bytes, not 1"),
        ({"identityCredential": {"idSecretHash": [0] * 32}}, "does not follow from the other secrets"),
        ({"identityCredential": {"idCommitment": [0] * 32}}, "does not follow from the other secrets"),
        ({"treeIndex": -1}, "the index -1 is no place"),
        ({"treeIndex": 1 << 32}, "is no place in a group"),
    ],
)
def test_decrypted_bytes_that_are_no_membership_are_refused(published, opened, plain, said):
    file = json.loads(published.read_text())
    (name,) = file["credentials"]
    if isinstance(plain, dict):
        told = json.loads(opened)
        told["identityCredential"] |= plain.pop("identityCredential", {})
        plain = json.dumps(told | plain).encode()
    file["credentials"][name] = msgspec.to_builtins(encrypted(plain, "open", rounds=FEW))
    published.write_text(json.dumps(file))
    with pytest.raises(StoreCorruptError, match=said):
        Keystore(published).membership("open")


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"version": "9.9"}, StoreVersionError, "version '9.9'; '0.2' is supported"),
        ({"application": "another"}, StoreCorruptError, "application 'another'"),
        ({"credentials": []}, StoreCorruptError, "no keystore"),
        ({"credentials": {"AB": {"crypto": {}}}}, StoreCorruptError, "no keystore"),
    ],
)
def test_a_file_that_is_no_keystore_of_ours_is_refused(published, change, error, said):
    published.write_text(json.dumps(KNOWN["keystore"] | change))
    with pytest.raises(error, match=said):
        Keystore(published)
