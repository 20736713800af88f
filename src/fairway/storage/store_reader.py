"""`StoreReader`: reads the store of a channel from another process or program, also while the channel uses it.

It reads the tables and the journal. It writes nothing and creates no file. While a process uses the store, or after it
crashed, the file is read together with its log. Otherwise there is no log, and the file alone is complete.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from fairway.errors import StorageError, StoreCorruptError
from fairway.storage.channel_store import StoredRequest, TracePoint
from fairway.storage.journal_tail import Tail, tail_of
from fairway.storage.schema import version_of
from fairway.storage.sqlite_connection import connect, refuse_other_files
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.sqlite_queries import find_message_ids, find_parts, find_points, find_request, find_requests

_Answer = TypeVar("_Answer")

_OWNER: Final = "SELECT channel_id, sender_id, content_topic FROM channel"


class Owner(NamedTuple):
    """The channel, sender and content topic of a store."""

    channel_id: str
    sender_id: str
    content_topic: str


class StoreReader:
    """Reads one store; keeps no file open between calls.

    Every method raises `StorageError` if the file is missing, and `StoreCorruptError` if it is no store or damaged. It
    raises `StoreVersionError` for a store of another version of fairway.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Name the file of a store; it is not opened yet."""
        self._path = Path(path).absolute()

    def __repr__(self) -> str:
        return f"<StoreReader {str(self._path)!r}>"

    def owner(self) -> Owner:
        """Return the channel, sender and content topic of the store."""
        row = self._ask(lambda connection, _: connection.execute(_OWNER).fetchone())
        if row is None:
            raise StoreCorruptError(f"{self._path} belongs to no channel yet: its first opening did not finish")
        return Owner(*row)

    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request, or None if it is unknown."""
        return self._ask(lambda connection, tail: tail.requests.get(request_id) or find_request(connection, request_id))

    def requests(self, identifier: str) -> list[StoredRequest]:
        """Return the requests with a request id or message id, in the order in which they were accepted."""
        return self._ask(lambda connection, tail: find_requests(connection, tail, identifier))

    def message_ids(self, prefix: str) -> set[str]:
        """Return the message ids that begin with a prefix, such as the first digits that a person copied."""
        return self._ask(lambda connection, tail: find_message_ids(connection, tail, prefix))

    def trace(self, identifier: str) -> list[TracePoint]:
        """Return the trace of a message by message id, request id or SDS message id, oldest first."""
        return self._ask(lambda connection, tail: find_points(connection, tail, identifier))

    def parts(self, manifest_id: bytes) -> tuple[list[StoredRequest], list[TracePoint]]:
        """Return the requests and the received messages that are parts of a file, by the id of its manifest."""
        return self._ask(lambda connection, tail: find_parts(connection, tail, manifest_id))

    def _ask(self, question: Callable[[sqlite3.Connection, Tail], _Answer]) -> _Answer:
        path = self._path.resolve()
        if not path.exists():
            raise StorageError(f"there is no store {path}: give the path that the channel was created with")
        refuse_other_files(path)
        with typed_errors(path, "reading"):
            log = path.with_name(f"{path.name}-wal")
            if not _has_content(log):
                # Without ``immutable`` SQLite would create a log.
                answer = _read(path, f"{path.as_uri()}?mode=ro&immutable=1", question)
                if not _has_content(log):
                    return answer
                # A channel began to write meanwhile: the result may be inconsistent.
            if not path.with_name(f"{path.name}-shm").exists():
                raise StorageError(
                    f"{path} has a log, but not the file {path.name}-shm that belongs to it: "
                    "start its channel once; 'fairway backup' copies a store that is in use"
                )
            return _read(path, f"{path.as_uri()}?mode=ro", question)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _read(path: Path, uri: str, question: Callable[[sqlite3.Connection, Tail], _Answer]) -> _Answer:
    with closing(connect(path, uri=uri)) as connection:
        if version_of(connection, path) == 0:
            raise StoreCorruptError(f"{path} is empty: give the path of a store that a channel has used")
        with tail_of(connection) as tail:
            return question(connection, tail)
