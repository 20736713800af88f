"""The possible names of a saved file, the preferred one first.

The sender chooses the name, and the receiver's disk may refuse it. It may be too long for the file system or the whole
path, contain a character that the disk cannot store, or be a device name of Windows.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from fairway.wire.file_message import MAX_NAME_BYTES

_PORTABLE_NAME_BYTES: Final = 100
"""Bytes of a name that all file systems accept: eCryptfs allows 143."""
_PORTABLE_SUFFIX_BYTES: Final = 20
_RESERVED_CHARACTERS: Final = re.compile(r'[<>:"|?*\x00-\x1f]')
"""Characters that Windows, exFAT and SMB refuse in names (Microsoft, "Naming Files, Paths, and Namespaces")."""
_RESERVED_NAMES: Final = re.compile(
    r"(?:CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(?:COM|LPT)[0-9¹²³])[ ]*(?:\..*)?", re.IGNORECASE
)
"""Names of devices in Windows, also with a suffix."""
_HARMLESS_SUFFIX: Final = re.compile(r"\.[A-Za-z0-9]{1,8}")
_FALLBACK_DIGITS: Final = 12


def names_for(name: str, key: str, *, on_windows: bool = sys.platform == "win32") -> Iterator[str]:
    """Yield the name of the sender, a similar portable name, and a name made of ``key`` alone.

    On Windows reserved names are not yielded: Windows accepts some of them and saves the file elsewhere.
    """
    portable = portable_name(name)
    if name == portable or not on_windows:
        yield name
    if name != portable:
        yield portable
    suffix = PurePath(name).suffix
    yield f"file-{key[:_FALLBACK_DIGITS]}{suffix if _HARMLESS_SUFFIX.fullmatch(suffix) else ''}"


def portable_name(name: str) -> str:
    """Return this name or a similar one that Windows and file systems with short names accept."""
    changed = _RESERVED_CHARACTERS.sub("_", name).rstrip(" .")
    if _RESERVED_NAMES.fullmatch(changed):
        changed = f"_{changed}"
    stem, suffix = os.path.splitext(changed)  # noqa: PTH122 - a name, not a path
    if len(suffix.encode("utf-8", "replace")) > _PORTABLE_SUFFIX_BYTES:
        stem, suffix = changed, ""
    room = _PORTABLE_NAME_BYTES - len(suffix.encode("utf-8", "replace"))
    return (_cut(stem, room).rstrip(" .") or "file") + suffix


def numbered(name: str) -> Iterator[str]:
    """Yield a name, then the name with numbers, none longer than allowed."""
    yield name
    stem, suffix = os.path.splitext(name)  # noqa: PTH122 - a name, not a path
    # The numbered names of a short name are short too, because the disk may have refused a longer one.
    most = MAX_NAME_BYTES if len(name.encode()) > _PORTABLE_NAME_BYTES else _PORTABLE_NAME_BYTES
    number = 2
    while True:
        end = f" ({number}){suffix}"
        room = most - len(end.encode())
        # A suffix that is too long is cut with the rest.
        yield f"{_cut(stem, room)}{end}" if room > 0 else f"{number}-{name[:64]}"
        number += 1


def _cut(text: str, size_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:size_bytes].decode(errors="ignore")
