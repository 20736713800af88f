"""Signed envelopes: a payload with its signer's key and signature, for one purpose (libp2p RFC 0002).

The signature covers a domain, which is not in the envelope, and the payload's type. So a record that was signed for one
purpose cannot be used for another. Invariant: `open_envelope` returns a payload only if its signature is valid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.waku.libp2p.errors import FrameError, IdentityError
from fairway.waku.libp2p.keys import IdentityKey
from fairway.waku.libp2p.proto import envelope_pb2
from fairway.waku.libp2p.protobuf import parse_message
from fairway.waku.libp2p.public_keys import PublicKey
from fairway.wire.varint import length_prefixed

MAX_ENVELOPE_BYTES: Final = 65_536
"""Longer envelopes are not parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedEnvelope:
    """The content of a verified envelope."""

    signer: PublicKey
    """The key that signed it."""
    payload: bytes
    """The signed payload."""


def seal_envelope(key: IdentityKey, *, domain: str, payload_type: bytes, payload: bytes) -> bytes:
    """Return ``payload`` in an envelope that ``key`` signed for ``domain``."""
    return envelope_pb2.Envelope(
        public_key=key.public_key.to_bytes(),
        payload_type=payload_type,
        payload=payload,
        signature=key.sign(_signed_bytes(domain, payload_type, payload)),
    ).SerializeToString(deterministic=True)


def open_envelope(
    data: bytes, *, domain: str, payload_type: bytes, max_bytes: int = MAX_ENVELOPE_BYTES
) -> OpenedEnvelope:
    """Verify an envelope and return its content; raise `IdentityError` unless it is signed for this domain and type."""
    try:
        message = parse_message(envelope_pb2.Envelope, data, max_bytes=max_bytes)
    except FrameError as error:
        raise IdentityError(f"no signed envelope: {error}") from error
    if message.payload_type != payload_type:
        found = message.payload_type[:16].hex()
        raise IdentityError(f"a signed envelope of type {found!r}; expected {payload_type.hex()!r}")
    signer = PublicKey.from_bytes(message.public_key)
    signer.verify(message.signature, _signed_bytes(domain, payload_type, message.payload))
    return OpenedEnvelope(signer=signer, payload=message.payload)


def _signed_bytes(domain: str, payload_type: bytes, payload: bytes) -> bytes:
    """RFC 0002, "Signature Production": each of the three behind its length."""
    return b"".join(length_prefixed(part) for part in (domain.encode(), payload_type, payload))
