"""The handshake payload, which proves the peer's identity (libp2p "Noise", "Static Key Authentication").

The second and third handshake messages carry a payload: the identity key, and its signature of the static Noise key.
Muxers that a peer names there are ignored. Invariant: a payload is used only if its signature is valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fairway.libp2p.errors import FrameError, HandshakeError, HandshakeFault, IdentityError
from fairway.libp2p.keys import IdentityKey
from fairway.libp2p.noise.pattern import generate_noise_key
from fairway.libp2p.proto import noise_pb2
from fairway.libp2p.protobuf import parse_message
from fairway.libp2p.public_keys import PublicKey

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
            raise HandshakeError(HandshakeFault.BAD_PAYLOAD, "it lacks the identity key or its signature")
        public_key = PublicKey.from_bytes(message.identity_key)
    except (FrameError, IdentityError) as error:
        raise HandshakeError(HandshakeFault.BAD_PAYLOAD, str(error)) from error
    try:
        public_key.verify(message.identity_sig, _SIGNED_PREFIX + remote_static)
    except IdentityError as error:
        detail = "the identity key in the payload did not sign the peer's Noise key"
        raise HandshakeError(HandshakeFault.WRONG_SIGNATURE, detail) from error
    return public_key
