import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairway.libp2p.noise.pattern import Role, SessionKeys, XXHandshake
from fairway.libp2p.noise.session import NoiseSession

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "libp2p" / "noise_xx.json").read_text())["vectors"]


def handshake_of(vector, role):
    prefix = "init" if role is Role.INITIATOR else "resp"
    return XXHandshake(
        role=role,
        static=X25519PrivateKey.from_private_bytes(bytes.fromhex(vector[f"{prefix}_static"])),
        ephemeral=X25519PrivateKey.from_private_bytes(bytes.fromhex(vector[f"{prefix}_ephemeral"])),
        prologue=bytes.fromhex(vector[f"{prefix}_prologue"]),
    )


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["set"])
def test_handshake_and_transport_messages_are_those_of_the_vectors(vector):
    sender, receiver = handshake_of(vector, Role.INITIATOR), handshake_of(vector, Role.RESPONDER)
    for message in vector["messages"][:3]:
        payload, ciphertext = bytes.fromhex(message["payload"]), bytes.fromhex(message["ciphertext"])
        assert sender.write_message(payload) == ciphertext
        assert receiver.read_message(ciphertext) == payload
        sender, receiver = receiver, sender
    assert sender.keys.handshake_hash == receiver.keys.handshake_hash
    assert sender.keys.handshake_hash.hex() == vector.get("handshake_hash", sender.keys.handshake_hash.hex())
    sending, receiving = NoiseSession(sender.keys), NoiseSession(receiver.keys)
    for message in vector["messages"][3:]:
        payload, ciphertext = bytes.fromhex(message["payload"]), bytes.fromhex(message["ciphertext"])
        frame = len(ciphertext).to_bytes(2) + ciphertext
        assert sending.encrypt(payload) == frame
        assert receiving.receive_data(frame) == payload
        sending, receiving = receiving, sending


def test_one_set_of_vectors_pins_the_handshake_hash():
    assert any("handshake_hash" in vector for vector in VECTORS)


def test_session_keys_do_not_show():
    keys = SessionKeys(send=b"s" * 32, receive=b"r" * 32, handshake_hash=b"h" * 32)
    assert "sss" not in repr(keys)
    assert "rrr" not in repr(keys)
