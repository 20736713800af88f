"""26/WAKU2-PAYLOAD version 1: frame, padding, signature, and what does not open."""

from __future__ import annotations

import hashlib
import hmac
import pickle

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ConfigurationError, DecryptionError, EncryptionError
from fairway.protocol.encryption import (
    EciesPayload,
    Encryption,
    PayloadKeyRing,
    SymmetricPayload,
    decrypt,
    encrypt,
    get_public_key,
    waku_version_of,
)
from fairway.protocol.encryption.aead import MAX_CIPHERTEXT_BYTES
from fairway.protocol.encryption.payload_frame import MAX_PAYLOAD_BYTES
from fairway.protocol.encryption.secp256k1 import PrivateKey

KEY = bytes(range(32))
PRIVATE, SIGNER, STRANGER = (bytes([n]) * 32 for n in (1, 2, 3))
PUBLIC = get_public_key(PRIVATE)


def symmetric(**options):
    return SymmetricPayload(KEY, **options)


def ecies(**options):
    return EciesPayload(private_key=PRIVATE, **options)


both = pytest.mark.parametrize("make", [symmetric, ecies])


def encrypting(frame: bytes) -> bytes:
    """Encrypt any frame, as a dishonest holder of the key can."""
    return AESGCM(KEY).encrypt(bytes(12), frame, None) + bytes(12)


@both
@pytest.mark.parametrize("signer", [None, SIGNER], ids=["unsigned", "signed"])
@examples(0.15)
@given(payload=st.binary(max_size=700))
def test_what_was_encrypted_opens_and_tells_its_signer(make, signer, payload):
    hook = make(sign_with=signer)
    encrypted = encrypt(hook, payload)
    assert decrypt(hook, encrypted) == payload
    opened = hook.open(encrypted)
    assert bytes(opened) == opened.payload == payload
    assert opened.signer_public_key == (None if signer is None else get_public_key(signer))
    assert (opened.signature is None) == (signer is None)


@both
def test_both_ciphers_are_hooks_for_waku_messages_of_version_1(make):
    assert isinstance(make(), Encryption)
    assert waku_version_of(make()) == 1
    assert waku_version_of(PayloadKeyRing(make())) == 1


@both
def test_a_payload_whose_length_has_no_field_is_refused(make):
    with pytest.raises(EncryptionError, match="at most 16777215"):
        make().encrypt(bytes(MAX_PAYLOAD_BYTES + 1))


@both
def test_more_than_the_largest_encrypted_payload_is_refused_unread(make):
    with pytest.raises(DecryptionError, match="more than any"):
        make().decrypt(bytes(MAX_CIPHERTEXT_BYTES + 1))


@both
def test_a_flipped_bit_anywhere_is_noticed(make):
    hook = make()
    encrypted = hook.encrypt(b"whole")
    for bit in range(len(encrypted) * 8):
        altered = bytearray(encrypted)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecryptionError):
            hook.open(bytes(altered))


@both
def test_a_truncated_or_lengthened_message_is_noticed_at_every_length(make):
    hook = make()
    encrypted = hook.encrypt(b"whole")
    for size in range(len(encrypted)):
        with pytest.raises(DecryptionError):
            hook.open(encrypted[:size])
        with pytest.raises(DecryptionError):
            hook.open(encrypted[size + 1 :])
    with pytest.raises(DecryptionError):
        hook.open(encrypted + b"\x00")


@given(frame=st.binary(max_size=300))
def test_any_frame_of_a_dishonest_member_gives_a_payload_of_its_own_or_the_typed_error(frame):
    try:
        opened = symmetric().open(encrypting(frame))
    except DecryptionError:
        return
    assert opened.payload in frame
    assert (opened.signer_public_key is not None) == bool(frame[0] & 4)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        b"\x00\x05hello",
        b"\x04" + bytes(80),
        b"\x01",
        b"\x02\x01",
        b"\x03\x01\x00",
        b"\x01\x06hello",
        b"\x03\xff\xff\xffhello",
        b"\x05\x00",
        b"\x05\x05hello" + bytes(64),
        b"\x05\x06hello" + bytes(65),
        b"\x05\x05hello" + bytes(65),
    ],
    ids=repr,
)
def test_a_frame_that_breaks_a_rule_does_not_open(frame):
    with pytest.raises(DecryptionError):
        symmetric().open(encrypting(frame))


def test_an_ecies_message_without_room_for_its_iv_does_not_open_even_with_a_true_mac():
    # The whole body is 15 bytes: one short of the iv. Its MAC is right, made as a dishonest sender can.
    ephemeral = PrivateKey(STRANGER)
    key_material = hashlib.sha256(b"\x00\x00\x00\x01" + ephemeral.shared_x(PUBLIC)).digest()
    body = bytes(15)
    mac = hmac.digest(hashlib.sha256(key_material[16:]).digest(), body, "sha256")
    with pytest.raises(DecryptionError, match="too few"):
        ecies().open(ephemeral.public_key + body + mac)


def test_the_wrong_key_does_not_open():
    with pytest.raises(DecryptionError):
        SymmetricPayload(KEY[::-1]).decrypt(symmetric().encrypt(b"x"))
    with pytest.raises(DecryptionError):
        EciesPayload(private_key=STRANGER).decrypt(ecies().encrypt(b"x"))


def test_who_has_only_the_public_key_can_encrypt_but_not_open():
    writer = EciesPayload(PUBLIC)
    encrypted = writer.encrypt(b"for you")
    assert ecies().decrypt(encrypted) == b"for you"
    with pytest.raises(DecryptionError, match="no private key"):
        writer.decrypt(encrypted)


@both
def test_with_trusted_signers_only_what_they_signed_opens(make):
    reader = make(trusted_signers=[get_public_key(SIGNER)])
    assert reader.decrypt(make(sign_with=SIGNER).encrypt(b"x")) == b"x"
    for stranger in (make(), make(sign_with=STRANGER)):
        with pytest.raises(DecryptionError, match="trusted"):
            reader.decrypt(stranger.encrypt(b"x"))
    with pytest.raises(DecryptionError, match="trusted"):
        make(trusted_signers=[]).decrypt(make(sign_with=SIGNER).encrypt(b"x"))


def test_a_key_ring_opens_both_kinds_and_encrypts_with_its_first():
    ring = PayloadKeyRing(symmetric(), ecies(sign_with=SIGNER))
    assert ring.decrypt(symmetric().encrypt(b"a")) == b"a"
    assert ring.open(ecies(sign_with=SIGNER).encrypt(b"b")).signer_public_key == get_public_key(SIGNER)
    assert symmetric().decrypt(ring.encrypt(b"c")) == b"c"
    with pytest.raises(DecryptionError):
        ring.decrypt(SymmetricPayload(KEY[::-1]).encrypt(b"d"))
    with pytest.raises(ConfigurationError, match="at least one"):
        PayloadKeyRing()


def test_keys_that_cannot_work_are_refused_where_they_are_given():
    for wrong in (
        lambda: SymmetricPayload(KEY[1:]),
        EciesPayload,
        lambda: EciesPayload(PUBLIC[1:]),
        lambda: EciesPayload(private_key=KEY[1:]),
        lambda: symmetric(sign_with=bytes(32)),
        lambda: symmetric(trusted_signers=[SIGNER]),
    ):
        with pytest.raises(ConfigurationError):
            wrong()


@both
def test_a_bad_source_of_random_bytes_stops_the_encryption(make):
    for source in (lambda _size: b"", lambda _size: None):
        with pytest.raises(EncryptionError, match="source of random bytes"):
            make(random_bytes=source).encrypt(b"x")


def test_a_source_of_zeros_gives_no_ephemeral_key():
    with pytest.raises(EncryptionError, match="ephemeral"):
        ecies(random_bytes=bytes).encrypt(b"x")


@both
def test_a_cipher_shows_no_secret_and_survives_a_copy(make):
    hook = make(sign_with=SIGNER)
    for shown in (repr(hook), repr(PayloadKeyRing(hook))):
        assert get_public_key(SIGNER).hex() in shown
        for secret in (KEY, PRIVATE, SIGNER):
            assert secret.hex() not in shown
            assert repr(secret) not in shown
    copy = pickle.loads(pickle.dumps(hook))
    assert copy.open(hook.encrypt(b"x")).signer_public_key == hook.signer_public_key == get_public_key(SIGNER)
