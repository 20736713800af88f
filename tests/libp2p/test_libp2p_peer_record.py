import json
from pathlib import Path

import pytest

from fairway.libp2p.errors import IdentityError
from fairway.libp2p.identify import sign_peer_record
from fairway.libp2p.keys import IdentityKey, KeyType
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.proto import envelope_pb2

VECTOR = json.loads((Path(__file__).parents[1] / "vectors" / "libp2p" / "peer_record.json").read_text())
ADDRESSES = (Multiaddr.parse("/ip4/127.0.0.1/tcp/60000"), Multiaddr.parse("/dns4/n.example/tcp/443/wss"))


def opened(sealed):
    """Return the envelope and the record in it."""
    envelope = envelope_pb2.Envelope.FromString(sealed)
    return envelope, envelope_pb2.PeerRecord.FromString(envelope.payload)


def test_a_record_of_go_libp2p_is_written_the_same():
    key = IdentityKey.from_bytes(bytes.fromhex(VECTOR["private_key"]))
    _, record = opened(bytes.fromhex(VECTOR["envelope"]))
    addresses = [Multiaddr.parse(address) for address in VECTOR["addresses"]]
    assert sign_peer_record(key, sequence_number=record.seq, addresses=addresses).hex() == VECTOR["envelope"]


@pytest.mark.parametrize("kind", [KeyType.ED25519, KeyType.SECP256K1])
@pytest.mark.parametrize("number", [0, 2**64 - 1])
def test_a_record_names_its_signer_its_number_and_the_addresses(kind, number):
    key = IdentityKey.generate(kind)
    envelope, record = opened(sign_peer_record(key, sequence_number=number, addresses=ADDRESSES))
    assert envelope.public_key == key.public_key.to_bytes()
    assert record.peer_id == PeerId.from_public_key(key.public_key).multihash
    assert record.seq == number
    assert [entry.multiaddr for entry in record.addresses] == [address.to_bytes() for address in ADDRESSES]


def test_a_signature_covers_domain_type_and_payload_each_behind_its_length():
    key = IdentityKey.from_secret(bytes(range(32)))
    envelope, _ = opened(sign_peer_record(key, sequence_number=7, addresses=()))
    payload = bytes([len(envelope.payload)]) + envelope.payload
    key.public_key.verify(envelope.signature, b"\x12libp2p-peer-record" + b"\x02\x03\x01" + payload)
    with pytest.raises(IdentityError):
        key.public_key.verify(envelope.signature, b"\x04else" + b"\x02\x03\x01" + payload)
