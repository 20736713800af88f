"""An event as a JSON object: the form in which all commands print events for programs.

``{"event": <kebab-case name>, "type": <class name>, ...all fields}``; the name is the one of RELIABLE-CHANNEL-API,
"Event handling". Bytes are lower-case hex and choices are their text. A payload is shown by its ``size`` and
``sha256``, and by ``payload_base64`` on request. All fields of an event are present.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path, PurePath
from typing import Any, Final

import msgspec

from fairway.events import EVENT_NAMES, Event, MessageReceived
from fairway.files.outcomes import FileOutcome, FileReceived
from fairway.wire.file_message import FileMessage

_NOT_SEEN: Final = re.compile("[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Invisible characters that JSON does not escape: controls beyond ASCII, bidirectional marks and separators."""


def event_as_json(event: Event, *, with_payload: bool = False) -> dict[str, Any]:
    """Return an event as an object of JSON types."""
    told: dict[str, Any] = {"event": EVENT_NAMES[type(event)], "type": type(event).__name__}
    for field in fields(event):
        if field.name != "payload":
            told[field.name] = as_json(getattr(event, field.name))
    if isinstance(event, MessageReceived):
        told |= payload_as_json(event.payload)
        if with_payload:
            told["payload_base64"] = base64.b64encode(event.payload).decode()
    return told


def brought_as_json(brought: Path | FileOutcome | FileMessage) -> dict[str, Any]:
    """Return the result of a message: ``saved`` is a path, ``file`` the outcome or the announcement of a file."""
    if isinstance(brought, Path):
        return {"saved": str(brought)}
    told: dict[str, Any] = {"type": type(brought).__name__}
    for field in fields(brought):
        if field.name not in {"content", "part_hashes"}:
            told[field.name] = as_json(getattr(brought, field.name))
    return {"file": told} | ({"saved": str(brought.path)} if isinstance(brought, FileReceived) else {})


def payload_as_json(payload: bytes) -> dict[str, Any]:
    """Return ``size`` in bytes and ``sha256`` in lower-case hex of a payload."""
    return {"size": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}


def as_json(value: Any) -> Any:
    """Return a value of the public dataclasses as JSON types: bytes in hex, choices by their text."""
    match value:
        case bytes():
            return value.hex()
        case PurePath():
            return str(value)
        case Enum():
            return as_json(value.value)
        case Mapping():
            return {str(as_json(key)): as_json(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
        case AbstractSet():
            return sorted(as_json(item) for item in value)
        case _ if is_dataclass(value):
            return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
        case msgspec.Struct():
            return {name: as_json(getattr(value, name)) for name in value.__struct_fields__}
        case _:
            return value


def as_line(told: Mapping[str, Any]) -> bytes:
    """Return an object as one line of JSON, in UTF-8, with invisible characters escaped."""
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    if not text.isprintable():
        text = _NOT_SEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return text.encode("utf-8", "backslashreplace") + b"\n"
