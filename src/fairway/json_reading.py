"""`read_json`: JSON that others wrote, as a value of a declared shape.

Invariant: whatever the bytes are, the result is a value of that shape or a `DecodeError`. A parser of JSON calls itself
for each level of nesting, and what bounds that is the interpreter's recursion limit, which any library of the process
may have raised beyond what the stack holds; the process would then end. So the depth is bounded before anything is
parsed.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
import numpy as np

from fairway.errors import DecodeError

MAX_DEPTH: Final = 64
"""Levels of objects and lists within each other; nothing that fairway reads has ten."""

_MARKS: Final = b'[]{}"'
_REST: Final = bytes(set(range(256)) - set(_MARKS))
_Shape = TypeVar("_Shape")


def read_json(data: bytes, shape: type[_Shape]) -> _Shape:
    """Return the value of ``shape`` that ``data`` holds.

    Raises `DecodeError` for what is no JSON or of another shape, and for more than `MAX_DEPTH` levels of nesting.
    """
    if _is_deep(data):
        raise DecodeError(f"JSON with more than {MAX_DEPTH} levels of nesting is not read")
    try:
        return msgspec.json.decode(data, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from error


def _is_deep(data: bytes) -> bool:
    """Say whether a parser would go deeper than `MAX_DEPTH`; it would read no further than to a fault."""
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return False
    if b"\\" in data:  # an escaped quotation mark ends no string
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(data.translate(None, _REST), dtype=np.uint8)
    # Strings are where the number of quotation marks so far is odd; it may overflow.
    outside = np.cumsum(marks == ord('"'), dtype=np.uint8) & 1 == 0
    opening = outside & ((marks == ord("[")) | (marks == ord("{")))
    closing = outside & ((marks == ord("]")) | (marks == ord("}")))
    depths = np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int32)
    return bool(depths.max() > MAX_DEPTH)
