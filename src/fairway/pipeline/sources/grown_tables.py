"""`refuse_grown_table`: a table of a run that grew is more than its files.

A run that takes in what is new changes no file. It writes new ones, and lists the rows that count no more
(`fairway.pipeline.run.removed_rows`). Who reads the folder as Parquet finds the replaced rows as well, and would count
these messages twice.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import replace
from typing import Final

from fairway.errors import ConfigurationError, StorageError
from fairway.pipeline.location import Location

_MANIFEST: Final = "manifest.json"
_TABLES: Final = "tables"


def refuse_grown_table(place: Location) -> None:
    """Raise `ConfigurationError` if a place is a table, or a file of one, of a run in which rows were replaced."""
    for folder in (place.path, posixpath.dirname(place.path)):
        above, name = posixpath.split(folder)
        run, tables = posixpath.split(above)
        if tables == _TABLES and _replaced_rows(replace(place, path=posixpath.join(run, _MANIFEST)), name):
            raise ConfigurationError(
                f"{place}: is the table {name} of a run that grew, and its files still have the rows that were "
                "replaced. Give the sources of that run; or run once more into a new folder, and give the table that "
                "is there"
            )


def _replaced_rows(manifest: Location, table: str) -> bool:
    try:
        told = json.loads(manifest.read())
        return bool(told["tables"][table]["removed"])
    except (OSError, StorageError, ValueError, TypeError, KeyError):
        return False  # it is no folder of a run, or of one that never grew
