"""Known answers of js-waku: given its random bytes, fairway encrypts byte for byte the same, and opens it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from fairway.protocol.encryption import Decoder, EciesPayload, Encoder, SymmetricPayload, get_public_key
from fairway.wire.waku_message import decode_waku_message, encode_waku_message

KNOWN = json.loads((Path(__file__).parents[2] / "vectors" / "payload_v1.json").read_text())
TOPIC = KNOWN["content_topic"]
KEY, PRIVATE, PUBLIC, SIGNING, SIGNER = (
    bytes.fromhex(KNOWN[name])
    for name in ("symmetric_key", "private_key", "public_key", "signing_private_key", "signer_public_key")
)


def described(vector) -> str:
    return f"{vector['kind']}, {'signed' if vector['signed'] else 'unsigned'}, {vector['payload_size_bytes']} B"


every_vector = pytest.mark.parametrize("vector", KNOWN["vectors"], ids=described)
whole_vectors = pytest.mark.parametrize(
    "vector", [vector for vector in KNOWN["vectors"] if "sealed" in vector], ids=described
)


def payload_of(vector) -> bytes:
    return bytes((31 * index + 7) % 256 for index in range(vector["payload_size_bytes"]))


def options(vector) -> dict:
    """Sign as the vector says, and give out the random bytes that js-waku was given, in its order."""
    draws = [bytes.fromhex(draw) for draw in vector["draws"]]

    def replayed(size: int) -> bytes:
        draw = draws.pop(0)
        assert len(draw) == size
        return draw

    return {"sign_with": SIGNING if vector["signed"] else None, "random_bytes": replayed}


def reader(vector) -> SymmetricPayload | EciesPayload:
    return SymmetricPayload(KEY) if vector["kind"] == "symmetric" else EciesPayload(private_key=PRIVATE)


def test_the_public_keys_are_those_of_the_private_keys():
    assert get_public_key(PRIVATE) == PUBLIC
    assert get_public_key(SIGNING) == SIGNER


def test_the_vectors_cover_both_ciphers_signed_and_unsigned_around_every_border():
    sizes = {0, 1, 189, 254, 255, 256, 257, 65_535, 65_536, 100_000}
    covered = {(v["kind"], v["signed"], v["payload_size_bytes"]) for v in KNOWN["vectors"]}
    assert covered == {(kind, signed, n) for kind in ("symmetric", "ecies") for signed in (0, 1) for n in sizes}


@whole_vectors
def test_what_js_waku_encrypted_opens(vector):
    opened = reader(vector).open(bytes.fromhex(vector["sealed"]))
    assert opened.payload == payload_of(vector)
    if vector["signed"]:
        assert opened.signature == bytes.fromhex(vector["signature"])
        assert opened.signer_public_key == SIGNER
    else:
        assert opened.signature is opened.signer_public_key is None


@every_vector
def test_the_same_random_bytes_give_the_same_message_and_it_opens(vector):
    if vector["kind"] == "symmetric":
        encoder = Encoder.symmetric(TOPIC, KEY, ephemeral=vector["signed"], **options(vector))
        decoder = Decoder.symmetric(TOPIC, KEY)
    else:
        encoder = Encoder.ecies(TOPIC, PUBLIC, ephemeral=vector["signed"], **options(vector))
        decoder = Decoder.ecies(TOPIC, PRIVATE)
    payload = payload_of(vector)

    message = encoder.encode(payload, int(KNOWN["timestamp_ns"]))

    assert len(message.payload) == vector["sealed_size_bytes"]
    assert hashlib.sha256(message.payload).hexdigest() == vector["sealed_sha256"]
    wire = encode_waku_message(message)
    assert hashlib.sha256(wire).hexdigest() == vector["waku_message_sha256"]
    opened = decoder.decode(decode_waku_message(wire))
    assert opened.payload == payload
    assert opened.signer_public_key == (SIGNER if vector["signed"] else None)
