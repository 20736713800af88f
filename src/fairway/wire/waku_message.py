"""WakuMessage, its wire format and its deterministic hash (14/WAKU2-MESSAGE), and the RLN proof it carries.

Invariant: decoding distinguishes "absent" from "present but zero" for every optional field. A message that is decoded
and encoded again has the same meaning for every implementation. Its *bytes* may differ: unknown fields are dropped, and
the field order may change. Nodes relay and store the received bytes. Requests and pushes therefore have
``message_bytes`` and decode on demand.

The hash does not depend on the encoding. Implementations disagree only about an absent or zero timestamp; see
`ZeroTimestamp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Literal

from msgspec import Struct

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.proto import message_pb2
from fairway.wire.protobuf import ENCODE_FAULTS, encode, parse

DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_576
"""Size of the longest message that is parsed: js-waku's limit; nodes usually have 150 KiB (64/WAKU2-NETWORK)."""

DEFAULT_MAX_ENVELOPE_BYTES: Final = DEFAULT_MAX_MESSAGE_BYTES + 65_536
"""Size of the longest request or push with one message that is parsed; nodes allow the same overhead."""

MAX_META_BYTES: Final = 64
"""14/WAKU2-MESSAGE, "Message Attributes": meta has "a maximum length limit of 64 bytes"."""

MAX_PROOF_BYTES: Final = 4_096
"""Size of the longest `RateLimitProof` that is parsed; nodes write 335 bytes."""

MESSAGE_HASH_BYTES: Final = 32
"""Length of a message hash."""

ZeroTimestamp = Literal["include", "omit"]
"""The contribution of an absent or zero timestamp to the message hash.

``"include"``: eight zero bytes, the default. The store nodes of the network do this, so their keys have this hash.
14/WAKU2-MESSAGE, "Message Attributes", reads an omitted timestamp as 0.
``"omit"``: nothing. js-waku does this, also for a timestamp that is present and zero.
For every other timestamp both give the same hash.
"""


class WakuMessage(Struct, frozen=True, kw_only=True, gc=False):
    """A message of the Waku network. ``None`` means absent on the wire."""

    payload: bytes = b""
    """The data of the application."""
    content_topic: str = ""
    """The topic by which filters and stores select messages (23/WAKU2-TOPICS)."""
    version: int | None = None
    """Scheme of payload encryption, a uint32; absent means 0."""
    timestamp_ns: int | None = None
    """Time of creation by the sender, nanoseconds since the Unix epoch, an int64; absent means 0."""
    meta: bytes | None = None
    """At most 64 bytes for the application; part of the hash."""
    rate_limit_proof: bytes | None = None
    """An encoded `RateLimitProof`."""
    ephemeral: bool | None = None
    """True if stores should not keep the message; absent means False."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitProof:
    """An RLN proof (17/WAKU2-RLN-RELAY). Numbers are 32 bytes, little-endian; empty means absent."""

    proof: bytes = b""
    """The zero-knowledge proof, 128 bytes compressed."""
    merkle_root: bytes = b""
    """Root of the membership tree for which the proof was made."""
    epoch: bytes = b""
    """Epoch number."""
    share_x: bytes = b""
    """First coordinate of the share of the identity secret."""
    share_y: bytes = b""
    """Second coordinate of the share."""
    nullifier: bytes = b""
    """Equal for two messages of one member with the same message number in one epoch."""
    rln_identifier: bytes = b""
    """Identifier of the application of RLN; node software writes it, 17/WAKU2-RLN-RELAY does not define it."""


def encode_waku_message(message: WakuMessage) -> bytes:
    """Return ``message`` as protobuf, or raise `ConfigurationError` for a value that a field cannot hold."""
    meta = message.meta
    if meta is not None and len(meta) > MAX_META_BYTES:
        # 14/WAKU2-MESSAGE, "Message Attributes": the limit. Nodes refuse the whole message.
        raise ConfigurationError(f"meta has {len(meta)} bytes, at most {MAX_META_BYTES} are allowed")
    raw = message_pb2.WakuMessage()
    try:
        raw.payload = message.payload
        raw.content_topic = message.content_topic
        if message.version is not None:
            raw.version = message.version
        if message.timestamp_ns is not None:
            raw.timestamp = message.timestamp_ns
        if meta is not None:
            raw.meta = meta
        if message.rate_limit_proof is not None:
            raw.rate_limit_proof = message.rate_limit_proof
        if message.ephemeral is not None:
            raw.ephemeral = message.ephemeral
        return raw.SerializeToString()
    except ENCODE_FAULTS as error:
        raise ConfigurationError(f"WakuMessage cannot be encoded: {error}") from error


def decode_waku_message(data: bytes) -> WakuMessage:
    """Return the message that ``data`` encodes.

    Raises `DecodeError` if ``data`` is longer than `DEFAULT_MAX_MESSAGE_BYTES`, is not protobuf, or has more than 64
    bytes of meta (14/WAKU2-MESSAGE, "Message Attributes"; nodes refuse such a message too).
    """
    parsed = parse(message_pb2.WakuMessage, data, max_bytes=DEFAULT_MAX_MESSAGE_BYTES)
    has = parsed.HasField
    meta = parsed.meta if has("meta") else None
    if meta is not None and len(meta) > MAX_META_BYTES:
        raise DecodeError(f"WakuMessage: meta has {len(meta)} bytes, at most {MAX_META_BYTES} are allowed")
    return WakuMessage(
        payload=parsed.payload,
        content_topic=parsed.content_topic,
        version=parsed.version if has("version") else None,
        timestamp_ns=parsed.timestamp if has("timestamp") else None,
        meta=meta,
        rate_limit_proof=parsed.rate_limit_proof if has("rate_limit_proof") else None,
        ephemeral=parsed.ephemeral if has("ephemeral") else None,
    )


def decode_carried_message(message_bytes: bytes | None) -> WakuMessage:
    """Return the message that a request, a push or a store entry carries.

    Raises `DecodeError` if it carries none, and as `decode_waku_message` does.
    """
    if message_bytes is None:
        raise DecodeError("no WakuMessage where one is needed")
    return decode_waku_message(message_bytes)


def message_hash(pubsub_topic: str, message: WakuMessage, *, zero_timestamp: ZeroTimestamp = "include") -> bytes:
    """Return the 32 bytes that identify ``message`` on ``pubsub_topic`` in the network.

    14/WAKU2-MESSAGE, "Deterministic message hashing": "a message's hash MUST be computed following this
    schema", SHA-256 over pubsub topic, payload, content topic, meta (absent adds nothing) and timestamp
    (int64, big-endian). Version, proof and ephemeral are not hashed. Raises `ConfigurationError` for a
    timestamp beyond 64 bits and for topics that are not Unicode text.
    """
    timestamp_ns = message.timestamp_ns or 0
    try:
        stamped = timestamp_ns != 0 or zero_timestamp == "include"
        stamp = timestamp_ns.to_bytes(8, "big", signed=True) if stamped else b""
        topic = pubsub_topic.encode()
        content_topic = message.content_topic.encode()
    except (OverflowError, UnicodeEncodeError) as error:
        raise ConfigurationError(f"the message has no hash: {error}") from error
    return sha256(b"".join((topic, message.payload, content_topic, message.meta or b"", stamp))).digest()


def encode_rate_limit_proof(proof: RateLimitProof) -> bytes:
    """Return the bytes for `WakuMessage.rate_limit_proof`."""
    return encode(
        message_pb2.RateLimitProof,
        proof=proof.proof,
        merkle_root=proof.merkle_root,
        epoch=proof.epoch,
        share_x=proof.share_x,
        share_y=proof.share_y,
        nullifier=proof.nullifier,
        rln_identifier=proof.rln_identifier,
    )


def decode_rate_limit_proof(data: bytes) -> RateLimitProof:
    """Return the proof that ``data`` encodes, or raise `DecodeError`; the proof is not verified."""
    parsed = parse(message_pb2.RateLimitProof, data, max_bytes=MAX_PROOF_BYTES)
    return RateLimitProof(
        proof=parsed.proof,
        merkle_root=parsed.merkle_root,
        epoch=parsed.epoch,
        share_x=parsed.share_x,
        share_y=parsed.share_y,
        nullifier=parsed.nullifier,
        rln_identifier=parsed.rln_identifier,
    )
