"""Protobuf: `parse` reads received bytes, `encode` writes messages.

`parse` raises `DecodeError` for invalid bytes, and rejects too long input before parsing. Generated types stay in this
package: decoders copy the fields into frozen records.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import EncodeError as ProtobufEncodeError
from google.protobuf.message import Message

from fairway.errors import ConfigurationError, DecodeError

_Schema = TypeVar("_Schema", bound=Message)

_DECODE_FAULTS: Final = (ProtobufDecodeError, ValueError, RecursionError)
"""Errors of the protobuf runtimes for invalid bytes. upb raises only the first. Pure Python also raises
`UnicodeDecodeError` (a `ValueError`) for text that is not UTF-8 and, in old versions, `RecursionError`."""
ENCODE_FAULTS: Final = (ValueError, TypeError, ProtobufEncodeError)
"""Errors of the runtimes for a number out of range, text with lone surrogates, or a wrong type."""


def parse(schema: type[_Schema], data: bytes, *, max_bytes: int) -> _Schema:
    """Parse ``data`` as the generated message type ``schema``.

    Unknown fields, and known fields with another wire type, are skipped, as in protobuf. Raises `DecodeError` if
    ``data`` is longer than ``max_bytes`` (before parsing) or is not valid protobuf.
    """
    if len(data) > max_bytes:
        raise DecodeError(f"{schema.DESCRIPTOR.name}: {len(data)} bytes, at most {max_bytes} are read")
    try:
        return schema.FromString(data)
    except _DECODE_FAULTS as error:
        text = f"{schema.DESCRIPTOR.name}: {len(data)} bytes are not valid protobuf: {error}"
        raise DecodeError(text) from error


def encode(schema: type[Message], **fields: Any) -> bytes:
    """Return a message of the generated type ``schema`` as protobuf; a nested message is a mapping of its fields.

    Raises `ConfigurationError` for a value that a field cannot hold, which is an error of the local caller.
    """
    try:
        return schema(**fields).SerializeToString()
    except ENCODE_FAULTS as error:
        raise ConfigurationError(f"{schema.DESCRIPTOR.name} cannot be encoded: {error}") from error
