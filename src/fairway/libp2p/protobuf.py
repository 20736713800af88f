"""Parses protobuf messages of peers; all faults are `FrameError`."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from fairway.errors import DecodeError
from fairway.libp2p.errors import FrameError
from fairway.wire.protobuf import parse

_Schema = TypeVar("_Schema", bound=Message)


def parse_message(schema: type[_Schema], data: bytes, *, max_bytes: int) -> _Schema:
    """Parse ``data`` as a ``schema``; raise `FrameError` if it is longer than ``max_bytes`` or invalid."""
    try:
        return parse(schema, data, max_bytes=max_bytes)
    except DecodeError as error:
        raise FrameError(str(error)) from error
