"""`local_path`: the path of what must be on the disks of this machine, given as a path or as a ``file:`` URI.

A URI is never taken for a path. `pathlib` makes ``s3a:/bucket/run`` out of ``s3a://bucket/run``, and a folder of that
name would be created on the local disk: a job would seem to have written into an object store.
"""

from __future__ import annotations

import re
from os import PathLike, fspath
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from fairway.errors import ConfigurationError

_FILE: Final = "file"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""At least two letters, so that a drive letter is a path."""


def scheme_of(place: str | PathLike[str]) -> str | None:
    """Return the scheme of a URI, in lower case; None for a path, which may have colons that no slash follows."""
    match = _SCHEME.match(fspath(place))
    return None if match is None else match[1].lower()


def local_path(place: str | PathLike[str], use: str) -> Path:
    """Return the path of a place on this machine: a path, or a URI like ``file:///shared/run``.

    ``use`` names the argument in errors, such as ``--out``. Raises `ConfigurationError` for a URI of another scheme, or
    a ``file:`` URI that names another machine.
    """
    given = fspath(place)
    scheme = scheme_of(given)
    if scheme is None:
        return Path(given)
    if scheme != _FILE:
        raise ConfigurationError(
            f"{use} is {given!r}, and the scheme {scheme!r} is not supported there: give a path on this machine, or "
            "file:///PATH"
        )
    parts = urlsplit(given)
    if parts.netloc not in {"", "localhost"}:
        raise ConfigurationError(f"{use} is {given!r}, a file of the machine {parts.netloc!r}: write file:///PATH")
    return Path(unquote(parts.path))
