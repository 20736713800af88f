"""Put segments together again (seed 003, "Receiving"; LIP-243, rules for receivers).

Pure: time is an argument, and what happened comes back as an `Outcome`. Segments may come in any order, more
than once, from many senders at once and in part; each sending of a payload comes out once, verified.

Nothing here trusts a segment: the counts that it claims allocate nothing, each sender has a quota, and all that
is kept has an end. A store can mirror the state as it changes: ``on_change`` names each row that changed,
`Reassembler.row` gives its value, and `Reassembler.load` takes all rows back.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from fairway.errors import SegmentError
from fairway.events import LossReason
from fairway.protocol.segmentation import records
from fairway.protocol.segmentation.assembly import Assembled, Unassembled, assemble
from fairway.protocol.segmentation.completed_sets import CompletedSets
from fairway.protocol.segmentation.generations import Place, place
from fairway.protocol.segmentation.open_sets import OpenSets
from fairway.protocol.segmentation.outcomes import (
    MessageCompleted,
    Outcome,
    ReassemblyStatistics,
    SegmentDiscarded,
    SegmentDuplicate,
    SegmentStored,
    SegmentSurplus,
    SetKey,
    SetLost,
    SetRejected,
    WholeMessage,
)
from fairway.protocol.segmentation.segment_set import SegmentSet, Slot, open_set
from fairway.wire.segment import INVALID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairway.options import SegmentationConfig
    from fairway.protocol.segmentation.records import Row
    from fairway.wire.segment import Segment, SegmentFormat

MAX_REMEMBERED_SENDINGS: Final = 16
"""Completed sendings of one payload by one sender that are remembered: each new segment is compared with all."""


class _Identity(NamedTuple):
    """What the segments of one payload of one sender have in common, whichever sending they are of."""

    sender_id: str
    payload_hash: bytes
    payload_length: int | None


def _ignore(_key: str) -> None:
    """Serve as ``on_change`` where nobody mirrors the state."""


class Reassembler:
    """Reassembles the messages of one channel.

    ``on_change`` is called with the key of each row that was put or deleted; `row` tells which.
    """

    def __init__(
        self,
        config: SegmentationConfig,
        segment_format: SegmentFormat,
        on_change: Callable[[str], None] = _ignore,
    ) -> None:
        self._config = config
        self._format = segment_format
        self._on_change = on_change
        self._generations: dict[_Identity, list[SegmentSet]] = {}
        self._open = OpenSets(config)
        self._completed = CompletedSets(config.max_completed_sets)
        self._turn = 0
        self._counts: Counter[str] = Counter()
        self._discarded: Counter[str] = Counter()
        # LIP-243 bounds every participant's segments by one configured size. Seed 003 makes the size the
        # sender's own choice, so there the bound is what may be kept of a sender at all.
        self._max_payload_bytes = (
            config.segment_size_bytes if segment_format.self_describing else config.max_buffered_bytes_per_sender
        )

    def add(self, sender_id: str, sds_id: str, order_key: int, content: bytes, now_ms: int) -> Outcome:
        """Take in the content of an SDS message.

        ``sds_id`` is the id of the SDS message, ``order_key`` its Lamport timestamp. Raises nothing, whatever
        the content is.
        """
        # LIP-243: expiry is checked whenever a segment comes.
        lost = list(self.expire(now_ms))
        try:
            segment = self._format.decode(content, self._config.max_total_segments)
        except SegmentError as error:
            if self._format.is_segment(content):
                return self._discard(error.reason, str(error), lost)
            self._counts["whole_messages"] += 1
            return WholeMessage(payload=content, lost=tuple(lost))
        if len(segment.payload) > self._max_payload_bytes:
            detail = f"a payload of {len(segment.payload)} bytes, at most {self._max_payload_bytes} are allowed"
            return self._discard("oversized", detail, lost)
        identity = _Identity(sender_id, segment.payload_hash, segment.payload_length)
        action, target = place(
            self._generations.get(identity, ()),
            segment,
            sds_id,
            order_key,
            self_describing=self._format.self_describing,
        )
        if target is None:
            target = self._begin(identity, segment, order_key, now_ms)
        if action is Place.DUPLICATE:
            self._counts["segments_duplicate"] += 1
            return SegmentDuplicate(set_key=target.key, lost=tuple(lost))
        if action is Place.SURPLUS:
            return self._surplus(target, segment, sds_id, order_key, lost)
        if action is Place.MISMATCH:
            detail = (
                f"{segment.data_count} data and {segment.parity_count} parity segments, "
                f"but the set has {target.data_count} and {target.parity_count}"
            )
            return self._discard("count-mismatch", detail, lost)
        if target.total_with(segment) > self._config.max_total_segments:
            # Segments of seed 003 tell one count each: only together do they claim too much.
            detail = f"{target.total_with(segment)} segments, at most {self._config.max_total_segments} allowed"
            return self._discard(INVALID, detail, lost)
        return self._store(target, segment, sds_id, order_key, now_ms, lost)

    def expire(self, now_ms: int) -> tuple[SetLost, ...]:
        """Give up the sets that gained nothing for reassembly_timeout_ms; return them.

        Seed 003, "Receiving": incomplete reconstructions SHOULD be garbage-collected after a timeout.
        """
        lost = []
        while (overdue := self._open.overdue(now_ms)) is not None:
            lost.append(self._give_up(overdue, LossReason.SEGMENTS_EXPIRED))
        return tuple(lost)

    def next_deadline(self) -> int | None:
        """Return when `expire` will next have something to do, in ms; None if nothing is incomplete."""
        return self._open.next_deadline()

    def statistics(self) -> ReassemblyStatistics:
        """Return counts since the start and what is held now."""
        counts = self._counts
        return ReassemblyStatistics(
            whole_messages=counts["whole_messages"],
            segments_stored=counts["segments_stored"],
            segments_duplicate=counts["segments_duplicate"],
            segments_surplus=counts["segments_surplus"],
            segments_discarded=dict(self._discarded),
            messages_completed=counts["messages_completed"],
            messages_recovered=counts["messages_recovered"],
            recoveries_failed=counts["recoveries_failed"],
            sets_rejected=counts["sets_rejected"],
            sets_expired=counts[LossReason.SEGMENTS_EXPIRED.name],
            sets_evicted=counts[LossReason.SEGMENTS_EVICTED.name],
            open_sets=len(self._open),
            open_segments=self._open.segment_count,
            buffered_bytes=self._open.byte_count,
            completed_sets=len(self._completed),
        )

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield key and value of every row of the state."""
        for kept in (*self._open, *self._completed):
            yield from records.rows_of(kept)

    def row(self, key: str) -> Row | None:
        """Return the value of one row, or None if it is (now) deleted."""
        return records.row_at(key, lambda name: self._open.get(name) or self._completed.get(name))

    def load(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Take back the state of an earlier reassembler with the same configuration; this one must be new.

        Raises `SnapshotError` for rows that are not such a state.
        """
        for kept in records.restored(rows):
            self._turn = max(self._turn, kept.turn)
            self._generations.setdefault(_identity_of(kept), []).append(kept)
            if kept.completed:
                self._completed.touch(kept, len(kept.ids))
            else:
                self._open.grow(kept, len(kept.ids), kept.byte_count)
        for generations in self._generations.values():
            generations.sort(key=lambda kept: kept.key.generation)

    def _discard(self, reason: str, detail: str, lost: list[SetLost]) -> SegmentDiscarded:
        self._discarded[reason] += 1
        return SegmentDiscarded(reason=reason, detail=detail, lost=tuple(lost))

    def _begin(self, identity: _Identity, segment: Segment, order_key: int, now_ms: int) -> SegmentSet:
        generations = self._generations.setdefault(identity, [])
        key = SetKey(
            sender_id=identity.sender_id,
            payload_hash=identity.payload_hash,
            payload_length=identity.payload_length,
            generation=generations[-1].key.generation + 1 if generations else 0,
        )
        begun = open_set(key, segment, order_key, now_ms=now_ms, turn=self._turn)
        generations.append(begun)
        return begun

    def _surplus(
        self, target: SegmentSet, segment: Segment, sds_id: str, order_key: int, lost: list[SetLost]
    ) -> SegmentSurplus:
        self._counts["segments_surplus"] += 1
        if Slot.of(segment) not in target.ids:
            # Its slot is taken from now on, so that a later sending's segment is not mistaken for it.
            target.put(segment, sds_id, order_key)
            self._remember(target, 1)
        return SegmentSurplus(set_key=target.key, lost=tuple(lost))

    def _store(
        self,
        target: SegmentSet,
        segment: Segment,
        sds_id: str,
        order_key: int,
        now_ms: int,
        lost: list[SetLost],
    ) -> Outcome:
        target.put(segment, sds_id, order_key)
        target.grown_ms = now_ms
        target.turn = self._next_turn()
        self._open.grow(target, 1, len(segment.payload))
        self._counts["segments_stored"] += 1
        result = assemble(target)
        if isinstance(result, Assembled):
            return self._complete(target, result, Slot.of(segment), lost)
        if result is Unassembled.MISMATCH:
            return self._reject(target, lost)
        if result is Unassembled.RECOVERY_FAILED:
            self._counts["recoveries_failed"] += 1
            target.awaits_data = True
        self._on_change(records.segment_row_key(target, Slot.of(segment)))
        self._on_change(records.set_row_key(target))
        while (excess := self._open.excess(target)) is not None:
            lost.append(self._give_up(excess, LossReason.SEGMENTS_EVICTED))
            if excess is target:
                return self._discard("no-room", "the set alone exceeds a quota", lost)
        return SegmentStored(
            set_key=target.key,
            held=len(target.ids),
            needed=target.data_count or None,
            mismatch=result is Unassembled.RECOVERY_FAILED,
            lost=tuple(lost),
        )

    def _complete(
        self, target: SegmentSet, assembled: Assembled, latest: Slot, lost: list[SetLost]
    ) -> MessageCompleted:
        self._open.remove(target)
        target.data.clear()
        target.parity.clear()
        target.completed = True
        for slot in target.ids:
            if slot != latest:
                self._on_change(records.segment_row_key(target, slot))
        self._remember(target, len(target.ids))
        self._counts["messages_completed"] += 1
        self._counts["messages_recovered"] += assembled.recovered
        orders = {slot: slot.order(target.data_count) for slot in sorted(target.ids)}
        total = target.data_count + target.parity_count
        return MessageCompleted(
            set_key=target.key,
            payload=assembled.payload,
            recovered=assembled.recovered,
            sds_ids=target.sds_ids,
            segments={target.ids[slot]: order for slot, order in orders.items()},
            missing_orders=frozenset(range(total)).difference(orders.values()),
            data_count=target.data_count,
            parity_count=target.parity_count,
            lost=tuple(lost),
        )

    def _reject(self, target: SegmentSet, lost: list[SetLost]) -> SetRejected:
        # Seed 003, "Receiving": on mismatch, the message MUST be discarded and logged as invalid.
        self._drop(target)
        self._counts["sets_rejected"] += 1
        return SetRejected(
            set_key=target.key,
            reason=LossReason.HASH_MISMATCH,
            sds_ids=target.sds_ids,
            lost=tuple(lost),
        )

    def _give_up(self, incomplete: SegmentSet, reason: LossReason) -> SetLost:
        self._drop(incomplete)
        self._counts[reason.name] += 1
        return SetLost(
            set_key=incomplete.key,
            reason=reason,
            held=len(incomplete.ids),
            needed=incomplete.data_count or None,
            sds_ids=incomplete.sds_ids,
        )

    def _drop(self, incomplete: SegmentSet) -> None:
        self._open.remove(incomplete)
        self._forget_generation(incomplete)
        for slot in incomplete.ids:
            self._on_change(records.segment_row_key(incomplete, slot))
        self._on_change(records.set_row_key(incomplete))

    def _remember(self, completed: SegmentSet, new_ids: int) -> None:
        """Keep a completed set as the one touched last, and forget what there is no room for."""
        completed.turn = self._next_turn()
        self._completed.touch(completed, new_ids)
        self._on_change(records.set_row_key(completed))
        while (excess := self._completed.excess()) is not None:
            self._forget(excess)
        sendings = [kept for kept in self._generations.get(_identity_of(completed), ()) if kept.completed]
        if len(sendings) > MAX_REMEMBERED_SENDINGS:
            self._forget(sendings[0])

    def _forget(self, completed: SegmentSet) -> None:
        self._completed.forget(completed)
        self._forget_generation(completed)
        self._on_change(records.set_row_key(completed))

    def _forget_generation(self, gone: SegmentSet) -> None:
        identity = _identity_of(gone)
        self._generations[identity].remove(gone)
        if not self._generations[identity]:
            del self._generations[identity]

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn


def _identity_of(kept: SegmentSet) -> _Identity:
    return _Identity(kept.key.sender_id, kept.key.payload_hash, kept.key.payload_length)
