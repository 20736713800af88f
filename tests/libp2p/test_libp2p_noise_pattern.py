import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairway.libp2p.errors import HandshakeError, HandshakeFault
from fairway.libp2p.noise.pattern import Role, SessionKeys, XXHandshake, generate_noise_key
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


def pair():
    return tuple(XXHandshake(role=role, static=generate_noise_key(), ephemeral=generate_noise_key()) for role in Role)


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


def test_nobody_may_speak_out_of_turn():
    initiator, responder = pair()
    with pytest.raises(HandshakeError, match="turn"):
        responder.write_message(b"")
    with pytest.raises(HandshakeError, match="turn"):
        initiator.read_message(b"")
    with pytest.raises(HandshakeError, match="0 of 3"):
        _ = initiator.keys


def test_after_the_last_message_there_is_no_next():
    initiator, responder = pair()
    responder.read_message(initiator.write_message(b""))
    initiator.read_message(responder.write_message(b"from the responder"))
    assert responder.read_message(initiator.write_message(b"from the initiator")) == b"from the initiator"
    assert initiator.turn is responder.turn is None
    assert initiator.message_number == 4
    assert initiator.remote_static is not None
    for side in (initiator, responder):
        with pytest.raises(HandshakeError):
            side.write_message(b"")
        with pytest.raises(HandshakeError):
            side.read_message(b"")


def test_different_prologues_do_not_meet():
    initiator, responder = (
        XXHandshake(role=role, static=generate_noise_key(), ephemeral=generate_noise_key(), prologue=role.name.encode())
        for role in Role
    )
    responder.read_message(initiator.write_message(b""))
    with pytest.raises(HandshakeError) as caught:
        initiator.read_message(responder.write_message(b""))
    assert caught.value.fault is HandshakeFault.WRONG_KEY


# The points of low order on Curve25519 and its twist (RFC 7748, section 6.1, and "May the Fourth" lists): each gives
# an all-zero secret with every private key.
LOW_ORDER = [
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    "ec" + "ff" * 30 + "7f",
    "ed" + "ff" * 30 + "7f",
    "ee" + "ff" * 30 + "7f",
]


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_point_of_low_order_is_refused_by_either_side(point):
    initiator, responder = pair()
    responder.read_message(bytes.fromhex(point))
    with pytest.raises(HandshakeError) as caught:
        responder.write_message(b"")
    assert caught.value.fault is HandshakeFault.LOW_ORDER_POINT
    assert responder.turn is None
    initiator.write_message(b"")
    with pytest.raises(HandshakeError) as caught:
        initiator.read_message(bytes.fromhex(point) + bytes(100))
    assert caught.value.fault is HandshakeFault.LOW_ORDER_POINT
    assert initiator.turn is None


@pytest.mark.parametrize("size", [0, 31, 32, 79, 80, 95])
def test_a_message_that_is_too_short_for_its_parts_is_truncated(size):
    initiator, responder = pair()
    responder.read_message(initiator.write_message(b""))
    with pytest.raises(HandshakeError) as caught:
        initiator.read_message(responder.write_message(b"")[:size])
    assert caught.value.fault is HandshakeFault.TRUNCATED


def test_session_keys_do_not_show():
    keys = SessionKeys(send=b"s" * 32, receive=b"r" * 32, handshake_hash=b"h" * 32)
    assert "sss" not in repr(keys)
    assert "rrr" not in repr(keys)
