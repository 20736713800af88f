"""The ciphers for a group that shares one key."""

from __future__ import annotations

import pickle

import pytest
from cryptography.hazmat.primitives.ciphers import aead as primitives
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError, DecryptionError, EncryptionError
from fairway.protocol.encryption import AesGcm, ChaCha20Poly1305, Encryption, decrypt, encrypt, generate_key
from fairway.protocol.encryption.aead import MAX_CIPHERTEXT_BYTES, NONCE_BYTES, TAG_BYTES

KEY = bytes(range(32))
NONCE = bytes(range(100, 112))
OVERHEAD = NONCE_BYTES + TAG_BYTES

both = pytest.mark.parametrize("cipher", [AesGcm, ChaCha20Poly1305])


@both
@given(key=st.binary(min_size=32, max_size=32), plaintext=st.binary(max_size=500), bound=st.binary(max_size=20))
def test_what_was_encrypted_opens(cipher, key, plaintext, bound):
    hook = cipher(key, associated_data=bound)
    encrypted = encrypt(hook, plaintext)
    assert len(encrypted) == len(plaintext) + OVERHEAD
    assert decrypt(hook, encrypted) == plaintext


@pytest.mark.parametrize(
    ("cipher", "primitive"),
    [(AesGcm, primitives.AESGCM), (ChaCha20Poly1305, primitives.ChaCha20Poly1305)],
)
def test_the_nonce_comes_first_then_ciphertext_and_tag(cipher, primitive):
    encrypted = cipher(KEY, associated_data=b"team", random_bytes=lambda size: NONCE[:size]).encrypt(b"hello")
    assert encrypted == NONCE + primitive(KEY).encrypt(NONCE, b"hello", b"team")


@both
def test_every_message_gets_a_nonce_of_its_own(cipher):
    hook = cipher(KEY)
    assert len({hook.encrypt(b"same")[:NONCE_BYTES] for _ in range(200)}) == 200


@both
def test_a_flipped_bit_anywhere_is_noticed(cipher):
    hook = cipher(KEY)
    encrypted = hook.encrypt(b"whole")
    for bit in range(len(encrypted) * 8):
        altered = bytearray(encrypted)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecryptionError):
            hook.decrypt(bytes(altered))


@both
def test_another_key_or_another_channel_does_not_open(cipher):
    encrypted = cipher(KEY, associated_data=b"team").encrypt(b"x")
    for other in (
        cipher(KEY[::-1], associated_data=b"team"),
        cipher(KEY, associated_data=b"other"),
        cipher(KEY),
    ):
        with pytest.raises(DecryptionError):
            other.decrypt(encrypted)


@both
@pytest.mark.parametrize("size", [0, 16, 24, 31, 33, 64])
def test_a_key_of_another_length_is_refused_with_both_lengths(cipher, size):
    with pytest.raises(ConfigurationError, match=f"32 bytes, this one has {size};"):
        cipher(bytes(size))


@both
@pytest.mark.parametrize("key", ["00" * 32, bytearray(32), None], ids=lambda key: type(key).__name__)
def test_a_key_of_another_type_is_refused(cipher, key):
    with pytest.raises(ConfigurationError, match=type(key).__name__):
        cipher(key)


@both
def test_no_representation_and_no_error_shows_the_key(cipher):
    secret = b"0123456789abcdef0123456789ABCDEF"
    shown = repr(cipher(secret, associated_data=b"team"))
    with pytest.raises(ConfigurationError) as caught:
        cipher(secret + b"!")
    for text in (shown, str(caught.value)):
        assert "0123456789" not in text
        assert secret.hex() not in text
    assert "team" in shown


@both
def test_a_cipher_can_be_sent_to_another_process(cipher):
    hook = cipher(KEY, associated_data=b"team")
    copy = pickle.loads(pickle.dumps(hook))
    assert copy.decrypt(hook.encrypt(b"x")) == b"x"


@both
def test_a_cipher_is_an_encryption_hook(cipher):
    assert isinstance(cipher(KEY), Encryption)


def broken_source(_size):
    raise OSError("no entropy")


@both
@pytest.mark.parametrize(
    "source",
    [lambda size: bytes(size - 1), lambda size: bytes(size + 1), lambda _size: None, broken_source],
    ids=["short", "long", "none", "failing"],
)
def test_a_bad_source_of_random_bytes_stops_the_encryption(cipher, source):
    with pytest.raises(EncryptionError, match="source of random bytes"):
        cipher(KEY, random_bytes=source).encrypt(b"x")


@both
def test_more_than_the_largest_message_is_refused_in_both_directions(cipher):
    hook = cipher(KEY)
    with pytest.raises(EncryptionError):
        hook.encrypt(bytes(MAX_CIPHERTEXT_BYTES - OVERHEAD + 1))
    with pytest.raises(DecryptionError):
        hook.decrypt(bytes(MAX_CIPHERTEXT_BYTES + 1))


def test_generated_keys_fit_and_differ():
    assert len(generate_key()) == 32
    assert len({generate_key() for _ in range(50)}) == 50
    assert generate_key(random_bytes=lambda size: KEY[:size]) == KEY
