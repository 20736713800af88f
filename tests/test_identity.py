"""Keys and members in files."""

import json
import os
import shutil
import stat
import subprocess

import pytest

from fairway import ConfigurationError, Identity, Members, StorageError
from fairway.identity import MAX_LEARNED

BOB, CAROL = Identity(bytes(range(32))), Identity(bytes(range(1, 33)), "secp256k1")


@pytest.mark.parametrize("kind", ["ed25519", "secp256k1"])
def test_an_identity_is_the_same_after_it_was_kept_in_a_file(tmp_path, kind):
    file = tmp_path / "alice.key"
    made = Identity.create(file, kind)
    loaded = Identity.load(file)
    assert (loaded.public_key, loaded.kind) == (made.public_key, kind)
    assert loaded.sign(b"hello") == made.sign(b"hello")
    assert str(loaded) == f"{kind}:{made.public_key.hex()}"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no modes")
def test_only_the_owner_may_read_the_key(tmp_path):
    Identity.create(tmp_path / "alice.key")
    assert stat.S_IMODE((tmp_path / "alice.key").stat().st_mode) == 0o600


def test_a_file_that_exists_is_not_overwritten(tmp_path):
    kept = Identity.create(tmp_path / "alice.key")
    with pytest.raises(ConfigurationError, match="exists"):
        Identity.create(tmp_path / "alice.key")
    assert Identity.load(tmp_path / "alice.key").public_key == kept.public_key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("ed25519", ("genpkey", "-algorithm", "ed25519")),
        ("secp256k1", ("ecparam", "-name", "secp256k1", "-genkey", "-noout")),
        ("secp256k1", ("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:secp256k1")),
    ],
)
def test_keys_of_openssl_are_read(tmp_path, kind, arguments):
    subprocess.run(["openssl", *arguments, "-out", tmp_path / "key.pem"], check=True, capture_output=True)
    assert Identity.load(tmp_path / "key.pem").kind == kind


@pytest.mark.parametrize("data", [b"", b"hello", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_a_file_without_a_key_says_so(tmp_path, data):
    (tmp_path / "alice.key").write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"alice\.key has no private key"):
        Identity.load(tmp_path / "alice.key")
    with pytest.raises(ConfigurationError, match="fairway identity new"):
        Identity.load(tmp_path / "nobody.key")


def test_members_are_read_from_a_file_and_written_to_it(tmp_path):
    file = tmp_path / "team.json"
    file.write_text(json.dumps({"bob": str(BOB)}))
    members = Members.load(file)
    members.trust("carol", CAROL.public_key)
    assert dict(Members.load(file).items()) == {"bob": BOB.public_key, "carol": CAROL.public_key}
    members.forget("bob")
    assert list(Members.load(file)) == ["carol"]
    assert "bob" not in members
    assert not members.learns


@pytest.mark.parametrize(
    "text", ["", "[]", '{"bob": 7}', '{"bob": "ed25519:00"}', '{"": "' + BOB.public_key.hex() + '"}']
)
def test_a_file_that_is_no_list_of_members_says_so(tmp_path, text):
    file = tmp_path / "team.json"
    file.write_text(text)
    for read in (Members.load, Members.trust_on_first_use):
        with pytest.raises(ConfigurationError, match=r"team\.json cannot be read"):
            read(file)


def test_a_missing_list_of_members_is_an_error_unless_it_learns(tmp_path):
    with pytest.raises(ConfigurationError, match=r"team\.json cannot be read"):
        Members.load(tmp_path / "team.json")
    assert len(Members.trust_on_first_use(tmp_path / "team.json")) == 0


def test_the_first_key_of_a_name_stays(tmp_path):
    members = Members.trust_on_first_use(tmp_path / "known.json")
    assert members.learn("bob", BOB.public_key)
    assert not members.learn("bob", CAROL.public_key)
    assert Members.trust_on_first_use(tmp_path / "known.json").get("bob") == BOB.public_key


def test_two_programs_with_one_file_trust_the_same_keys(tmp_path):
    one = Members.trust_on_first_use(tmp_path / "known.json")
    other = Members.trust_on_first_use(tmp_path / "known.json")
    assert one.learn("bob", BOB.public_key)
    assert not other.learn("bob", CAROL.public_key), "the first program has another key for bob"
    assert other.learn("carol", CAROL.public_key)
    assert dict(other.items()) == {"bob": BOB.public_key, "carol": CAROL.public_key}


def test_strangers_cannot_fill_the_list(tmp_path):
    file = tmp_path / "known.json"
    file.write_text(json.dumps({f"stranger {number}": str(BOB) for number in range(MAX_LEARNED)}))
    members = Members.trust_on_first_use(file)
    assert not members.learn("bob", BOB.public_key)
    members.trust("bob", BOB.public_key)
    assert members.learn("bob", BOB.public_key) or members.get("bob") == BOB.public_key


def test_a_key_that_cannot_be_written_is_not_trusted(tmp_path):
    members = Members.trust_on_first_use(tmp_path / "gone" / "known.json")
    with pytest.raises(StorageError, match="gone"):
        members.learn("bob", BOB.public_key)
    assert "bob" not in members
