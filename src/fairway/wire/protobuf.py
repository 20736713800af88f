"""Protobuf at the boundary: bytes from outside become values, or one `DecodeError`, and never anything else.

Every decoder of this package reads through `parse`, so that two rules stand in one place: undecodable input
is a `DecodeError`, and what is too long is refused before a byte of it is looked at. Generated types stay
behind that boundary: decoders copy what they need into frozen dataclasses.
"""

from __future__ import annotations

from typing import Final, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import EncodeError as ProtobufEncodeError
from google.protobuf.message import Message

from fairway.errors import ConfigurationError, DecodeError

_Schema = TypeVar("_Schema", bound=Message)

_DECODE_FAULTS: Final = (ProtobufDecodeError, ValueError, RecursionError)
"""What the protobuf runtimes raise for bad bytes: upb only the first; pure Python also `UnicodeDecodeError`
(a `ValueError`) for text that is not UTF-8 and, in old versions, `RecursionError` for nested groups."""

ENCODE_FAULTS: Final = (ValueError, TypeError, ProtobufEncodeError)
"""What they raise for a value that its field cannot hold: a number out of range, text with lone surrogates, a
wrong type. Encoders turn these into `not_encodable`."""


def parse(schema: type[_Schema], data: bytes, *, max_bytes: int) -> _Schema:
    """Parse ``data`` as the generated message type ``schema``.

    Unknown fields, and known ones that carry another wire type, are skipped as protobuf prescribes.
    Raises `DecodeError` when ``data`` is longer than ``max_bytes`` (before parsing) or is not valid protobuf.
    """
    if len(data) > max_bytes:
        raise DecodeError(f"{schema.DESCRIPTOR.name}: {len(data)} bytes, at most {max_bytes} are read")
    try:
        return schema.FromString(data)
    except _DECODE_FAULTS as error:
        text = f"{schema.DESCRIPTOR.name}: {len(data)} bytes are not valid protobuf: {error}"
        raise DecodeError(text) from error


def not_encodable(what: str, cause: Exception) -> ConfigurationError:
    """Return the error for a value of the local caller that does not fit the message called ``what``."""
    return ConfigurationError(f"{what} cannot be encoded: {cause}")
