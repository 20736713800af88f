import json
from pathlib import Path

from fairway.libp2p.identify import sign_peer_record
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.proto import envelope_pb2

VECTOR = json.loads((Path(__file__).parents[1] / "vectors" / "libp2p" / "peer_record.json").read_text())


def opened(sealed):
    """Return the envelope and the record in it."""
    envelope = envelope_pb2.Envelope.FromString(sealed)
    return envelope, envelope_pb2.PeerRecord.FromString(envelope.payload)


def test_a_record_of_go_libp2p_is_written_the_same():
    key = IdentityKey.from_bytes(bytes.fromhex(VECTOR["private_key"]))
    _, record = opened(bytes.fromhex(VECTOR["envelope"]))
    addresses = [Multiaddr.parse(address) for address in VECTOR["addresses"]]
    assert sign_peer_record(key, sequence_number=record.seq, addresses=addresses).hex() == VECTOR["envelope"]
