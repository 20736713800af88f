"""A service node's archive in PostgreSQL, in the tables of nwaku: several nodes, nwaku among them, may share one.

A connection is made anew when the server was restarted. While the server is away messages wait, as many as
`ArchiveWriter` holds, and queries are refused. A message is not kept if its timestamp lies more than an hour ahead, or
longer ago than the retention or a month. Of the age only whole hours go, so a message may stay an hour longer.
"""

from __future__ import annotations

import asyncio
from functools import partial

from fairway.service.archives import Retention
from fairway.service.database_archive import QUERY_LIMIT_S, DatabaseArchive, Threads
from fairway.service.reader_pool import ReaderPool
from fairway.storage.archive import PagedArchive
from fairway.storage.postgres_archive import place_without_credentials
from fairway.storage.postgres_pages import PostgresPages
from fairway.storage.postgres_writer import PostgresUpkeep, PostgresWriter


async def open_postgres(uri: str, retention: Retention, *, query_limit_s: float = QUERY_LIMIT_S) -> DatabaseArchive:
    """Connect, and make the tables where there are none.

    Raises `ConfigurationError` for a URI that is none or without psycopg, `SnapshotError` for tables of another
    version, `StorageError` if the server cannot be reached.
    """
    threads = Threads()
    tables = PostgresWriter(uri, max_age_s=retention.max_age_s)
    try:
        await asyncio.get_running_loop().run_in_executor(threads.writer, tables.prepare)
        readers: ReaderPool[PagedArchive] = await ReaderPool.open(
            partial(PostgresPages, uri, read_limit_s=query_limit_s)
        )
    except BaseException:
        tables.close()
        threads.shutdown()
        raise
    upkeep = PostgresUpkeep(uri, max_age_s=retention.max_age_s, max_bytes=retention.max_bytes)
    return DatabaseArchive(place_without_credentials(uri), tables, readers, upkeep, threads)
