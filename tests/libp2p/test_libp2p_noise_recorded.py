"""A handshake of js-libp2p, replayed: every byte it put on the wire is made or understood here."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.noise.handshake import NoiseCredentials, NoiseHandshake, read_payload
from fairway.libp2p.noise.pattern import Role, XXHandshake
from fairway.libp2p.peer_id import PeerId

RECORD = json.loads((Path(__file__).parents[1] / "vectors" / "libp2p" / "noise_js.json").read_text())
MESSAGES = [bytes.fromhex(message) for message in RECORD["messages"]]


def key_of(role, name):
    return X25519PrivateKey.from_private_bytes(bytes.fromhex(RECORD[role.value][name]))


def credentials_of(role):
    identity = IdentityKey.from_bytes(bytes.fromhex(RECORD[role.value]["private_key"]))
    return NoiseCredentials.make(identity, key_of(role, "static"))


def replayed():
    """Return both sides, and the payloads of the recorded messages."""
    sides = [
        XXHandshake(role=role, static=key_of(role, "static"), ephemeral=key_of(role, "ephemeral")) for role in Role
    ]
    sender, receiver = sides
    payloads = []
    for message in MESSAGES:
        payloads.append(receiver.read_message(message[2:]))
        sent = sender.write_message(payloads[-1])
        assert len(sent).to_bytes(2) + sent == message
        sender, receiver = receiver, sender
    return *sides, payloads


def test_every_recorded_message_is_read_and_made_byte_for_byte():
    initiator, responder, payloads = replayed()
    assert initiator.keys.handshake_hash == responder.keys.handshake_hash
    assert payloads[0] == b""


@pytest.mark.parametrize(("role", "number"), [(Role.RESPONDER, 1), (Role.INITIATOR, 2)])
def test_the_recorded_identities_are_proven(role, number):
    initiator, responder, payloads = replayed()
    remote_static = (initiator if role is Role.RESPONDER else responder).remote_static
    assert remote_static == key_of(role, "static").public_key().public_bytes_raw()
    public_key = read_payload(payloads[number], remote_static)
    assert str(PeerId.from_public_key(public_key)) == RECORD[role.value]["peer_id"]


def test_an_initiator_accepts_the_recorded_answer():
    expected = PeerId.parse(RECORD["responder"]["peer_id"])
    handshake = NoiseHandshake(
        role=Role.INITIATOR,
        credentials=credentials_of(Role.INITIATOR),
        ephemeral=key_of(Role.INITIATOR, "ephemeral"),
        expected_peer=expected,
    )
    assert handshake.data_to_send() == MESSAGES[0]
    secured = handshake.receive_data(MESSAGES[1])
    assert secured is not None
    assert secured.peer_id == expected
