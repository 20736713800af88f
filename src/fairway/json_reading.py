"""`read_json`: decodes untrusted JSON to a value of a declared shape.

Invariant: for any bytes `read_json` returns a value of that shape or raises `DecodeError`. A JSON parser recurses for
each level of nesting, up to the interpreter's recursion limit. A library may have raised that limit beyond the size of
the stack, and the process would crash. The depth is therefore checked before parsing.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
import numpy as np

from fairway.errors import DecodeError

MAX_DEPTH: Final = 64
"""Deepest nesting of objects and lists that is parsed; the JSON that fairway reads has fewer than ten levels."""

_MARKS: Final = b'[]{}"'
_REST: Final = bytes(set(range(256)) - set(_MARKS))
_Shape = TypeVar("_Shape")


def read_json(data: bytes, shape: type[_Shape]) -> _Shape:
    """Return the value of ``shape`` in ``data``.

    Raises `DecodeError` if ``data`` is not JSON, has another shape, or has more than `MAX_DEPTH` levels of nesting.
    """
    if _is_deep(data):
        raise DecodeError(f"JSON with more than {MAX_DEPTH} levels of nesting is not read")
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from error


def _is_deep(data: bytes) -> bool:
    """Return whether a parser would recurse deeper than `MAX_DEPTH` before it finds an error."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    if b"\\" in data:  # an escaped quotation mark ends no string
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(data.translate(None, _REST), dtype=np.uint8)
    # Inside a string the number of quotation marks so far is odd; overflow does not matter.
    outside = np.cumsum(marks == ord('"'), dtype=np.uint8) & 1 == 0
    opening = outside & ((marks == ord("[")) | (marks == ord("{")))
    closing = outside & ((marks == ord("]")) | (marks == ord("}")))
    depths = np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int32)
    return bool(depths.max() > MAX_DEPTH)
