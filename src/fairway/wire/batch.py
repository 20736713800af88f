"""Batches: several small messages in one SDS message.

A batch is an `Envelope` of kind BATCH. Its content is a ``Batch`` of fairway's own schema (docs/requests.md). Each
payload in it is a message of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fairway.errors import DecodeError
from fairway.wire.envelope import ENVELOPE_PREFIX, MAX_ENVELOPE_BYTES
from fairway.wire.proto import envelope_pb2 as pb
from fairway.wire.protobuf import encode, parse

MAX_BATCH: Final = 1_000
"""Most payloads in a batch."""
_HEADER_BYTES: Final = 24
"""Largest size of the prefix, the kind, and the tag and length of the content."""
_HEADER_BYTES_OF_PAYLOAD: Final = 6
"""Largest size of the tag and length of a payload."""


def batch_bytes(count: int, payload_bytes: int) -> int:
    """Return the largest size of a batch with ``count`` payloads of ``payload_bytes`` in total."""
    return _HEADER_BYTES + count * _HEADER_BYTES_OF_PAYLOAD + payload_bytes


def encode_batch(payloads: Sequence[bytes]) -> bytes:
    """Return the payload that carries these payloads."""
    return ENVELOPE_PREFIX + encode(pb.Envelope, kind=pb.Envelope.BATCH, content=encode(pb.Batch, payloads=payloads))


def decode_batch(payload: bytes) -> tuple[bytes, ...] | None:
    """Return the payloads in a batch, or None if a payload is no batch.

    A batch with an empty payload, with fewer than 2 or with more than `MAX_BATCH` is none. A batch within a batch is
    not decoded: it is a payload like any other.
    """
    if not payload.startswith(ENVELOPE_PREFIX):
        return None
    try:
        envelope = parse(pb.Envelope, payload[len(ENVELOPE_PREFIX) :], max_bytes=MAX_ENVELOPE_BYTES)
        if envelope.kind != pb.Envelope.BATCH:
            return None
        payloads = tuple(parse(pb.Batch, envelope.content, max_bytes=MAX_ENVELOPE_BYTES).payloads)
    except DecodeError:
        return None
    return payloads if 2 <= len(payloads) <= MAX_BATCH and all(payloads) else None


def id_in_batch(identifier: str, index: int) -> str:
    """Return the id of a message in a batch, from the id of the first one; the ids sort as the messages."""
    return f"{identifier}.{index:03}" if index else identifier
