"""The Noise handshake of libp2p: its frames, and the identities of both sides (libp2p "Noise").

The second and third handshake messages carry a payload: the identity key, and its signature of the static Noise key
("Static Key Authentication"). Muxers that a peer names there are ignored. Invariant: a payload is used only if its
signature is valid.

No I/O: pass received bytes to `NoiseHandshake.receive_data`, and send the bytes of `NoiseHandshake.data_to_send`, until
`Secured` is returned. A peer with an unexpected identity is refused as soon as its payload is read. So the initiator
does not send its own identity to that peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairway.libp2p.decoding import parse_message
from fairway.libp2p.errors import FrameError, HandshakeError, IdentityError
from fairway.libp2p.keys import IdentityKey, PublicKey
from fairway.libp2p.noise.pattern import KEY_BYTES, TAG_BYTES, Role, XXHandshake, generate_noise_key
from fairway.libp2p.noise.session import NoiseSession
from fairway.libp2p.peer_id import PeerId
from fairway.libp2p.proto import noise_pb2

MAX_PAYLOAD_BYTES: Final = 16_384
"""Longer handshake payloads are not parsed; one with an RSA key of 8,192 bits has some 2,200 bytes."""

_SIGNED_PREFIX: Final = b"noise-libp2p-static-key:"


@dataclass(frozen=True, slots=True)
class NoiseCredentials:
    """The Noise key of a node, signed by its identity key; made once and used for every handshake.

    "a single static keypair may be generated when noise-libp2p is initialized and used for all sessions". It must not
    be stored.
    """

    identity: PublicKey
    """The node's identity key."""
    static: X25519PrivateKey
    """The node's Noise key."""
    signature: bytes
    """The identity key's signature of the Noise key."""

    @classmethod
    def make(cls, identity: IdentityKey, static: X25519PrivateKey | None = None) -> NoiseCredentials:
        """Sign ``static``, or a new key, with the node's identity."""
        key = generate_noise_key() if static is None else static
        signature = identity.sign(_SIGNED_PREFIX + key.public_key().public_bytes_raw())
        return cls(identity.public_key, key, signature)

    def payload(self) -> bytes:
        """Return the handshake payload."""
        payload = noise_pb2.NoiseHandshakePayload(identity_key=self.identity.to_bytes(), identity_sig=self.signature)
        return payload.SerializeToString()


def read_payload(payload: bytes, remote_static: bytes) -> PublicKey:
    """Return the identity key in a payload that signs ``remote_static``, the peer's Noise key (32 bytes).

    Raises `HandshakeError` for an invalid payload or signature.
    """
    try:
        message = parse_message(noise_pb2.NoiseHandshakePayload, payload, max_bytes=MAX_PAYLOAD_BYTES)
        if not message.identity_key or not message.identity_sig:
            raise HandshakeError("the payload lacks the identity key or its signature")
        public_key = PublicKey.from_bytes(message.identity_key)
    except (FrameError, IdentityError) as error:
        raise HandshakeError(f"the payload cannot be read: {error}") from error
    try:
        public_key.verify(message.identity_sig, _SIGNED_PREFIX + remote_static)
    except IdentityError as error:
        raise HandshakeError("the identity key in the payload did not sign the peer's Noise key") from error
    return public_key


NOISE_PROTOCOL: Final = "/noise"
"""The name for multistream-select."""

_WITH_IDENTITY: Final = (2, 3)
"""The messages that carry a payload; the first one is not encrypted."""

_LONGEST_MESSAGE: Final = KEY_BYTES + (KEY_BYTES + TAG_BYTES) + MAX_PAYLOAD_BYTES + TAG_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """The result of a handshake."""

    peer_id: PeerId
    """The peer's id, which the handshake has proven."""
    session: NoiseSession
    """Encrypts and decrypts the bytes after the handshake."""
    leftover: bytes
    """Encrypted frames that arrived behind the handshake, for ``session.receive_data``."""


class NoiseHandshake:
    """One side of a handshake.

    ``ephemeral`` must be a new key for each handshake. ``expected_peer`` is the only peer to accept; None: any.
    """

    __slots__ = (
        "_buffer",
        "_credentials",
        "_expected_peer",
        "_noise",
        "_out",
        "_peer_id",
        "_role",
    )

    def __init__(
        self,
        *,
        role: Role,
        credentials: NoiseCredentials,
        ephemeral: X25519PrivateKey,
        expected_peer: PeerId | None = None,
    ) -> None:
        self._role = role
        self._credentials = credentials
        self._expected_peer = expected_peer
        self._noise = XXHandshake(role=role, static=credentials.static, ephemeral=ephemeral)
        self._buffer = bytearray()
        self._out: list[bytes] = []
        self._peer_id: PeerId | None = None
        self._send_our_messages()

    def data_to_send(self) -> bytes:
        """Return the bytes to send now, perhaps none; also after `Secured`, for the initiator's last message."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def receive_data(self, data: bytes) -> Secured | None:
        """Process received bytes; return `Secured` after the last message.

        After a `HandshakeError` the connection must be closed.
        """
        self._buffer += data
        while self._noise.turn is not None and (message := self._next_message()) is not None:
            self._read(message)
            self._send_our_messages()
        return self._finish() if self._noise.turn is None else None

    def _next_message(self) -> bytes | None:
        if len(self._buffer) < 2:
            return None
        size = int.from_bytes(self._buffer[:2])
        if size > _LONGEST_MESSAGE:
            raise HandshakeError(
                f"message {self._noise.message_number} claims {size} bytes, at most {_LONGEST_MESSAGE} are read"
            )
        if len(self._buffer) < 2 + size:
            return None
        message = bytes(self._buffer[2 : 2 + size])
        del self._buffer[: 2 + size]
        return message

    def _read(self, message: bytes) -> None:
        number = self._noise.message_number
        payload = self._noise.read_message(message)
        remote_static = self._noise.remote_static
        if number not in _WITH_IDENTITY or remote_static is None:
            return
        self._peer_id = PeerId.from_public_key(read_payload(payload, remote_static))
        if self._expected_peer is not None and self._peer_id != self._expected_peer:
            detail = (
                f"expected {self._expected_peer}, found {self._peer_id}: the node has another key than before, or "
                "another node is there now; give its present address"
            )
            raise HandshakeError(detail)

    def _send_our_messages(self) -> None:
        while self._noise.turn is self._role:
            with_identity = self._noise.message_number in _WITH_IDENTITY
            payload = self._credentials.payload() if with_identity else b""
            message = self._noise.write_message(payload)
            self._out.append(len(message).to_bytes(2) + message)

    def _finish(self) -> Secured:
        if self._peer_id is None:
            raise HandshakeError("the peer sent no identity")
        return Secured(peer_id=self._peer_id, session=NoiseSession(self._noise.keys), leftover=bytes(self._buffer))
