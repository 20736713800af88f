"""Snapshots: states of the application that participants publish, for newcomers (docs/snapshots.md).

A snapshot is a message in an `Envelope` with the `Coverage` of its state. `Snapshots` keeps the newest one, by the
order of the channel, and makes the coverage of a new one. `SnapshotSearch` finds the newest one among stored messages,
without the messages that these cite. `Stack.start_from` then skips the covered messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from typing import Final, NamedTuple

from fairway.events import MessageReceived, OrderKey
from fairway.protocol.effects import AwaitCipher, QueryStore
from fairway.protocol.encryption.ciphering import Ciphered
from fairway.protocol.encryption.epochs import MessageClosedError
from fairway.protocol.incoming.catching_up import QueryOnConnect
from fairway.protocol.incoming.opening import OpenedMessage, Opener, ReceivedWakuMessage
from fairway.protocol.incoming.undelivered import Undelivered
from fairway.protocol.journal import Row, RowReader
from fairway.protocol.segmentation.outcomes import MessageComplete
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.shared import Shared
from fairway.units import NS_PER_MS
from fairway.wire.coverage import Coverage, whole_id
from fairway.wire.envelope import ENVELOPE_PREFIX, Envelope, EnvelopeKind
from fairway.wire.sds import HistoryEntry, Kind
from fairway.wire.waku_message import WakuMessage

SNAPSHOT: Final = "snapshot"

_CITED: Final = 100
"""Newest covered messages that a snapshot lists, because the next messages cite them."""
_WAITED_FOR: Final = 100
"""Unfinished messages that a snapshot lists with a hint, the oldest; newcomers read the time of the others."""
_LISTED: Final = 1_000
"""Unfinished messages that a snapshot lists; it covers nothing from the others on."""
_MAX_LOST: Final = 1_000
"""Lost messages that a snapshot lists; they may arrive late."""


class KnownSnapshot(NamedTuple):
    """A snapshot, of this participant or another one; also its row in the store."""

    order_key: OrderKey
    sender_id: str
    timestamp_ns: int
    """Timestamp of its WakuMessage, or the time of the send, in Unix nanoseconds."""
    payload: bytes
    request_id: str = ""
    """Request id of the send of an own one."""

    @property
    def envelope(self) -> Envelope:
        """The state and its coverage."""
        return Envelope.of(self.payload)

    def coverage(self, now_ms: int) -> Coverage:
        """Return the messages that it covers."""
        covered = self.envelope.coverage or Coverage()
        return covered.before(self.sender_id, self.order_key.lamport_timestamp, now_ms)


def is_snapshot(payload: bytes) -> bool:
    """Return whether a payload is a snapshot."""
    envelope = Envelope.decode(payload) if payload.startswith(ENVELOPE_PREFIX) else None
    return envelope is not None and envelope.kind is EnvelopeKind.SNAPSHOT and envelope.coverage is not None


class Snapshots:
    """The newest snapshot of a channel, and what this participant covers."""

    def __init__(self, shared: Shared, undelivered: Undelivered, query_on_connect: QueryOnConnect) -> None:
        self.newest: KnownSnapshot | None = None
        self.readers: dict[str, RowReader] = {SNAPSHOT: lambda _: self.newest}
        self._shared, self._sds, self._journal = shared, shared.sds, shared.journal
        self._undelivered = undelivered
        self._query_on_connect = query_on_connect

    def note(self, snapshot: KnownSnapshot) -> None:
        """Keep a snapshot if it is the newest."""
        if self.newest is None or snapshot.order_key >= self.newest.order_key:
            self.newest = snapshot
            self._journal.touch(SNAPSHOT, "")

    def placed(self, request_id: str, order_key: OrderKey) -> None:
        """Note the place of a sent message, if it is the newest snapshot."""
        if self.newest is not None and self.newest.request_id == request_id:
            self.newest = self.newest._replace(order_key=order_key)
            self._journal.touch(SNAPSHOT, "")

    def takes(self, message: MessageReceived) -> bool:
        """Return whether the application does not get a message: it is a snapshot, or covered by one."""
        start, key = self._sds.start, message.order_key
        if key is None:
            return False
        if message.payload.startswith(ENVELOPE_PREFIX) and is_snapshot(message.payload):
            self.note(KnownSnapshot(key, message.sender_id, message.timestamp_ns, message.payload))
            return True
        return start is not None and start.covers(message.sender_id, *key)

    def coverage(self, unfinished: Iterable[MessageReceived], now_ms: int) -> Coverage:
        """Return what the application has, if it has finished all messages except these, the oldest first."""
        sds, start, waiting = self._sds, self._sds.start or Coverage(), self._undelivered.waiting()
        times_ms = [now_ms, self._read_until_ms(now_ms), *(at_ns // NS_PER_MS for at_ns in waiting.values() if at_ns)]
        missed = {key: entry for key, entry in start.missed.items() if entry.message_id not in sds.history}
        lost = [key for key, is_lost in sds.dependencies.settled.items() if is_lost][-_MAX_LOST:]
        missed |= {key: HistoryEntry(key) for key in (*lost, *waiting)}
        ends: dict[str, int] = {}
        for count, message in enumerate(unfinished):
            name, hashes = message.sender_id, message.message_hashes if count < _WAITED_FOR else ()
            if count >= _WAITED_FOR and message.timestamp_ns:
                times_ms.append(message.timestamp_ns // NS_PER_MS)
            if count >= _LISTED:
                lamport = message.order_key.lamport_timestamp if message.order_key else 0
                ends[name] = min(lamport, ends.get(name, lamport))
                continue
            for sds_id, message_hash in zip_longest(message.sds_ids, hashes[: len(message.sds_ids)]):
                missed[sds_id] = HistoryEntry(whole_id(sds_id), message_hash, name)
        newest = dict(start.newest)
        cited: list[str] = []
        missed_ids = {entry.message_id for entry in missed.values()}
        for record in sds.history:
            lamport, name = sds.believed_lamport(record.lamport, now_ms), record.sender_id
            if record.message_id not in waiting and lamport < ends.get(name, lamport + 1):
                newest[name] = max(newest.get(name, 0), lamport)
                if record.message_id not in missed_ids:
                    cited.append(record.message_id)
        # Segments of delivered messages may be parked.
        parked = [key for key in sds.parked if key not in missed_ids]
        floor = max(start.floor, sds.history.window or (0, ""))
        covered = frozenset([*islice(sorted(start.covered), max(0, _CITED - len(cited))), *cited[-_CITED:], *parked])
        return Coverage(
            read_from_ms=max(0, min(times_ms)),
            floor=floor,
            newest={name: lamport for name, lamport in newest.items() if lamport >= floor[0]},
            covered=covered - missed_ids,
            missed=missed,
        )

    def _read_until_ms(self, now_ms: int) -> int:
        """Return the time up to which this participant has read the messages of a store."""
        read_ms = self._query_on_connect.read_until(now_ms)
        return self._sds.born_at * self._sds.profile.lamport_unit_ms if read_ms is None else read_ms

    def search(self, opener: Opener, admits: Callable[[OpenedMessage, int], bool], query: QueryStore) -> SnapshotSearch:
        """Return a search for a newer snapshot than the known one, in the time of a query."""
        return SnapshotSearch(self._shared, opener, admits, query, self.newest)

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Yield the persisted state as table, key and row."""
        if self.newest is not None:
            yield SNAPSHOT, "", self.newest

    def load(self, rows: Iterable[tuple[str, str, Row]]) -> None:
        """Restore what `rows` yielded."""
        for _, _, (order_key, *rest) in rows:
            self.newest = KnownSnapshot(OrderKey(*order_key), *rest)


class SnapshotSearch:
    """Reads stored messages, the newest first, until the newest snapshot is found.

    A message is decrypted, its signature verified, and its segments joined. It changes no other state of the channel.
    """

    def __init__(
        self,
        shared: Shared,
        opener: Opener,
        admits: Callable[[OpenedMessage, int], bool],
        query: QueryStore,
        known: KnownSnapshot | None,
    ) -> None:
        """``admits`` returns whether SDS may read a message, at a time."""
        self.query: Final = query
        self.found = known
        """The newest snapshot so far."""
        self.is_done = False
        """Whether all messages were read that may be newer than the found one."""
        self._sds, self._ciphering = shared.sds, shared.ciphering
        self._opener, self._admits = opener, admits
        self._reassembler = Reassembler(shared.options.segmentation, shared.options.segment_format)
        self._keys: dict[str, OrderKey] = {}

    def take(self, message: WakuMessage, message_hash: bytes, now_ms: int) -> AwaitCipher | None:
        """Read a message; if its decryption must be awaited, return that, and go on with `deciphered`."""
        transmission = self._opener.transmission_of(message, message_hash, from_store=True)
        if transmission is None:
            return None
        if transmission.timestamp_ns:
            # The found one may be a retransmission; a newer snapshot was made after it, and sent after that.
            lamport = 0 if self.found is None else self.found.order_key.lamport_timestamp
            made_ns = lamport * self._sds.profile.lamport_unit_ms * NS_PER_MS
            self.is_done = transmission.timestamp_ns < max(made_ns, self.query.start_ns or 0)
        try:
            plaintext = self._opener.decrypt(message.payload, transmission)
        except MessageClosedError:
            return None
        if isinstance(plaintext, AwaitCipher):
            return plaintext
        if plaintext is not None:
            self._read(plaintext, transmission, now_ms)
        return None

    def deciphered(self, token: int, result: bytes | BaseException, now_ms: int) -> None:
        """Go on with the result or the exception of an asynchronous encryption hook."""
        match self._ciphering.done(token, result):
            case Ciphered(ReceivedWakuMessage() as transmission, bytes() as plaintext):
                self._read(plaintext, transmission, now_ms)
            case _:
                self._opener.not_decrypted()

    def _read(self, plaintext: bytes, transmission: ReceivedWakuMessage, now_ms: int) -> None:
        opened = self._opener.decode(plaintext, transmission)
        if opened is None:
            return
        message = opened.message
        if message.channel_id != self._sds.channel_id or message.kind is not Kind.CONTENT:
            return
        if not self._admits(opened, now_ms):
            return
        lamport, sds_id = message.lamport_timestamp or 0, message.message_id
        self._keys[sds_id] = OrderKey(self._sds.believed_lamport(lamport, now_ms), sds_id)
        kept = self._reassembler.accept(message.sender_id, sds_id, lamport, message.content or b"", now_ms)
        if not isinstance(kept, MessageComplete) or not is_snapshot(kept.payload):
            return
        ids = (sds_id,) if kept.segments is None else kept.segments.sds_ids
        key = min(self._keys[each] for each in ids)
        if self.found is None or key > self.found.order_key:
            self.found = KnownSnapshot(key, message.sender_id, transmission.timestamp_ns, kept.payload)
