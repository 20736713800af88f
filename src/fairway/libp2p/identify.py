"""The identify message, in which a peer describes itself to another, and `IdentifyService`, which exchanges it.

Each side opens ``/ipfs/id/1.0.0`` and reads one message: the peer's key, addresses, protocols and agent, and the
address from which it sees this node (libp2p "Identify"). With ``/ipfs/id/push/1.0.0`` a peer sends the message again
when something has changed, perhaps only some of its fields. A host dials configured addresses only; the address in a
peer's message is for people. Invariant: a message with the key of another peer is refused whole.

go-libp2p and js-libp2p divide a long message into several frames, which the reader merges. nim-libp2p and rust-libp2p
read one frame. So this node writes one frame, which every implementation reads, and reads several.

The message has a signed record of the addresses (RFC 0002, RFC 0003). The RFC and the implementations differ:
go-libp2p, js-libp2p, rust-libp2p and nim-libp2p all use the domain "libp2p-peer-record" and the payload type 0x0301
(multicodec "libp2p-peer-record"), and so does this module. Records of peers are not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from fairway.environment import time_ns
from fairway.libp2p.connection import Connection
from fairway.libp2p.decoding import parse_message
from fairway.libp2p.errors import AddressError, IdentityError
from fairway.libp2p.handlers import Handlers
from fairway.libp2p.keys import IdentityKey, PublicKey
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_book import PeerBook, PeerInfo
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.proto import envelope_pb2, identify_pb2
from fairway.libp2p.stream import Stream
from fairway.wire.varint import length_prefixed

_DOMAIN: Final = b"libp2p-peer-record"
"""Part of the signed bytes, but not of the envelope, so that a signature for one purpose is invalid for another."""
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
    # The message and the signed record each contain an address, with at most 9 bytes of tags and lengths together.
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


TIMEOUT_S: Final = 10.0
"""Time for a peer to send its message, or to read ours."""


class IdentifyService:
    """Both protocols of identify, for one host."""

    def __init__(self, *, key: IdentityKey, agent: str, handlers: Handlers, book: PeerBook) -> None:
        self.addresses: tuple[Multiaddr, ...] = ()
        """The addresses to announce."""
        self._key = key
        self._agent = agent
        self._handlers = handlers
        self._book = book
        self._push_scheduled = False

    async def ask(self, connection: Connection) -> None:
        """Ask a peer for its identify message."""
        async with await connection.open_stream([IDENTIFY_PROTOCOL], TIMEOUT_S) as stream:
            message = await _read_message(stream)
        self._learn(connection.peer_id, message)

    async def answer(self, stream: Stream) -> None:
        """Send the identify message of this host."""
        await stream.write_frame(self._message(stream.connection.observed_address))

    async def receive_push(self, stream: Stream) -> None:
        """Receive a changed identify message of a peer."""
        self._learn(stream.peer_id, await _read_message(stream))

    def push_soon(self) -> None:
        """Send all peers a new identify message at the end of this turn of the event loop."""
        if not self._push_scheduled and self._book.connections():
            self._push_scheduled = True
            asyncio.get_running_loop().call_soon(self._push_to_all)

    def _push_to_all(self) -> None:
        self._push_scheduled = False
        for connection in self._book.connections():
            if not connection.is_closed:
                connection.spawn(self._push(connection), f"identify push to {connection.peer_id}")

    async def _push(self, connection: Connection) -> None:
        async with asyncio.timeout(TIMEOUT_S), await connection.open_stream([IDENTIFY_PUSH_PROTOCOL]) as stream:
            await stream.write_frame(self._message(connection.observed_address))

    def _message(self, observed: Multiaddr) -> bytes:
        return encode_identify(
            key=self._key,
            addresses=self.addresses,
            protocols=self._handlers.protocols,
            agent=self._agent,
            observed=observed,
            # A newer record of a peer must have a greater number, also after a restart.
            sequence_number=time_ns(),
        )

    def _learn(self, peer_id: PeerId, message: bytes) -> None:
        self._book.identified(peer_id, decode_identify(message, peer_id, self._book.info(peer_id)))


async def _read_message(stream: Stream) -> bytes:
    """Return the frames of a message, joined; those that arrived, if the peer does not end the stream in time.

    Raises:
        FrameError: a frame is too long, or the stream ends within one.
        StreamResetError: the stream was reset before the end.
        TimeoutError: no frame arrived in time.

    """
    frames: list[bytes] = []
    room_bytes = MAX_MESSAGE_BYTES
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while len(frames) < MAX_FRAMES and (frame := await stream.read_frame(room_bytes)) is not None:
                frames.append(frame)
                room_bytes -= len(frame)
    except TimeoutError:
        if not frames:
            raise
    return b"".join(frames)
