"""The identify message, in which a peer describes itself to another (libp2p "Identify").

Each side opens ``/ipfs/id/1.0.0`` and reads one message: the peer's key, addresses, protocols and agent, and the
address from which it sees this node. With ``/ipfs/id/push/1.0.0`` a peer sends the message again when something has
changed, perhaps only some of its fields. A host dials configured addresses only; the address in a peer's message is for
people. Invariant: a message with the key of another peer is refused whole.

go-libp2p and js-libp2p divide a long message into several frames, which the reader merges. nim-libp2p and rust-libp2p
read one frame. So this node writes one frame, which every implementation reads, and reads several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from fairway.libp2p.errors import AddressError, IdentityError
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.peer_record import sign_peer_record
from fairway.libp2p.proto import identify_pb2
from fairway.libp2p.protobuf import parse_message
from fairway.libp2p.public_keys import PublicKey

IDENTIFY_PROTOCOL: Final = "/ipfs/id/1.0.0"
IDENTIFY_PUSH_PROTOCOL: Final = "/ipfs/id/push/1.0.0"
PROTOCOL_VERSION: Final = "ipfs/0.1.0"

MAX_FRAMES: Final = 10
"""Frames of one message that are read, as many as go-libp2p and js-libp2p read."""
MAX_MESSAGE_BYTES: Final = 65_536
"""Longest message that is read, all frames together."""
MAX_SENT_BYTES: Final = 4_096
"""Longest message that is sent. rust-libp2p reads no longer one, go-libp2p and js-libp2p no longer one than 8,192."""
_MAX_PROTOCOLS: Final = 512
_MAX_TEXT: Final = 256
_MAX_ADDRESSES: Final = 16
"""Addresses of a peer that are read until one can be dialled."""
_LONGER_LENGTHS_BYTES: Final = 4
"""Bytes by which the lengths around a signed record grow with its addresses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """What a peer says of itself in its identify messages."""

    protocols: frozenset[str] = frozenset()
    """The protocols that it serves."""
    agent: str = ""
    """Name and version of its program."""
    address: Multiaddr | None = None
    """The first of its addresses that can be dialled; None if it names none."""


def encode_identify(
    *,
    key: IdentityKey,
    addresses: Sequence[Multiaddr],
    protocols: Sequence[str],
    agent: str,
    observed: Multiaddr,
    sequence_number: int,
) -> bytes:
    """Return the message that describes this node to a peer whose address is ``observed``.

    It has as many of the ``addresses`` as fit `MAX_SENT_BYTES`, the first ones.
    """

    def encoded(fitting: Sequence[Multiaddr]) -> bytes:
        return _encode(key, fitting, protocols, agent, observed, sequence_number)

    message = encoded(addresses)
    if len(message) <= MAX_SENT_BYTES:
        return message
    # An address stands in the message and in the signed record, with at most 9 bytes of tags and lengths for both.
    room = MAX_SENT_BYTES - len(encoded(())) - _LONGER_LENGTHS_BYTES
    sizes = accumulate(2 * len(address.to_bytes()) + 9 for address in addresses)
    return encoded(addresses[: sum(size <= room for size in sizes)])


def _encode(
    key: IdentityKey,
    addresses: Sequence[Multiaddr],
    protocols: Sequence[str],
    agent: str,
    observed: Multiaddr,
    sequence_number: int,
) -> bytes:
    return identify_pb2.Identify(
        public_key=key.public_key.to_bytes(),
        listen_addrs=[address.to_bytes() for address in addresses],
        protocols=list(protocols),
        observed_addr=observed.without_peer_id().to_bytes(),
        protocol_version=PROTOCOL_VERSION,
        agent_version=agent,
        signed_peer_record=sign_peer_record(key, sequence_number=sequence_number, addresses=addresses),
    ).SerializeToString(deterministic=True)


def decode_identify(data: bytes, peer_id: PeerId, known: PeerInfo | None = None) -> PeerInfo:
    """Return the content of a message of ``peer_id``; fields that it leaves out are those of ``known``.

    ``data`` is all frames of the message, joined: protobuf merges them.

    Raises:
        FrameError: ``data`` is no identify message.
        IdentityError: it has the key of another peer.

    """
    message = parse_message(identify_pb2.Identify, data, max_bytes=MAX_MESSAGE_BYTES)
    if message.public_key and PeerId.from_public_key(PublicKey.from_bytes(message.public_key)) != peer_id:
        raise IdentityError(f"{peer_id} sent the key of another peer by identify")
    info = known or PeerInfo()
    if message.protocols:
        info = replace(info, protocols=frozenset(message.protocols[:_MAX_PROTOCOLS]))
    if message.HasField("agent_version"):
        info = replace(info, agent=message.agent_version[:_MAX_TEXT])
    if message.listen_addrs:
        info = replace(info, address=_dialable(message.listen_addrs[:_MAX_ADDRESSES]))
    return info


def _dialable(addresses: Sequence[bytes]) -> Multiaddr | None:
    for encoded in addresses:
        try:
            address = Multiaddr.from_bytes(encoded)
        except AddressError:
            continue
        if address.transport is not None and not address.is_unspecified:
            return address
    return None
