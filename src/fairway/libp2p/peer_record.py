"""`sign_peer_record`: a peer's addresses under its own signature (libp2p RFC 0003), in a signed envelope (RFC 0002).

The RFC and the implementations differ: go-libp2p, js-libp2p, rust-libp2p and nim-libp2p all use the domain
"libp2p-peer-record" and the payload type 0x0301 (multicodec "libp2p-peer-record"), and so does this module. Records of
peers are not read: a host dials configured addresses only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.proto import envelope_pb2
from fairway.wire.varint import length_prefixed

_DOMAIN: Final = b"libp2p-peer-record"
"""Part of what is signed, but not of the envelope: a signature for one purpose cannot be used for another."""
_PAYLOAD_TYPE: Final = b"\x03\x01"


def sign_peer_record(key: IdentityKey, *, sequence_number: int, addresses: Sequence[Multiaddr]) -> bytes:
    """Return a signed envelope with the addresses of the owner of ``key``.

    A record with a greater ``sequence_number`` (64 bits) replaces one with a smaller.
    """
    record = envelope_pb2.PeerRecord(
        peer_id=PeerId.from_public_key(key.public_key).multihash,
        seq=sequence_number,
        addresses=[envelope_pb2.PeerRecord.AddressInfo(multiaddr=address.to_bytes()) for address in addresses],
    )
    payload = record.SerializeToString(deterministic=True)
    # RFC 0002, "Signature Production": each of the three behind its length.
    signed = b"".join(length_prefixed(part) for part in (_DOMAIN, _PAYLOAD_TYPE, payload))
    return envelope_pb2.Envelope(
        public_key=key.public_key.to_bytes(), payload_type=_PAYLOAD_TYPE, payload=payload, signature=key.sign(signed)
    ).SerializeToString(deterministic=True)
