"""Protobuf at the boundary of libp2p: bytes of a peer become a message, or one `FrameError`, and nothing else."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from fairway.errors import DecodeError
from fairway.waku.libp2p.errors import FrameError
from fairway.wire.protobuf import parse

_Schema = TypeVar("_Schema", bound=Message)


def parse_message(schema: type[_Schema], data: bytes, *, max_bytes: int) -> _Schema:
    """Parse ``data`` as the generated message type ``schema``; `FrameError` when it is longer, or is not that."""
    try:
        return parse(schema, data, max_bytes=max_bytes)
    except DecodeError as error:
        raise FrameError(str(error)) from error
