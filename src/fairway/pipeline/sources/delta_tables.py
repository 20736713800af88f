"""Delta tables as sources: a folder of Parquet files of which the log says which ones count.

``PATH@v3`` is version 3 of the table, as in Delta's own readers; without a version it is the last one.
"""

from __future__ import annotations

import re
from typing import Final

from fairway.errors import ConfigurationError
from fairway.pipeline.location import Location
from fairway.pipeline.tables import delta

_VERSION: Final = re.compile(r"(.+)@v(\d+)")


def without_version(place: str) -> tuple[str, int | None]:
    """Return a path or URI without the version of a table, and the version; None for the last one."""
    match = _VERSION.fullmatch(place)
    return (place, None) if match is None else (match[1], int(match[2]))


def names_in_log(place: Location, version: int | None) -> frozenset[str] | None:
    """Return the names of the files of a Delta table, from its folder on; None for a folder that is none.

    Raises `ConfigurationError` for a version of what is no Delta table, and `StorageError` for one that is not there.
    """
    if not delta.is_delta(place):
        if version is None:
            return None
        raise ConfigurationError(f"{place}@v{version}: is no Delta table, and has no versions; leave @v{version} out")
    table = delta.opened(place, version)
    return frozenset() if table is None else frozenset(delta.file_names(table))
