"""`Reassembler`: rebuilds payloads from segments (SEGMENTATION, "Receiving"; LIP-243, "Reconstruction").

The reassembler is pure: time is an argument. `Reassembler.accept` returns `MessageComplete`, `SegmentKept` or `Refused`
for each segment. Segments may arrive in any order, repeatedly, and from many senders at once; some may never arrive.
Each sending of a payload is returned once, and only with the Keccak-256 that its segments name.

A kept segment is acknowledged. A sender considers a message delivered once enough of its segments are acknowledged.
Therefore the reassembler

* keeps a segment until its set ends: a full quota refuses new segments;
* holds too few segments of a set to rebuild the payload. It keeps the segment that suffices only if the hash matches;
  otherwise it refuses that segment and gives up the set;
* refuses further segments of a set that it gave up, so the sender never considers that message delivered.

The first content for an index is valid; a different one is refused.

Equal payloads have equal hashes. SDS ids and Lamport timestamps distinguish two sendings of one payload
(`SegmentSet.may_hold`). A segment joins the nearest sending in which its index is free, or else begins a new sending.
If a sender pauses between two segments, the later segments are far from the earlier ones. They begin a new set, which
has none of the completed set's segments, and are recognised as late (`SegmentSet.may_be_rest_of`).

Segments are not trusted: the counts that they claim allocate no memory, each sender has a quota, and every set is
forgotten in the end. A store can mirror the state: the reassembler calls ``on_change`` with the key of each changed
row, `Reassembler.row` returns its value, and `Reassembler.load` restores all rows.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from fairway.errors import SegmentError
from fairway.events import Limit, LossReason
from fairway.protocol.segmentation import records
from fairway.protocol.segmentation.assembly import Unassembled, assemble
from fairway.protocol.segmentation.open_sets import OpenSets, Quotas
from fairway.protocol.segmentation.outcomes import (
    GIVEN_UP,
    HASH_MISMATCH,
    MessageComplete,
    Outcome,
    ReassemblyStatistics,
    Refused,
    SegmentKept,
    SetLost,
)
from fairway.protocol.segmentation.segment_set import SegmentIndex, SegmentSet, SetKey, SetState
from fairway.wire.segment import INVALID, MAX_SEGMENTS, UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairway.options import SegmentationConfig
    from fairway.protocol.journal import Row
    from fairway.wire.segment import Segment, SegmentFormat

MAX_REMEMBERED_SENDINGS: Final = 16
"""Ended sendings of one payload by one sender that are remembered; each new segment is compared with all of them."""

_OF_ONE_SENDER: Final = 8
"""Divisor of ``max_buffered_bytes`` for the share of one sender."""

IDS_PER_SET: Final = 16
"""SDS ids kept per ended set, on average; by default a message of 1 MiB has 12 segments."""


class _Identity(NamedTuple):
    """The common key of all sendings of one payload by one sender."""

    sender_id: str
    payload_hash: bytes
    payload_length: int | None


def _ignore(_key: str) -> None:
    """Ignore a change: the ``on_change`` of a reassembler whose state is not stored."""


class Reassembler:
    """Reassembles the messages of one channel.

    The reassembler calls ``on_change`` with the key of each row that was put or deleted; `row` returns None for a
    deleted one. The default ``quotas`` follow from ``config.max_buffered_bytes``.
    """

    def __init__(
        self,
        config: SegmentationConfig,
        segment_format: SegmentFormat,
        on_change: Callable[[str], None] = _ignore,
        quotas: Quotas | None = None,
    ) -> None:
        most = config.max_buffered_bytes
        self.quotas = quotas or Quotas(bytes_per_sender=most // _OF_ONE_SENDER, all_bytes=most)
        self._format = segment_format
        self._on_change = on_change
        self._sendings: dict[_Identity, list[SegmentSet]] = {}
        self._open = OpenSets(self.quotas, config.reassembly_timeout_ms)
        self._ended: OrderedDict[str, SegmentSet] = OrderedDict()
        """The completed and the given up sets by name, the least recently changed first."""
        self._ended_ids = 0
        self._turn = 0
        self._counts: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        # LIP-243 bounds all segments by one configured size. With SEGMENTATION each sender chooses the size, so the
        # bound is the quota of a sender.
        self._max_payload_bytes = (
            config.segment_size_bytes if segment_format.self_describing else self.quotas.bytes_per_sender
        )

    def accept(
        self,
        sender_id: str,
        sds_id: str,
        lamport: int,
        content: bytes,
        now_ms: int,
        *,
        is_next: Callable[[], bool] = lambda: False,
        waiting_bytes: int = 0,
    ) -> Outcome:
        """Keep the content of an SDS message, or refuse it.

        A segment may exceed quotas if ``is_next`` returns true (`fairway.protocol.segmentation.open_sets`); only an
        incomplete message needs the answer. ``waiting_bytes`` is the size of complete messages that wait for delivery;
        it counts as used. Raises no error.
        """
        try:
            segment = self._format.decode(content)
        except SegmentError as error:
            # If whole messages are not wrapped, a content that is not protobuf is a whole message.
            is_other = error.reason == UNDECODABLE and not self._format.self_describing
            if not is_other and self._format.is_segment(content):
                return self._refuse(error.reason, str(error))
            self._counts["whole_messages"] += 1
            return MessageComplete(payload=content)
        if len(segment.payload) > self._max_payload_bytes:
            detail = f"a payload of {len(segment.payload)} bytes, at most {self._max_payload_bytes} are allowed"
            return self._refuse("oversized", detail)
        identity = _Identity(sender_id, segment.payload_hash, segment.payload_length)
        sendings = self._sendings.get(identity, [])
        target = self._sending_of(sendings, segment, sds_id, lamport)
        index = SegmentIndex.of(segment)
        if target is None:
            # A copy of a segment of an incomplete sending begins another one.
            self_describing = self._format.self_describing
            if any(known.contradicts(segment, self_describing=self_describing) for known in sendings):
                return self._refuse("contradicting", "an incomplete message of the same hash has other segments")
            generation = sendings[-1].key.generation + 1 if sendings else 0
            target = SegmentSet.begun_by(segment, lamport, sender_id, generation)
        elif target.state is SetState.GIVEN_UP:
            return self._refuse(GIVEN_UP, "a segment of a message that was given up", key=target.key)
        elif target.state is SetState.COMPLETED:
            return self._late(target, segment, sds_id)
        elif index in target.ids:
            if target.payloads[index] != segment.payload:
                return self._refuse("contradicting", "another content came under the same SDS id")
            self._counts["segments_duplicate"] += 1
            return SegmentKept(segments=target, is_duplicate=True)
        counts = target.counts_with(segment)
        if sum(counts) > MAX_SEGMENTS:
            # A segment of SEGMENTATION names only the data or only the parity count, so the sum is checked here.
            return self._refuse(INVALID, f"{sum(counts)} segments, at most {MAX_SEGMENTS} allowed")
        if not target.fits_shards(segment):
            return self._refuse("contradicting", "its length does not fit the other segments of its message")
        payload = self._assembled(target, segment)
        if isinstance(payload, bytes):
            return self._complete(target, segment, sds_id, lamport, payload)
        if payload is Unassembled.MISMATCH:
            return self._mismatch(target, segment, sds_id, lamport)
        if payload is Unassembled.UNDECIDED:
            return self._refuse("contradicting", payload.value)
        full = self._open.full(target, len(segment.payload), is_next=is_next(), waiting_bytes=waiting_bytes)
        if full is not None:
            return self._refuse("no-room", f"{full.value}: incomplete messages must become complete first", full)
        target.put(segment, sds_id, lamport)
        self._hold(target, index, now_ms)
        return SegmentKept(segments=target)

    def is_piece(self, content: bytes, payload: bytes) -> bool:
        """Return whether the content of an SDS message is a data segment of a payload, at its index."""
        try:
            return self._format.decode(content).is_piece_of(payload)
        except SegmentError:
            return False

    def expire(self, now_ms: int) -> tuple[SetLost, ...]:
        """Give up the sets without a new segment for reassembly_timeout_ms.

        SEGMENTATION, "Receiving": incomplete reconstructions SHOULD be garbage-collected after a timeout.
        """
        lost: list[SetLost] = []
        while (overdue := self._open.overdue(now_ms)) is not None:
            lost.append(self._give_up(overdue, LossReason.SEGMENTS_EXPIRED))
        return tuple(lost)

    def evict(self, sender_id: str) -> SetLost | None:
        """Evict a sender's oldest incomplete set, or else the oldest set of the sender that holds most bytes.

        Only for receivers that send no acknowledgements, such as the reader of an archive.
        """
        oldest = self._open.oldest_of(sender_id)
        return None if oldest is None else self._give_up(oldest, LossReason.SEGMENTS_EVICTED)

    def completed(self) -> Iterator[SegmentSet]:
        """Yield the remembered completed sets."""
        return (ended for ended in self._ended.values() if ended.state is SetState.COMPLETED)

    def next_deadline(self) -> int | None:
        """Return when `expire` is due next, in ms; None without incomplete sets."""
        return self._open.next_deadline()

    def statistics(self) -> ReassemblyStatistics:
        """Return counts since this reassembler was created, and its present size."""
        counts = self._counts
        return ReassemblyStatistics(
            whole_messages=counts["whole_messages"],
            segments_stored=counts["segments_stored"],
            segments_duplicate=counts["segments_duplicate"],
            segments_surplus=counts["segments_surplus"],
            segments_discarded=dict(self._refused),
            messages_completed=counts["messages_completed"],
            messages_recovered=counts["messages_recovered"],
            sets_rejected=counts[LossReason.HASH_MISMATCH.name],
            sets_expired=counts[LossReason.SEGMENTS_EXPIRED.name],
            sets_evicted=counts[LossReason.SEGMENTS_EVICTED.name],
            open_sets=len(self._open),
            late_sets=sum(self._completed_by(known) is not None for known in self._open),
            open_segments=self._open.segment_count,
            buffered_bytes=self._open.byte_count,
            ended_sets=len(self._ended),
        )

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield key and value of every row of the state."""
        for kept in (*self._open, *self._ended.values()):
            yield from records.rows_of(kept)

    def row(self, key: str) -> Row | None:
        """Return the value of a row, or None if it was deleted."""
        return records.row_at(key, lambda name: self._open.get(name) or self._ended.get(name))

    def load(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Restore the state of an earlier reassembler with the same configuration; this one must be new.

        Raises `SnapshotError` for unreadable rows.
        """
        for kept in records.restored(rows):
            self._turn = max(self._turn, kept.turn)
            self._sendings.setdefault(_identity_of(kept), []).append(kept)
            if kept.is_open:
                self._open.grow(kept, len(kept.ids), kept.byte_count)
            else:
                self._ended[kept.name] = kept
                self._ended_ids += len(kept.ids)
        for sendings in self._sendings.values():
            sendings.sort(key=lambda kept: kept.key.generation)

    def _refuse(self, reason: str, detail: str, full: Limit | None = None, key: SetKey | None = None) -> Refused:
        self._refused[reason] += 1
        return Refused(reason=reason, detail=detail, full=full, key=key)

    def _sending_of(
        self, sendings: Iterable[SegmentSet], segment: Segment, sds_id: str, lamport: int
    ) -> SegmentSet | None:
        """Return the set that has a segment, or the nearest set that may take it, or None.

        Of several sets at the same distance the oldest one counts.
        """
        index, self_describing = SegmentIndex.of(segment), self._format.self_describing
        free: list[SegmentSet] = []
        for known in sendings:
            if known.ids.get(index) == sds_id:
                return known
            agrees = known.counts_agree(segment, self_describing=self_describing)
            if agrees and index not in known.ids and known.may_hold(segment, lamport):
                free.append(known)
        return min(free, key=lambda known: known.distance(segment, lamport), default=None)

    def _assembled(self, target: SegmentSet, segment: Segment) -> bytes | Unassembled | None:
        """Return the payload of a set with one more segment; None if more segments are needed."""
        # SEGMENTATION, "Receiving": MUST attempt reconstruction when the number of available (data + parity) segments
        # equals or exceeds the data segment count.
        data_count, parity_count = target.counts_with(segment)
        count = len(target.ids) + 1
        if data_count:
            if count < data_count:
                return None
            payloads = {**target.payloads, SegmentIndex.of(segment): segment.payload}
            return assemble(target.key, payloads, data_count, parity_count)
        if count < parity_count or parity_count < 2:
            return None
        # All parity and no data arrived, so the number of data segments is unknown. It is at least the number of
        # parity segments; if the two are equal, the parity suffices.
        payloads = {**target.payloads, SegmentIndex.of(segment): segment.payload}
        payload = assemble(target.key, payloads, parity_count, parity_count)
        if not isinstance(payload, bytes):
            return None
        target.learn_data_count(parity_count)
        return payload

    def _hold(self, target: SegmentSet, index: SegmentIndex, now_ms: int) -> None:
        target.grown_ms = now_ms
        target.turn = self._next_turn()
        if target.name not in self._open:
            self._sendings.setdefault(_identity_of(target), []).append(target)
        self._open.grow(target, 1, len(target.payloads[index]))
        self._counts["segments_stored"] += 1
        self._on_change(records.segment_row_key(target, index))
        self._on_change(records.set_row_key(target))

    def _late(
        self, completed: SegmentSet, segment: Segment, sds_id: str, merged_ids: tuple[str, ...] = ()
    ) -> SegmentKept:
        self._counts["segments_surplus"] += 1
        if SegmentIndex.of(segment) not in completed.ids:
            completed.ids[SegmentIndex.of(segment)] = sds_id
            completed.parity_count = completed.parity_count or segment.parity_count
            self._remember(completed, 1)
        return SegmentKept(segments=completed, is_late=True, merged_ids=merged_ids)

    def _complete(
        self, target: SegmentSet, segment: Segment, sds_id: str, lamport: int, payload: bytes
    ) -> MessageComplete | SegmentKept:
        completed = self._completed_by(target, SegmentIndex.of(segment))
        if completed is not None:
            return self._late(completed, segment, sds_id, self._merge(target, completed))
        data_here = sum(not index.is_parity for index in target.ids) + (not segment.is_parity)
        recovered = data_here < target.counts_with(segment)[0]
        self._end(target, SetState.COMPLETED, segment, sds_id, lamport)
        self._counts["segments_stored"] += 1
        self._counts["messages_completed"] += 1
        self._counts["messages_recovered"] += recovered
        return MessageComplete(payload=payload, segments=target, recovered=recovered)

    def _mismatch(self, target: SegmentSet, segment: Segment, sds_id: str, lamport: int) -> Refused:
        """Give up a set whose payload has the wrong hash, and refuse its last segment."""
        self._end(target, SetState.GIVEN_UP, segment, sds_id, lamport)
        self._refused[HASH_MISMATCH] += 1
        self._counts[LossReason.HASH_MISMATCH.name] += 1
        lost = SetLost(key=target.key, reason=LossReason.HASH_MISMATCH, sds_ids=target.sds_ids)
        return Refused(reason=HASH_MISMATCH, detail=Unassembled.MISMATCH.value, key=target.key, lost=lost)

    def _completed_by(self, rest: SegmentSet, more: SegmentIndex | None = None) -> SegmentSet | None:
        """Return the completed set to which the segments of a set may belong as late ones; else None."""
        sendings = self._sendings.get(_identity_of(rest), ())
        return next((known for known in sendings if rest.may_be_rest_of(known, more)), None)

    def _merge(self, rest: SegmentSet, completed: SegmentSet) -> tuple[str, ...]:
        """Move the segments of an open set to a completed set, as late ones; return their SDS ids."""
        if rest.name not in self._open:
            return ()
        self._open.remove(rest)
        self._forget_sending(rest)
        for index in rest.payloads:
            self._on_change(records.segment_row_key(rest, index))
        self._on_change(records.set_row_key(rest))
        completed.ids.update(rest.ids)
        self._remember(completed, len(rest.ids))
        return rest.sds_ids

    def _give_up(self, incomplete: SegmentSet, reason: LossReason) -> SetLost:
        completed = self._completed_by(incomplete)
        if completed is not None:
            return SetLost(key=incomplete.key, reason=None, sds_ids=self._merge(incomplete, completed))
        self._end(incomplete, SetState.GIVEN_UP)
        self._counts[reason.name] += 1
        return SetLost(key=incomplete.key, reason=reason, sds_ids=incomplete.sds_ids)

    def _end(
        self,
        target: SegmentSet,
        state: SetState,
        last: Segment | None = None,
        sds_id: str = "",
        lamport: int = 0,
    ) -> None:
        """End a set, with the ``last`` segment if one is given."""
        held = list(target.payloads)
        if target.name in self._open:
            self._open.remove(target)
        else:
            self._sendings.setdefault(_identity_of(target), []).append(target)
        if last is not None:
            target.put(last, sds_id, lamport)
        target.state = state
        target.payloads.clear()
        for index in held:
            self._on_change(records.segment_row_key(target, index))
        self._remember(target, len(target.ids))

    def _remember(self, ended: SegmentSet, new_ids: int) -> None:
        """Remember an ended set as the most recently changed one, and forget the oldest beyond the limits."""
        ended.turn = self._next_turn()
        self._ended[ended.name] = ended
        self._ended.move_to_end(ended.name)
        self._ended_ids += new_ids
        self._on_change(records.set_row_key(ended))
        most = self.quotas.ended_sets
        while self._ended and (len(self._ended) > most or self._ended_ids > most * IDS_PER_SET):
            self._forget(next(iter(self._ended.values())))
        of_payload = [kept for kept in self._sendings.get(_identity_of(ended), ()) if not kept.is_open]
        if len(of_payload) > MAX_REMEMBERED_SENDINGS:
            self._forget(of_payload[0])

    def _forget(self, ended: SegmentSet) -> None:
        del self._ended[ended.name]
        self._ended_ids -= len(ended.ids)
        self._forget_sending(ended)
        self._on_change(records.set_row_key(ended))

    def _forget_sending(self, gone: SegmentSet) -> None:
        identity = _identity_of(gone)
        self._sendings[identity].remove(gone)
        if not self._sendings[identity]:
            del self._sendings[identity]

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn


def _identity_of(kept: SegmentSet) -> _Identity:
    return _Identity(kept.key.sender_id, kept.key.payload_hash, kept.key.payload_length)
