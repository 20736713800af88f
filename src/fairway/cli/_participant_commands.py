"""The commands of a participant: one JSON object per line, checked before it is carried out.

A wrong line raises `CommandError`, whose text lists the known commands and fields.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fairway.errors import ConfigurationError

_CONTENTS: Final = ("text", "base64", "file")
FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "send": (*_CONTENTS, "request_id", "count", "by", "tag"),
    "send_ephemeral": (*_CONTENTS, "tag"),
    "statistics": ("tag",),
    "status": ("tag",),
    "stop": ("tag",),
}
"""Every command and the fields that it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A checked command; fields that it does not have keep their defaults."""

    name: str
    content: bytes | Path | None = None
    """The payload to send, or the path of a file that holds it."""
    request_id: str | None = None
    count: int = 1
    by: tuple[str, ...] = ()
    tag: Any = None
    """Any JSON; the answer repeats it."""


class CommandError(ConfigurationError):
    """A wrong line, with its command and tag if they could be read."""

    def __init__(self, detail: str, name: str | None = None, tag: Any = None) -> None:
        super().__init__(detail)
        self.name = name
        self.tag = tag


def parse_command(line: bytes) -> Command:
    """Return the command of a line, or raise `CommandError`."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"the line is not JSON ({error}); {_known_commands()}") from error
    if not isinstance(given, dict):
        raise CommandError(f"the line is not a JSON object; {_known_commands()}")
    name, tag = given.get("command"), given.get("tag")
    if not isinstance(name, str):
        raise CommandError(f"the field 'command' with a text is missing; {_known_commands()}", tag=tag)
    if name not in FIELDS:
        raise CommandError(f"there is no command {name!r:.100}; {_meant(name, FIELDS)}{_known_commands()}", name, tag)
    try:
        return _checked(name, given)
    except ConfigurationError as error:
        raise CommandError(str(error), name, tag) from error


def _checked(name: str, given: Mapping[str, Any]) -> Command:
    known = FIELDS[name]
    for field in given:
        if field not in {"command", *known}:
            raise ConfigurationError(
                f"{name} has no field {field!r:.100}; {_meant(field, known)}its fields are {', '.join(known)}"
            )
    request_id, count, by = given.get("request_id"), given.get("count", 1), given.get("by", [])
    if not isinstance(request_id, str | None):
        raise ConfigurationError(f"request_id must be a text, not {_kind(request_id)}")
    if not isinstance(count, int) or isinstance(count, bool):
        raise ConfigurationError(f"count must be a whole number, not {_kind(count)}")
    if not isinstance(by, list) or not all(isinstance(sender, str) for sender in by):
        raise ConfigurationError("by must be a list of sender ids")
    return Command(
        name=name,
        content=_content(name, given) if "text" in known else None,
        request_id=request_id,
        count=count,
        by=tuple(by),
        tag=given.get("tag"),
    )


def _content(name: str, given: Mapping[str, Any]) -> bytes | Path:
    present = [field for field in _CONTENTS if field in given]
    if len(present) != 1:
        found = f"it has {' and '.join(present)}" if present else "it has none of them"
        raise ConfigurationError(f"{name} needs exactly one of {', '.join(_CONTENTS)}; {found}")
    (field,) = present
    value = given[field]
    if not isinstance(value, str):
        raise ConfigurationError(f"{field} must be a text, not {_kind(value)}")
    if field == "file":
        return Path(value)
    try:
        return value.encode() if field == "text" else base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigurationError(f"{field} cannot be turned into bytes: {error}") from error


def _known_commands() -> str:
    return f"""the commands are {", ".join(FIELDS)}, as in {{"command":"send","text":"hello"}}"""


def _meant(given: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
    near = difflib.get_close_matches(given, known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(
        type(value), f"{value!r:.50}"
    )
