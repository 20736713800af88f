"""Peer records: a peer's addresses under its own signature (libp2p RFC 0003, as identify and gossipsub carry them).

The RFC and the implementations differ: go-libp2p, js-libp2p, rust-libp2p and nim-libp2p all use the domain
"libp2p-peer-record" and the payload type 0x0301 (multicodec "libp2p-peer-record"), and so does this module. Invariant:
a record is accepted only if the peer that it names has signed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError
from fairway.waku.libp2p.envelope import MAX_ENVELOPE_BYTES, open_envelope, seal_envelope
from fairway.waku.libp2p.errors import FrameError, IdentityError
from fairway.waku.libp2p.keys import IdentityKey
from fairway.waku.libp2p.multiaddr import Multiaddr, readable_addresses
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.libp2p.proto import envelope_pb2
from fairway.waku.libp2p.protobuf import parse_message

PEER_RECORD_DOMAIN: Final = "libp2p-peer-record"
PEER_RECORD_TYPE: Final = b"\x03\x01"

MAX_ADDRESSES: Final = 64
"""Addresses of a record that are read; further ones are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRecord:
    """The addresses at which a peer can be reached."""

    peer_id: PeerId
    """The peer, which signed the record."""
    sequence_number: int
    """A record with a greater number replaces one with a smaller (64 bits; often, but not always, a time)."""
    addresses: tuple[Multiaddr, ...]
    """The addresses that could be read; those with protocols unknown here are left out."""


def sign_peer_record(key: IdentityKey, *, sequence_number: int, addresses: Sequence[Multiaddr]) -> bytes:
    """Return a signed envelope with the addresses of the owner of ``key``."""
    if not 0 <= sequence_number < 2**64:
        raise ConfigurationError(f"the sequence number of a peer record has 64 bits; {sequence_number} does not fit")
    record = envelope_pb2.PeerRecord(
        peer_id=PeerId.from_public_key(key.public_key).to_bytes(),
        seq=sequence_number,
        addresses=[envelope_pb2.PeerRecord.AddressInfo(multiaddr=address.to_bytes()) for address in addresses],
    )
    payload = record.SerializeToString(deterministic=True)
    return seal_envelope(key, domain=PEER_RECORD_DOMAIN, payload_type=PEER_RECORD_TYPE, payload=payload)


def open_peer_record(data: bytes, *, max_bytes: int = MAX_ENVELOPE_BYTES) -> PeerRecord:
    """Return the record in an envelope. Raises `IdentityError` unless the peer that it names has signed it."""
    opened = open_envelope(data, domain=PEER_RECORD_DOMAIN, payload_type=PEER_RECORD_TYPE, max_bytes=max_bytes)
    try:
        record = parse_message(envelope_pb2.PeerRecord, opened.payload, max_bytes=max_bytes)
    except FrameError as error:
        raise IdentityError(f"a signed envelope without a peer record: {error}") from error
    signer = PeerId.from_public_key(opened.signer)
    if record.peer_id != signer.multihash:
        raise IdentityError(f"a peer record that {signer} signed for another peer")
    return PeerRecord(
        peer_id=signer,
        sequence_number=record.seq,
        addresses=readable_addresses(entry.multiaddr for entry in record.addresses[:MAX_ADDRESSES]),
    )
