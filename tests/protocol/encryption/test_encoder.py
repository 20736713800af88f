"""Encoder and decoder of RELIABLE-CHANNEL-API: a content topic and a cipher, held together."""

from __future__ import annotations

import pytest

from fairway.errors import ConfigurationError, DecryptionError, EncryptionError
from fairway.protocol.encryption import (
    AesGcm,
    Decoder,
    EciesPayload,
    Encoder,
    SymmetricPayload,
    get_public_key,
)
from fairway.wire.waku_message import WakuMessage

TOPIC = "/fairway/1/team/proto"
KEY = bytes(range(32))
PRIVATE, SIGNER = b"\x01" * 32, b"\x02" * 32
NOW_NS = 1_700_000_000_000_000_000


class Asynchronous:
    async def encrypt(self, plaintext, /):
        return plaintext

    async def decrypt(self, ciphertext, /):
        return ciphertext


class Custom:
    waku_version = 7

    def encrypt(self, plaintext, /):
        return plaintext[::-1]

    def decrypt(self, ciphertext, /):
        if not ciphertext:
            raise ValueError("nothing to open")
        return ciphertext[::-1]


@pytest.mark.parametrize(
    ("encoder", "decoder", "version"),
    [
        (Encoder(content_topic=TOPIC), Decoder(content_topic=TOPIC), 0),
        (Encoder.symmetric(TOPIC, KEY), Decoder.symmetric(TOPIC, KEY), 1),
        (Encoder.ecies(TOPIC, get_public_key(PRIVATE)), Decoder.ecies(TOPIC, PRIVATE), 1),
        (
            Encoder(content_topic=TOPIC, encryption=AesGcm(KEY)),
            Decoder(content_topic=TOPIC, encryption=AesGcm(KEY)),
            0,
        ),
        (
            Encoder(content_topic=TOPIC, encryption=Custom()),
            Decoder(content_topic=TOPIC, encryption=Custom()),
            7,
        ),
    ],
    ids=["plaintext", "symmetric", "ecies", "AES-GCM", "a caller's own"],
)
def test_what_was_encoded_decodes(encoder, decoder, version):
    message = encoder.encode(b"hello", NOW_NS)
    assert (message.content_topic, message.version, message.timestamp_ns) == (TOPIC, version, NOW_NS)
    assert message.ephemeral is False
    opened = decoder.decode(message)
    assert opened.payload == b"hello"
    assert opened.signer_public_key is None


def test_the_encoder_and_decoder_give_a_channel_its_topic_and_cipher():
    encoder, decoder = Encoder.symmetric(TOPIC, KEY), Decoder.ecies(TOPIC, PRIVATE)
    assert encoder.content_topic == decoder.content_topic == TOPIC
    assert isinstance(encoder.encryption, SymmetricPayload)
    assert isinstance(decoder.encryption, EciesPayload)


@pytest.mark.parametrize("kind", ["symmetric", "ecies"])
def test_a_signed_message_tells_its_signer_and_a_decoder_can_insist_on_one(kind):
    signer = get_public_key(SIGNER)
    if kind == "symmetric":
        signed, unsigned = Encoder.symmetric(TOPIC, KEY, sign_with=SIGNER), Encoder.symmetric(TOPIC, KEY)
        strict = Decoder.symmetric(TOPIC, KEY, trusted_signers=[signer])
    else:
        public = get_public_key(PRIVATE)
        signed, unsigned = Encoder.ecies(TOPIC, public, sign_with=SIGNER), Encoder.ecies(TOPIC, public)
        strict = Decoder.ecies(TOPIC, PRIVATE, trusted_signers=[signer])
    assert strict.decode(signed.encode(b"x", NOW_NS)).signer_public_key == signer
    with pytest.raises(DecryptionError, match="trusted"):
        strict.decode(unsigned.encode(b"x", NOW_NS))


def test_the_other_fields_of_the_message_are_passed_through():
    encoder = Encoder.symmetric(TOPIC, KEY, ephemeral=True)
    message = encoder.encode(b"x", NOW_NS, meta=b"marker", rate_limit_proof=b"proof")
    assert (message.meta, message.rate_limit_proof, message.ephemeral) == (b"marker", b"proof", True)


def test_a_message_on_another_topic_is_not_opened():
    message = Encoder.symmetric("/fairway/1/other/proto", KEY).encode(b"x", NOW_NS)
    with pytest.raises(DecryptionError, match="content topic"):
        Decoder.symmetric(TOPIC, KEY).decode(message)


def test_a_message_of_another_version_is_not_opened():
    encrypted = Encoder.symmetric(TOPIC, KEY).encode(b"x", NOW_NS)
    with pytest.raises(DecryptionError, match="version 1, this decoder opens version 0"):
        Decoder(content_topic=TOPIC).decode(encrypted)
    with pytest.raises(DecryptionError, match="version 0, this decoder opens version 1"):
        Decoder.symmetric(TOPIC, KEY).decode(Encoder(content_topic=TOPIC).encode(b"x", NOW_NS))


@pytest.mark.parametrize("encryption", [object(), bytes(32), "secret", AesGcm], ids=lambda each: type(each).__name__)
def test_what_is_no_cipher_is_refused(encryption):
    with pytest.raises(ConfigurationError, match=r"encryption must be .* encrypt\(bytes\) and decrypt\(bytes\)"):
        Encoder(content_topic=TOPIC, encryption=encryption)


def test_an_asynchronous_cipher_is_for_channels_only():
    encoder = Encoder(content_topic=TOPIC, encryption=Asynchronous())
    decoder = Decoder(content_topic=TOPIC, encryption=Asynchronous())
    with pytest.raises(EncryptionError, match="asynchronous"):
        encoder.encode(b"x", NOW_NS)
    with pytest.raises(DecryptionError, match="asynchronous"):
        decoder.decode(WakuMessage(payload=b"x", content_topic=TOPIC))


@pytest.mark.parametrize("kind", [Encoder, Decoder])
def test_an_empty_topic_or_an_impossible_version_is_refused_when_made(kind):
    with pytest.raises(ConfigurationError, match="content topic"):
        kind(content_topic="")
    impossible = Custom()
    impossible.waku_version = -1
    with pytest.raises(ConfigurationError, match="waku_version"):
        kind(content_topic=TOPIC, encryption=impossible)
