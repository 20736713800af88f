"""From an address to an archive: the one place that knows which kinds there are."""

from __future__ import annotations

from pathlib import Path

from fairway.errors import ConfigurationError
from fairway.service.archives import MemoryArchive, NodeArchive, Retention
from fairway.service.postgres_archive import open_postgres
from fairway.service.sqlite_archive import open_sqlite
from fairway.storage.nwaku_archive import file_at
from fairway.storage.postgres_archive import place_without_credentials


async def open_archive(address: str, retention: Retention | None = None) -> NodeArchive:
    """Return the archive at an address; close it in the end.

    - ``"memory:"``: the newest 100,000 messages, as long as the process lives;
    - ``"sqlite:PATH"``, nwaku's ``"sqlite://PATH"``, or a path: a file in the layout of a nwaku store;
    - ``"postgresql://user@host:5432/db"``: nwaku's tables in PostgreSQL, for which fairway is installed with
      ``[postgresql]``; the password best comes from libpq's environment.

    Raises `ConfigurationError` for an address that is none of these, and what the kind raises.
    """
    chosen = retention or Retention()
    kind, separator, place = address.partition(":")
    match kind:
        case "memory" if separator and not place:
            return MemoryArchive()
        case "sqlite" if place:
            return await open_sqlite(file_at(place), chosen)
        case "postgresql" | "postgres" if place.startswith("//"):
            return await open_postgres(address, chosen)
        case _ if address and (not separator or "/" in kind):
            return await open_sqlite(Path(address), chosen)
    shown = place_without_credentials(address) if "://" in address else address
    raise ConfigurationError(f"{shown!r} is no archive; give memory:, sqlite:PATH or postgresql://user@host/db")
