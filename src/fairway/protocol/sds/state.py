"""The state of a `MessageChannel` as rows (see `fairway.protocol.journal`), and back.

Three parts have no rows and are rebuilt:

* the bloom filter, from the newest messages of the history and the parked messages
* the dependencies of a parked message, from its causal history
* the descendants of own messages and the uncited messages, from the retained messages

Without repairs no message is retained, and uncited messages have rows. If a message is not retained, an acknowledgement
through its citation may at first count only as a possible one.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from itertools import islice
from sys import intern

from fairway.errors import DecodeError, SnapshotError
from fairway.protocol.journal import Row, RowReader
from fairway.protocol.sds.acknowledgements import ACKNOWLEDGEMENTS, OUTGOING, Evidence, OutgoingMessage
from fairway.protocol.sds.channel import FORGOTTEN, HISTORY, META, PARTICIPANTS, MessageChannel
from fairway.protocol.sds.dependencies import MISSING, PARKED, SETTLED, START, WAITED
from fairway.protocol.sds.history import HistoryRecord
from fairway.protocol.sds.incoming_buffer import MissingDependency
from fairway.protocol.sds.pending_citations import UNCITED
from fairway.protocol.sds.repair import REPAIR_REQUESTS, REPAIR_RESPONSES, RepairBuffer
from fairway.protocol.sds.retained import RETAINED
from fairway.protocol.sds.wait_clock import STORED_STEP_MS
from fairway.wire.coverage import Coverage
from fairway.wire.sds import HistoryEntry


class SdsState:
    """Reads a channel as rows, and loads one from rows."""

    def __init__(self, channel: MessageChannel) -> None:
        self._channel = channel
        self.readers: dict[str, RowReader] = {
            META: self._meta_row,
            FORGOTTEN: lambda _: channel.history.window,
            HISTORY: self._history_row,
            SETTLED: self._settled_row,
            START: self._start_row,
            OUTGOING: self._outgoing_row,
            ACKNOWLEDGEMENTS: self._acknowledgement_row,
            WAITED: self._waited_row,
            PARKED: self._parked_row,
            MISSING: self._missing_row,
            REPAIR_REQUESTS: lambda key: self._repair_row(channel.repair.requests, key),
            REPAIR_RESPONSES: lambda key: self._repair_row(channel.repair.responses, key),
            RETAINED: channel.retained.row,
            PARTICIPANTS: lambda key: () if key in channel.participants else None,
            UNCITED: lambda key: (
                () if channel.pending_citations.has_rows and key in channel.pending_citations.uncited else None
            ),
        }
        """The tables in the order of loading: rows may need those of earlier tables."""

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield (table, key, row) for the whole state."""
        channel = self._channel
        keys: dict[str, Iterable[str]] = {
            META: ("",),
            FORGOTTEN: ("",),
            HISTORY: (record.message_id for record in channel.history),
            SETTLED: channel.dependencies.settled,
            START: ("",),
            OUTGOING: channel.outgoing.messages,
            ACKNOWLEDGEMENTS: channel.outgoing.messages,
            WAITED: ("",),
            PARKED: channel.dependencies.incoming.parked,
            MISSING: channel.dependencies.incoming.missing,
            REPAIR_REQUESTS: (scheduled.message_id for scheduled in channel.repair.requests),
            REPAIR_RESPONSES: (scheduled.message_id for scheduled in channel.repair.responses),
            RETAINED: channel.retained,
            PARTICIPANTS: channel.participants,
            UNCITED: channel.pending_citations.uncited if channel.pending_citations.has_rows else (),
        }
        for table, read in self.readers.items():
            for key in keys[table]:
                row = read(key)
                if row is not None:
                    yield table, key, row

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Fill a new channel with the rows that `rows` yielded, in any order."""
        tables: dict[str, list[tuple[str, Row]]] = {table: [] for table in self.readers}
        for table, key, row in rows:
            if table not in tables:
                raise SnapshotError(f"SDS has no table {table!r}; it has {', '.join(tables)}")
            tables[table].append((key, row))
        try:
            self._load_tables(tables)
            self._rebuild()
        except (ValueError, TypeError, DecodeError) as error:
            raise SnapshotError(f"a stored row does not have the shape that this version writes: {error}") from error

    def _load_tables(self, tables: dict[str, list[tuple[str, Row]]]) -> None:
        channel = self._channel
        for _, (lamport, sequence, born_at, since_ms, lacking) in tables[META]:
            channel.lamport, channel.sequence, channel.born_at = lamport, sequence, born_at
            channel.vouching.doubtful_since_ms, channel.vouching.lacking = since_ms, tuple(lacking)
        for _, (lamport, message_id) in tables[FORGOTTEN]:
            channel.history.window = (operator.index(lamport), message_id)
        for key, (lamport, hint, sender, prints) in sorted(tables[HISTORY], key=lambda item: (item[1][0], item[0])):
            channel.history.add(HistoryRecord(lamport, key, hint, intern(sender), prints))
        for key, (lost,) in tables[SETTLED]:
            channel.dependencies.settled[key] = lost
        for _, (encoded, record, awaited) in tables[START]:
            start = Coverage.decode(encoded)
            left = tuple(entry for entry in start.awaited if entry.message_id in awaited)
            channel.set_start(start, HistoryRecord(*record), left)
        for key, row in sorted(tables[OUTGOING], key=lambda item: item[1][0]):
            self._load_outgoing(key, row)
        for key, (acknowledged, possible) in tables[ACKNOWLEDGEMENTS]:
            self._load_acknowledgement(key, acknowledged, possible)
        incoming = channel.dependencies.incoming
        for _, (waited_ms,) in tables[WAITED]:
            clock = channel.dependencies.clock
            clock.waited_ms = clock.stored_ms = operator.index(waited_ms)
        # The waiting clock is stored in steps, so that stored times of this clock may be later than it.
        latest_ms = channel.dependencies.clock.waited_ms + STORED_STEP_MS
        for key, (hint, sender, since_ms, since_waited_ms, turned_away, blocked_on, release_after) in sorted(
            tables[MISSING], key=lambda item: (item[1][3], item[1][2], item[0])
        ):
            waited_ms = min(since_waited_ms, latest_ms)
            incoming.missing[key] = MissingDependency(
                entry=HistoryEntry(key, hint, sender),
                since_ms=since_ms,
                since_waited_ms=waited_ms,
                first_waited_ms=waited_ms,
                turned_away=turned_away,
                blocked_on=blocked_on,
                release_after=tuple(release_after),
            )
        for _, (order, encoded, hint, since_waited_ms) in sorted(tables[PARKED], key=lambda item: item[1][0]):
            message = channel.profile.codec.decode(encoded)
            cited = channel.dependencies.cited(message)
            absent = channel.dependencies.absent(message, cited)
            # A parked message waits for a message in the table of missing ones until the next sweep, even if that is
            # already in the history; but not if it was skipped.
            noted = incoming.missing.keys() - channel.dependencies.settled.keys()
            waited_for = [entry for entry in cited if entry.message_id in noted]
            waited_for = list(dict.fromkeys([*waited_for, *absent]))
            incoming.park(message, encoded, hint, waited_for, min(since_waited_ms, latest_ms), order)
            if not waited_for:
                channel.dependencies.held_back[message.message_id] = None
        for buffer, table in (
            (channel.repair.requests, REPAIR_REQUESTS),
            (channel.repair.responses, REPAIR_RESPONSES),
        ):
            for key, (hint, sender, at_ms, asked, heard) in tables[table]:
                added, evicted = buffer.add(HistoryEntry(key, hint, sender), at_ms, asked, heard)
                without_room = evicted if added else key
                if without_room is not None:
                    channel.journal.touch(table, without_room)
        for key, (order, encoded) in sorted(tables[RETAINED], key=lambda item: item[1][0]):
            channel.retained.keep_again(key, order, encoded)
        channel.participants.update(key for key, _ in tables[PARTICIPANTS])
        uncited = {key for key, _ in tables[UNCITED]}
        for record in channel.history:
            if record.message_id in uncited:
                channel.pending_citations.entered(record.message_id, record.sender_id)
        for key in uncited:
            # The message may have been forgotten, or repairs may be enabled since the restart.
            channel.journal.touch(UNCITED, key)

    def _rebuild(self) -> None:
        channel = self._channel
        count = max(0, channel.bloom_parameters.capacity - len(channel.dependencies.incoming))
        newest = islice(channel.history, max(0, len(channel.history) - count), None)
        channel.bloom.refill([record.message_id for record in newest] + list(channel.dependencies.incoming.parked))
        self._rebuild_citations()

    def _rebuild_citations(self) -> None:
        """Find the descendants of own messages, and the uncited messages, among the retained and outgoing messages."""
        channel = self._channel
        own = channel.outgoing.messages
        entered = [own_message.message for key, own_message in own.items() if key not in channel.retained]
        for message_id in channel.retained:
            encoded = channel.retained.encoded(message_id)
            if encoded is not None:
                message = channel.profile.codec.decode(encoded)
                # Messages from before the restart count towards the allowance of answers.
                channel.repair.earned(message)
                entered.append(message)
        for message in entered:
            channel.outgoing.ancestry.record(message.message_id, message.causal_history, own)
        if not channel.pending_citations.has_rows:
            channel.pending_citations.rebuild(entered, channel.dependencies.cited)

    def _meta_row(self, _key: str) -> Row:
        channel, vouching = self._channel, self._channel.vouching
        doubts = (vouching.doubtful_since_ms, vouching.lacking)
        return (channel.lamport, channel.sequence, channel.born_at, *doubts)

    def _history_row(self, key: str) -> Row | None:
        record = self._channel.history.get(key)
        if record is None:
            return None
        return (record.lamport, record.retrieval_hint, record.sender_id, record.fingerprints)

    def _settled_row(self, key: str) -> Row | None:
        settled = self._channel.dependencies.settled
        return (settled[key],) if key in settled else None

    def _start_row(self, _key: str) -> Row | None:
        start, record = self._channel.start, self._channel.started_by
        if start is None or record is None:
            return None
        return (start.encode(), record, tuple(entry.message_id for entry in self._channel.dependencies.awaited))

    def _waited_row(self, _key: str) -> Row | None:
        stored_ms = self._channel.dependencies.clock.stored_ms
        return (stored_ms,) if stored_ms else None

    def _parked_row(self, key: str) -> Row | None:
        parked = self._channel.dependencies.incoming.parked.get(key)
        if parked is None:
            return None
        return (parked.order, parked.encoded, parked.retrieval_hint, parked.since_waited_ms)

    def _missing_row(self, key: str) -> Row | None:
        missing = self._channel.dependencies.incoming.missing.get(key)
        if missing is None:
            return None
        _, hint, sender = missing.entry
        waited = (missing.since_ms, missing.since_waited_ms)
        return (hint, sender, *waited, missing.turned_away, missing.blocked_on, missing.release_after)

    def _outgoing_row(self, key: str) -> Row | None:
        waiting = self._channel.outgoing.messages.get(key)
        if waiting is None:
            return None
        encoded = self._channel.retained.encoded(key) or self._channel.profile.codec.encode(waiting.message)
        return (waiting.sequence, encoded, waiting.made_ms)

    def _load_outgoing(self, key: str, row: Row) -> None:
        sequence, encoded, made_ms = row
        message = self._channel.profile.codec.decode(encoded)
        self._channel.outgoing.messages[key] = OutgoingMessage(message=message, sequence=sequence, made_ms=made_ms)

    def _acknowledgement_row(self, key: str) -> Row | None:
        waiting = self._channel.outgoing.messages.get(key)
        possible = tuple(self._channel.outgoing.possible.get(key, ()))
        if waiting is None or not (waiting.acknowledged_by or possible):
            return None
        return tuple((who, evidence.value) for who, evidence in waiting.acknowledged_by.items()), possible

    def _load_acknowledgement(self, key: str, acknowledged: Row, possible: Row) -> None:
        waiting = self._channel.outgoing.messages.get(key)
        if waiting is not None:
            waiting.acknowledged_by = {who: Evidence(value) for who, value in acknowledged}
            if possible:
                self._channel.outgoing.possible[key] = dict.fromkeys(possible)

    @staticmethod
    def _repair_row(buffer: RepairBuffer, key: str) -> Row | None:
        scheduled = buffer.get(key)
        if scheduled is None:
            return None
        _, hint, sender = scheduled.entry
        return (hint, sender, scheduled.at_ms, scheduled.asked, scheduled.heard)
