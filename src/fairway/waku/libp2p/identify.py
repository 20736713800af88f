"""The identify message, in which a peer describes itself to another (libp2p "Identify").

Each side opens ``/ipfs/id/1.0.0`` and reads one message: the peer's key, addresses, protocols and agent, and the
address from which it sees this node. With ``/ipfs/id/push/1.0.0`` a peer sends the message again when something has
changed, perhaps only some of its fields. Of a peer's message the addresses are ignored, because a host dials configured
addresses only. Invariant: a message with the key of another peer is refused whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fairway.waku.libp2p.errors import IdentityError
from fairway.waku.libp2p.keys import IdentityKey
from fairway.waku.libp2p.multiaddr import Multiaddr
from fairway.waku.libp2p.peer_id import PeerId
from fairway.waku.libp2p.peer_record import sign_peer_record
from fairway.waku.libp2p.proto import identify_pb2
from fairway.waku.libp2p.protobuf import parse_message
from fairway.waku.libp2p.public_keys import PublicKey

IDENTIFY_PROTOCOL: Final = "/ipfs/id/1.0.0"
IDENTIFY_PUSH_PROTOCOL: Final = "/ipfs/id/push/1.0.0"
PROTOCOL_VERSION: Final = "ipfs/0.1.0"

MAX_MESSAGE_BYTES: Final = 65_536
_MAX_PROTOCOLS: Final = 512
_MAX_TEXT: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """What a peer says of itself in its identify messages."""

    protocols: frozenset[str] = frozenset()
    """The protocols that it serves."""
    agent: str = ""
    """Name and version of its program."""


def encode_identify(
    *,
    key: IdentityKey,
    addresses: Sequence[Multiaddr],
    protocols: Iterable[str],
    agent: str,
    observed: Multiaddr,
    sequence_number: int,
) -> bytes:
    """Return the message that describes this node to a peer whose address is ``observed``."""
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
    return info
