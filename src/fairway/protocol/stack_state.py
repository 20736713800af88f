"""The complete state of a `Stack` as rows, and the changes of it since the last operation.

LIP-173, "Scalable Data Sync (SDS)": the state MUST be persisted. The shell does so when it carries out `Persist`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from fairway.errors import SnapshotError
from fairway.protocol.effects import Change
from fairway.protocol.incoming.catching_up import CAUGHT_UP, QueryOnConnect
from fairway.protocol.incoming.undelivered import TABLES as UNDELIVERED_TABLES
from fairway.protocol.incoming.undelivered import Undelivered
from fairway.protocol.jitter import Jitter
from fairway.protocol.journal import Row
from fairway.protocol.outgoing.pending_segments import OUTBOX
from fairway.protocol.outgoing.request_table import REQUESTS, SEGMENTS
from fairway.protocol.outgoing.sending import Sending
from fairway.protocol.outgoing.transmission_queue import RATE_LIMIT, STAMP
from fairway.protocol.sds.state import TABLES, SdsState
from fairway.protocol.shared import Shared

SCHEMA: Final = "schema"
JITTER: Final = "jitter"
SCHEMA_VERSION: Final = 3
_OWN_TABLES: Final = (
    SCHEMA,
    REQUESTS,
    SEGMENTS,
    *UNDELIVERED_TABLES,
    RATE_LIMIT,
    STAMP,
    OUTBOX,
    JITTER,
    CAUGHT_UP,
)


class StackState:
    """Asks each layer for its rows."""

    def __init__(
        self,
        shared: Shared,
        sending: Sending,
        undelivered: Undelivered,
        query_on_connect: QueryOnConnect,
        jitter: Jitter,
    ) -> None:
        self._sds = SdsState(shared.sds)
        self._requests = requests = sending.requests
        self._undelivered = undelivered
        self._outbound = outbound = sending.outbound
        self._outbox = outbox = sending.outbox
        self._query_on_connect = query_on_connect
        self._jitter = jitter
        self._journal = journal = shared.journal
        self._persisted_jitter = 0
        self._readers: dict[str, Callable[[str], Row | None]] = {
            SCHEMA: lambda _: (SCHEMA_VERSION,),
            **self._sds.readers,
            REQUESTS: partial(requests.row, REQUESTS),
            SEGMENTS: partial(requests.row, SEGMENTS),
            **{table: partial(undelivered.row, table) for table in UNDELIVERED_TABLES},
            RATE_LIMIT: lambda _: outbound.row(RATE_LIMIT),
            STAMP: lambda _: outbound.row(STAMP),
            OUTBOX: outbox.row,
            JITTER: lambda _: (jitter.counter,),
            CAUGHT_UP: lambda _: query_on_connect.row(),
        }
        """What returns the present row of a key, or None if it is gone, for each table."""
        journal.touch(SCHEMA, "")

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield the whole state."""
        yield SCHEMA, "", (SCHEMA_VERSION,)
        yield from self._sds.rows()
        yield from self._requests.rows()
        yield from self._undelivered.rows()
        yield RATE_LIMIT, "", self._outbound.row(RATE_LIMIT)
        yield STAMP, "", self._outbound.row(STAMP)
        yield from self._outbox.rows()
        yield from self._query_on_connect.rows()
        yield JITTER, "", (self._jitter.counter,)

    def changes(self) -> tuple[Change, ...]:
        """Return what changed since this was asked last."""
        dirty = self._journal.drain()
        if not dirty:
            return ()
        if self._jitter.counter != self._persisted_jitter:
            # Timers alone are not worth a write; the counter goes along with the next one.
            self._persisted_jitter = self._jitter.counter
            dirty.append((JITTER, ""))
        readers = self._readers
        return tuple([Change(table, key, readers[table](key)) for table, key in dirty])

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill the layers of a new stack with rows of `rows`, in any order.

        Raises `SnapshotError` if they are not what this version writes.
        """
        groups: dict[str, list[tuple[str, str, Row]]] = {}
        for table, key, row in rows:
            groups.setdefault("sds" if table in TABLES else table, []).append((table, key, row))
        unknown = sorted(groups.keys() - {"sds", *_OWN_TABLES})
        if unknown:
            raise SnapshotError(f"the stored state has tables that this version does not know: {', '.join(unknown)}")
        versions = [row for _, _, row in groups.get(SCHEMA, [])]
        if groups and versions != [(SCHEMA_VERSION,)]:
            raise SnapshotError(
                f"the stored state has version {versions[0] if versions else 'none'}, this program reads "
                f"({SCHEMA_VERSION},); use the program that wrote it, or one that can migrate it"
            )
        try:
            self._load_groups(groups)
        except (ValueError, TypeError, LookupError) as error:
            raise SnapshotError(f"a stored row is not what this version writes: {error}") from error
        # What was loaded stands in the store as it is, but for what found no room: bounds may be smaller now.
        gone = [(table, key) for table, key in self._journal.drain() if self._readers[table](key) is None]
        for table, key in ((SCHEMA, ""), *gone):
            self._journal.touch(table, key)

    def _load_groups(self, groups: dict[str, list[tuple[str, str, Row]]]) -> None:
        def of(*tables: str) -> list[tuple[str, str, Row]]:
            return [entry for table in tables for entry in groups.get(table, [])]

        self._sds.load(of("sds"))
        self._requests.load(of(REQUESTS, SEGMENTS))
        self._undelivered.load(of(*UNDELIVERED_TABLES))
        self._outbox.load(of(OUTBOX))
        self._query_on_connect.load(of(CAUGHT_UP))
        for table, _, row in of(RATE_LIMIT, STAMP):
            self._outbound.load(table, row)
        for _, _, (counter,) in of(JITTER):
            self._jitter.counter = self._persisted_jitter = operator.index(counter)
