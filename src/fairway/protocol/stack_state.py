"""The complete state of a `Stack` as rows, and its changes since the last operation.

LIP-173, "Scalable Data Sync (SDS)": the state MUST be persisted. The shell does so when it carries out `Persist`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol

from fairway.errors import SnapshotError
from fairway.protocol.effects import Change
from fairway.protocol.incoming.catching_up import QueryOnConnect
from fairway.protocol.incoming.undelivered import Undelivered
from fairway.protocol.jitter import Jitter
from fairway.protocol.journal import Row, RowReader
from fairway.protocol.outgoing.sending import Sending
from fairway.protocol.sds.state import SdsState
from fairway.protocol.shared import Shared
from fairway.protocol.snapshots import Snapshots

SCHEMA: Final = "schema"
JITTER: Final = "jitter"
SCHEMA_VERSION: Final = 3


class StateTables(Protocol):
    """A layer that owns tables; each table has a name."""

    @property
    def readers(self) -> Mapping[str, RowReader]:
        """The reader of each table."""

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield table, key and row of the whole layer."""

    def load(self, rows: Iterable[tuple[str, str, Row]], /) -> None:
        """Fill empty tables with rows of `rows`, in any order."""


class StackState:
    """Collects the rows of all layers."""

    def __init__(
        self,
        shared: Shared,
        sending: Sending,
        undelivered: Undelivered,
        query_on_connect: QueryOnConnect,
        snapshots: Snapshots,
        jitter: Jitter,
    ) -> None:
        self._layers: tuple[StateTables, ...] = (
            SdsState(shared.sds),
            sending.requests,
            undelivered,
            sending.outbound,
            sending.outbox,
            query_on_connect,
            snapshots,
        )
        """The layers in the order of loading."""
        self._readers: dict[str, RowReader] = {
            SCHEMA: lambda _: (SCHEMA_VERSION,),
            JITTER: lambda _: (jitter.counter,),
        }
        for layer in self._layers:
            self._readers |= layer.readers
        self._jitter = jitter
        self._journal = shared.journal
        self._persisted_jitter = 0
        self.is_journaled = True
        """Whether `changes` returns rows; without it only `rows` has the state."""
        self._journal.touch(SCHEMA, "")

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield the whole state."""
        yield SCHEMA, "", (SCHEMA_VERSION,)
        yield JITTER, "", (self._jitter.counter,)
        for layer in self._layers:
            yield from layer.rows()

    def changes(self) -> tuple[Change, ...]:
        """Return the changes since the last call."""
        dirty = self._journal.drain()
        if not (dirty and self.is_journaled):
            return ()
        if self._jitter.counter != self._persisted_jitter:
            # A changed counter alone causes no write; it is added to the next one.
            self._persisted_jitter = self._jitter.counter
            dirty.append((JITTER, ""))
        readers = self._readers
        return tuple([Change(table, key, readers[table](key)) for table, key in dirty])

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill the layers of a new stack with rows of `rows`, in any order.

        Raises `SnapshotError` if this version cannot read the rows.
        """
        groups: dict[str, list[tuple[str, str, Row]]] = {}
        for entry in rows:
            groups.setdefault(entry[0], []).append(entry)
        unknown = sorted(groups.keys() - self._readers.keys())
        if unknown:
            raise SnapshotError(f"the stored state has tables that this version does not know: {', '.join(unknown)}")
        versions = [row for _, _, row in groups.get(SCHEMA, [])]
        if groups and versions != [(SCHEMA_VERSION,)]:
            raise SnapshotError(
                f"the stored state has version {versions[0] if versions else 'none'}, this program reads "
                f"({SCHEMA_VERSION},); use the program that wrote it, or one that can migrate it"
            )
        try:
            for layer in self._layers:
                layer.load([entry for table in layer.readers for entry in groups.get(table, [])])
            for _, _, (counter,) in groups.get(JITTER, []):
                self._jitter.counter = self._persisted_jitter = operator.index(counter)
        except (ValueError, TypeError, LookupError) as error:
            raise SnapshotError(f"a stored row is not what this version writes: {error}") from error
        # The store already has the loaded rows, except that rows beyond a smaller bound were dropped.
        gone = [(table, key) for table, key in self._journal.drain() if self._readers[table](key) is None]
        for table, key in ((SCHEMA, ""), *gone):
            self._journal.touch(table, key)
