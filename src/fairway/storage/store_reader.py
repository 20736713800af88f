"""`StoreReader`: reads the store of channels from another process or program, also while they use it.

It reads the tables and the journal. It writes nothing and creates no file. While a process uses the store, or after it
crashed, the file is read together with its log. Otherwise there is no log, and the file alone is complete.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from fairway.errors import ConfigurationError, StorageError, StoreCorruptError
from fairway.storage.channel_store import StoredRequest, TracePoint
from fairway.storage.journal_tail import Tail, tail_of
from fairway.storage.schema import version_of
from fairway.storage.sqlite_connection import connect, refuse_other_files
from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.sqlite_queries import find_message_ids, find_parts, find_points, find_request, find_requests

_Answer = TypeVar("_Answer")

_SHOWN_CHANNELS: Final = 10
"""Channels that an error names."""
_OWNERS: Final = "SELECT number, channel_id, sender_id, content_topic FROM channels ORDER BY number"


class Owner(NamedTuple):
    """The channel, sender and content topic of a store, or of one of its channels."""

    channel_id: str
    sender_id: str
    content_topic: str


class StoreReader:
    """Reads one store; keeps no file open between calls.

    Every method raises `StorageError` if the file is missing, and `StoreCorruptError` if it is no store or damaged. It
    raises `StoreVersionError` for a store of another version of fairway.
    """

    def __init__(self, path: str | os.PathLike[str], channel_id: str | None = None) -> None:
        """Name the file of a store, and one of its channels if it has several; it is not opened yet."""
        self._path = Path(path).absolute()
        self._channel_id = channel_id

    def __repr__(self) -> str:
        return f"<StoreReader {str(self._path)!r}>"

    def owners(self) -> list[Owner]:
        """Return all channels of the store, each with its sender and content topic, in the order of their creation."""
        return [owner for _, owner in self._ask(_owners_in)]

    def owner(self) -> Owner:
        """Return the channel, sender and content topic.

        This and the following methods raise `ConfigurationError` if the store has several channels and none was named,
        or does not have the named one.
        """
        return self._ask(lambda connection: self._chosen(connection)[1])

    def request(self, request_id: str) -> StoredRequest | None:
        """Return a request, or None if it is unknown."""
        return self._ask_channel(
            lambda connection, channel, tail: (
                tail.requests.get(request_id) or find_request(connection, channel, request_id)
            )
        )

    def requests(self, identifier: str) -> list[StoredRequest]:
        """Return the requests with a request id or message id, in the order in which they were accepted."""
        return self._ask_channel(partial(find_requests, identifier=identifier))

    def message_ids(self, prefix: str) -> set[str]:
        """Return the message ids that begin with a prefix, such as the first digits that a person copied."""
        return self._ask_channel(partial(find_message_ids, prefix=prefix))

    def trace(self, identifier: str) -> list[TracePoint]:
        """Return the trace of a message by message id, request id or SDS message id, oldest first."""
        return self._ask_channel(partial(find_points, identifier=identifier))

    def parts(self, manifest_id: bytes) -> tuple[list[StoredRequest], list[TracePoint]]:
        """Return the requests and the received messages that are parts of a file, by the id of its manifest."""
        return self._ask_channel(partial(find_parts, manifest_id=manifest_id))

    def _chosen(self, connection: sqlite3.Connection) -> tuple[int, Owner]:
        """Return the number of the channel in the file, and its names."""
        owners = _owners_in(connection)
        if not owners:
            raise StoreCorruptError(f"{self._path} belongs to no channel yet: its first opening did not finish")
        wanted = [each for each in owners if self._channel_id in {None, each[1].channel_id}]
        if len(wanted) != 1:
            some = ", ".join(repr(owner.channel_id) for _, owner in owners[:_SHOWN_CHANNELS])
            more = ", ..." if len(owners) > _SHOWN_CHANNELS else ""
            wrong = "and none was named" if self._channel_id is None else f"but not {self._channel_id!r}"
            raise ConfigurationError(f"{self._path} has the channels {some}{more} {wrong}: name one of them")
        return wanted[0]

    def _ask_channel(self, question: Callable[[sqlite3.Connection, int, Tail], _Answer]) -> _Answer:
        def ask(connection: sqlite3.Connection) -> _Answer:
            channel, _ = self._chosen(connection)
            with tail_of(connection, channel) as tail:
                return question(connection, channel, tail)

        return self._ask(ask)

    def _ask(self, question: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
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
                    "start a channel of it once; 'fairway backup' copies a store that is in use"
                )
            return _read(path, f"{path.as_uri()}?mode=ro", question)


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _owners_in(connection: sqlite3.Connection) -> list[tuple[int, Owner]]:
    return [(number, Owner(*names)) for number, *names in connection.execute(_OWNERS)]


def _read(path: Path, uri: str, question: Callable[[sqlite3.Connection], _Answer]) -> _Answer:
    with closing(connect(path, uri=uri)) as connection:
        if version_of(connection, path) == 0:
            raise StoreCorruptError(f"{path} is empty: give the path of a store that a channel has used")
        return question(connection)
