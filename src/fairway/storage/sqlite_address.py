"""Where the file is that a URI of SQLite names.

Both ways to write one lead to the same file: ``sqlite:PATH``, and nwaku's ``sqlite://PATH``
(``--store-message-db-url``), in which what follows the slashes is the path, relative unless it begins with another one.
"""

from __future__ import annotations

from pathlib import Path


def file_at(place: str) -> Path:
    """Return the path in what follows ``sqlite:``."""
    return Path(place.removeprefix("//"))
