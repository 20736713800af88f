"""Keys open what is theirs, and are in no text that anybody sees."""

from __future__ import annotations

import json
import os
import pickle
import traceback

import pytest

from fairway.errors import ConfigurationError, DecryptionError
from fairway.pipeline.keys import ChannelKeys
from fairway.protocol.encryption import AesGcm, ChaCha20Poly1305, SymmetricPayload

TEAM, OTHER, OLD = bytes(range(32)), bytes(range(1, 33)), bytes(range(2, 34))
TOPIC = "/app/1/encrypted/proto"


def entry(key: bytes, cipher: str = "aes-256-gcm", **more: str) -> dict[str, str]:
    return {"cipher": cipher, "key": key.hex(), **more}


def keys() -> ChannelKeys:
    return ChannelKeys.from_mapping(
        {
            "team": [entry(TEAM), entry(OLD)],
            "other": entry(OTHER, "chacha20-poly1305"),
            TOPIC: entry(OTHER, "payload-v1"),
        }
    )


@pytest.mark.parametrize(
    ("cipher", "channel_id"),
    [(AesGcm(TEAM), "team"), (AesGcm(OLD), "team"), (ChaCha20Poly1305(OTHER), "other")],
)
def test_the_key_of_a_channel_opens_its_messages_on_any_topic_without_keys(cipher, channel_id):
    for _ in range(2):  # the second time it is tried first
        opened = keys().open("/app/1/any/proto", cipher.encrypt(b"hello"))
        assert opened == (b"hello", channel_id, False)


def test_on_a_topic_that_has_a_key_nothing_is_taken_in_clear():
    assert keys().open(TOPIC, SymmetricPayload(OTHER).encrypt(b"hello")) == (b"hello", None, False)
    assert keys().open(TOPIC, AesGcm(TEAM).encrypt(b"hello")) == (b"hello", "team", False)
    for payload in (b"in clear, and long enough to be sealed", AesGcm(bytes(32)).encrypt(b"hello")):
        with pytest.raises(DecryptionError):
            keys().open(TOPIC, payload)


def test_what_no_key_opens_is_taken_to_be_in_clear():
    assert keys().open("/app/1/any/proto", b"hello") == (b"hello", None, True)


@pytest.mark.parametrize(
    ("topic", "cipher", "why"),
    [
        ("/app/1/any/proto", None, "in clear"),
        (TOPIC, SymmetricPayload(OTHER), "key of its topic"),
        ("/app/1/any/proto", ChaCha20Poly1305(OTHER), "key of channel other"),
    ],
)
def test_a_channel_that_has_a_key_takes_nothing_that_this_key_did_not_open(topic, cipher, why):
    opened = keys().open(topic, b"hello" if cipher is None else cipher.encrypt(b"hello"))
    assert why in (keys().refusal(opened, "team") or "")
    assert (keys().refusal(opened, "nobody's") is None) is (opened.channel_id is None)


def test_a_channel_that_has_a_key_sends_with_it_wherever_it_sends():
    encrypted = keys().cipher_for_sending("team", TOPIC, lambda _key, _context: os.urandom).encrypt(b"hello")
    assert keys().refusal(keys().open(TOPIC, encrypted), "team") is None


def test_associated_data_must_agree():
    bound = ChannelKeys.from_mapping({"team": entry(TEAM, associated_data="team")})
    assert bound.open("", AesGcm(TEAM, associated_data=b"team").encrypt(b"x")).channel_id == "team"
    assert bound.open("", AesGcm(TEAM).encrypt(b"x")).in_clear


def test_keys_survive_being_shipped_and_are_in_no_text():
    shipped = pickle.loads(pickle.dumps(keys()))
    assert shipped.open("", AesGcm(TEAM).encrypt(b"hello")).plaintext == b"hello"
    for text in (repr(shipped), str(shipped), shipped.digest(b"salt")):
        assert not any(form in text for key in (TEAM, OTHER, OLD) for form in (key.hex(), repr(key)))


def test_the_digest_changes_with_keys_and_salt():
    other = ChannelKeys.from_mapping({"team": entry(OTHER)})
    assert keys().digest(b"1") == keys().digest(b"1")
    assert len({keys().digest(b"1"), keys().digest(b"2"), other.digest(b"1")}) == 3


SECRET = "5ec7e7" * 10 + "abcd"


@pytest.mark.parametrize(
    "text",
    [
        f'{{"team": {{"cipher": "aes-256-gcm", "key": "{SECRET}"',
        json.dumps([SECRET]),
        json.dumps({"team": SECRET}),
        json.dumps({"team": []}),
        json.dumps({"team": {"cipher": "rot13", "key": SECRET}}),
        json.dumps({"team": {"cipher": SECRET, "key": SECRET}}),
        json.dumps({"team": {"cipher": "aes-256-gcm", "key": SECRET + "zz"}}),
        json.dumps({"team": {"cipher": "aes-256-gcm", "key": SECRET + "00"}}),
        json.dumps({"team": {"cipher": "aes-256-gcm", "key": [SECRET]}}),
        json.dumps({"team": {"cipher": "aes-256-gcm", "key": SECRET, "associated_data": 7}}),
        json.dumps({"team": {"cipher": "payload-v1", "key": SECRET, "associated_data": "x"}}),
        json.dumps({"team": {"cipher": "aes-256-gcm", "key": SECRET, "kei": SECRET}}),
    ],
)
def test_a_key_file_that_cannot_be_used_is_refused_without_being_quoted(tmp_path, text):
    path = tmp_path / "keys.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        ChannelKeys.from_file(path)
    told = "".join(traceback.format_exception(refused.value))
    assert SECRET[:12] not in told


def test_a_key_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        ChannelKeys.from_file(tmp_path / "none.json")
