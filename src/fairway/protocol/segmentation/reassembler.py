"""Put segments together again (SEGMENTATION, "Receiving"; LIP-243, "Reconstruction").

Pure: time is an argument, and what happened comes back as an `Outcome`. Segments may come in any order, more
than once, from many senders at once and in part; each sending of a payload comes out once, verified.

A segment that is taken in may be acknowledged, and a sender takes a message for delivered when as many of its segments
are acknowledged as suffice to rebuild it. So the reassembler

* keeps what it took in: a quota turns new segments away, and nothing is evicted for it;
* takes in fewer segments than would suffice until it has seen that their hash is right. The one that would suffice, but
  gives the wrong hash, is set aside; so is what claims a slot that is filled with something else. Either may be the
  forged one: when more comes, the choices are tried;
* takes nothing in any more of a set that it gave up, which its sender therefore never takes for delivered.

Nothing here trusts a segment: the counts that it claims allocate nothing, each sender has a quota, and all that
is kept has an end. A store can mirror the state as it changes: ``on_change`` names each row that changed,
`Reassembler.row` gives its value, and `Reassembler.load` takes all rows back.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple

from fairway.errors import SegmentError
from fairway.events import Limit, LossReason
from fairway.protocol.segmentation import records
from fairway.protocol.segmentation.assembly import Assembled, Unassembled, assemble
from fairway.protocol.segmentation.ended_sets import EndedSets
from fairway.protocol.segmentation.generations import Place, place
from fairway.protocol.segmentation.open_sets import SEGMENT_OVERHEAD_BYTES, OpenSets, Urgency
from fairway.protocol.segmentation.outcomes import (
    MessageCompleted,
    Outcome,
    ReassemblyStatistics,
    SegmentDiscarded,
    SegmentDuplicate,
    SegmentSetAside,
    SegmentStored,
    SegmentSurplus,
    SetKey,
    SetLost,
    SetMerged,
    WholeMessage,
)
from fairway.protocol.segmentation.segment_set import SegmentSet, SetAside, SetState, Slot, open_set
from fairway.wire.segment import INVALID, MAX_SEGMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairway.options import SegmentationConfig
    from fairway.protocol.segmentation.records import Row
    from fairway.wire.segment import Segment, SegmentFormat

MAX_REMEMBERED_SENDINGS: Final = 16
"""Ended sendings of one payload by one sender that are remembered: each new segment is compared with all."""

MAX_ASIDE_PER_SLOT: Final = 4
"""Contents set aside for one slot; a further one is not looked at."""

_ASIDE_SHARE: Final = 8
"""Of all bytes that may be kept, one part in so many may be segments set aside; the oldest of them give way."""


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
        self._ended = EndedSets(config.max_completed_sets)
        self._aside: deque[tuple[SegmentSet, SetAside]] = deque()
        self._aside_bytes = 0
        self._turn = 0
        self._counts: Counter[str] = Counter()
        self._discarded: Counter[str] = Counter()
        # LIP-243 bounds every participant's segments by one configured size. SEGMENTATION makes the size the
        # sender's own choice, so there the bound is what may be kept of a sender at all.
        self._max_payload_bytes = (
            config.segment_size_bytes if segment_format.self_describing else config.max_buffered_bytes_per_sender
        )
        # SEGMENTATION, "Denial of Service": at most 256, which no option of ours can change.
        self._max_segments = (
            config.max_total_segments
            if segment_format.self_describing
            else min(config.max_total_segments, MAX_SEGMENTS)
        )

    def add(
        self,
        sender_id: str,
        sds_id: str,
        order_key: int,
        content: bytes,
        now_ms: int,
        *,
        urgency: Urgency = Urgency.LATER,
        waiting_bytes: int = 0,
    ) -> Outcome:
        """Take in the content of an SDS message, unless it must be refused.

        ``sds_id`` is the id of the SDS message, ``order_key`` its Lamport timestamp. ``urgency`` tells whether it is
        worth room that there hardly is. ``waiting_bytes`` are those of whole messages that wait for their turn: they
        take room, too. Raises nothing, whatever the content is.
        """
        try:
            segment = self._format.decode(content, self._max_segments)
        except SegmentError as error:
            if self._format.is_segment(content):
                return self._discard(error.reason, str(error))
            self._counts["whole_messages"] += 1
            return WholeMessage(payload=content)
        if len(segment.payload) > self._max_payload_bytes:
            detail = f"a payload of {len(segment.payload)} bytes, at most {self._max_payload_bytes} are allowed"
            return self._discard("oversized", detail)
        identity = _Identity(sender_id, segment.payload_hash, segment.payload_length)
        action, target = place(
            self._generations.get(identity, ()),
            segment,
            sds_id,
            order_key,
            self_describing=self._format.self_describing,
        )
        if target is None:
            target = self._opened(identity, segment, order_key, now_ms)
        if action is Place.DUPLICATE:
            self._counts["segments_duplicate"] += 1
            return SegmentDuplicate(set_key=target.key)
        if action is Place.SURPLUS:
            return self._surplus(target, segment, sds_id, order_key)
        if action is Place.MISMATCH:
            detail = (
                f"{segment.data_count} data and {segment.parity_count} parity segments, "
                f"but the set has {target.data_count} and {target.parity_count}"
            )
            return self._discard("count-mismatch", detail)
        if target.total_with(segment) > self._max_segments:
            # Segments of SEGMENTATION tell one count each: only together do they claim too much.
            detail = f"{target.total_with(segment)} segments, at most {self._max_segments} allowed"
            return self._discard(INVALID, detail)
        return self._take(target, segment, sds_id, order_key, now_ms, urgency=urgency, waiting_bytes=waiting_bytes)

    def expire(self, now_ms: int) -> tuple[SetLost | SetMerged, ...]:
        """Give up the sets that gained nothing for reassembly_timeout_ms, whether their hash is wrong or not.

        SEGMENTATION, "Receiving": incomplete reconstructions SHOULD be garbage-collected after a timeout.
        """
        lost = []
        while (overdue := self._open.overdue(now_ms)) is not None:
            reason = LossReason.HASH_MISMATCH if overdue.disputed else LossReason.SEGMENTS_EXPIRED
            lost.append(self._give_up(overdue, reason))
        return tuple(lost)

    def evict(self, sender_id: str) -> SetLost | None:
        """Give up a sender's oldest incomplete set, or the oldest of the sender that holds most, to make room.

        Only for receivers that acknowledge nothing, such as one who reads an archive.
        """
        oldest = self._open.oldest_of(sender_id)
        if oldest is None:
            return None
        gone = self._give_up(oldest, LossReason.SEGMENTS_EVICTED)
        return gone if isinstance(gone, SetLost) else None

    def completed(self) -> Iterator[tuple[str, ...]]:
        """Yield the SDS ids of each message that became whole and is remembered, in segment order."""
        for ended in self._ended:
            if ended.state is SetState.COMPLETED:
                yield ended.sds_ids

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
            segments_set_aside=counts["segments_set_aside"],
            sets_disputed=counts["sets_disputed"],
            sets_rejected=counts[LossReason.HASH_MISMATCH.name],
            sets_expired=counts[LossReason.SEGMENTS_EXPIRED.name],
            sets_evicted=counts[LossReason.SEGMENTS_EVICTED.name],
            open_sets=len(self._open),
            late_sets=sum(self._rest_of(known) is not None for known in self._open),
            open_segments=self._open.segment_count,
            buffered_bytes=self._open.byte_count,
            ended_sets=len(self._ended),
        )

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield key and value of every row of the state."""
        for kept in (*self._open, *self._ended):
            yield from records.rows_of(kept)

    def row(self, key: str) -> Row | None:
        """Return the value of one row, or None if it is (now) deleted."""
        return records.row_at(key, lambda name: self._open.get(name) or self._ended.get(name))

    def load(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Take back the state of an earlier reassembler with the same configuration; this one must be new.

        Raises `SnapshotError` for rows that are not such a state.
        """
        for kept in records.restored(rows):
            self._turn = max(self._turn, kept.turn)
            self._generations.setdefault(_identity_of(kept), []).append(kept)
            if kept.is_open:
                self._open.grow(kept, len(kept.ids), kept.byte_count)
            else:
                self._ended.touch(kept, len(kept.ids))
        for generations in self._generations.values():
            generations.sort(key=lambda kept: kept.key.generation)

    def _discard(self, reason: str, detail: str, full: Limit | None = None) -> SegmentDiscarded:
        self._discarded[reason] += 1
        return SegmentDiscarded(reason=reason, detail=detail, full=full)

    def _opened(self, identity: _Identity, segment: Segment, order_key: int, now_ms: int) -> SegmentSet:
        """Return a new set; it is one of ours only once a segment is taken in."""
        generations = self._generations.get(identity)
        key = SetKey(
            sender_id=identity.sender_id,
            payload_hash=identity.payload_hash,
            payload_length=identity.payload_length,
            generation=generations[-1].key.generation + 1 if generations else 0,
        )
        return open_set(key, segment, order_key, now_ms=now_ms, turn=self._turn)

    def _surplus(self, target: SegmentSet, segment: Segment, sds_id: str, order_key: int) -> Outcome:
        if target.state is SetState.GIVEN_UP:
            return self._discard("given-up", "a segment of a message that was given up")
        self._counts["segments_surplus"] += 1
        if Slot.of(segment) not in target.ids:
            # Its slot is taken from now on, so that a later sending's segment is not mistaken for it.
            target.put(segment, sds_id, order_key)
            target.late.add(Slot.of(segment))
            self._remember(target, 1)
        return SegmentSurplus(set_key=target.key)

    def _take(
        self,
        target: SegmentSet,
        segment: Segment,
        sds_id: str,
        order_key: int,
        now_ms: int,
        *,
        urgency: Urgency,
        waiting_bytes: int,
    ) -> Outcome:
        latest = SetAside(Slot.of(segment), sds_id, segment.payload)
        if latest in target.aside:
            return SegmentSetAside(set_key=target.key, disputed=False)
        data_count, parity_count = counts = target.counts_with(segment)
        if not data_count and parity_count > 1 and len(target.parity.keys() | {segment.index}) == parity_count:
            # Nothing tells how much data there is. There is at least as much as parity: if no more, all of it suffices.
            result = assemble(target, latest, (parity_count, parity_count))
            if isinstance(result, Assembled):
                target.learn_data_count(parity_count)
                return self._complete(target, segment, sds_id, order_key, result)
        result = assemble(target, latest, counts)
        if isinstance(result, Assembled):
            return self._complete(target, segment, sds_id, order_key, result)
        disputed = self._dispute(target) if result is Unassembled.MISMATCH else False
        if latest.slot in target.ids or (data_count and len(target.ids) + 1 >= data_count):
            self._set_aside(target, latest)
            return SegmentSetAside(set_key=target.key, disputed=disputed)
        full = self._open.full(target, len(segment.payload), urgency, waiting_bytes)
        if full is not None:
            return self._discard("no-room", f"{full.value}: what is here must become whole first", full)
        target.put(segment, sds_id, order_key)
        self._store(target, latest, now_ms)
        return SegmentStored(
            set_key=target.key, held=len(target.ids), needed=target.data_count or None, disputed=disputed
        )

    def _store(self, target: SegmentSet, latest: SetAside, now_ms: int) -> None:
        target.grown_ms = now_ms
        target.turn = self._next_turn()
        if self._open.get(target.name) is None:
            self._generations.setdefault(_identity_of(target), []).append(target)
        self._open.grow(target, 1, len(latest.payload))
        self._counts["segments_stored"] += 1
        self._on_change(records.segment_row_key(target, latest.slot))
        self._on_change(records.set_row_key(target))

    def _dispute(self, target: SegmentSet) -> bool:
        """Note that a set's hash is wrong; return whether that is news."""
        if target.disputed:
            return False
        self._counts["sets_disputed"] += 1
        target.disputed = True
        return True

    def _set_aside(self, target: SegmentSet, latest: SetAside) -> None:
        self._counts["segments_set_aside"] += 1
        # A message of one segment whose hash is wrong has no set, and needs none: there is nothing to wait for.
        is_here = self._open.get(target.name) is not None
        if is_here and sum(aside.slot == latest.slot for aside in target.aside) < MAX_ASIDE_PER_SLOT:
            target.aside.append(latest)
            self._aside.append((target, latest))
            self._aside_bytes += len(latest.payload) + SEGMENT_OVERHEAD_BYTES
        while self._aside_bytes > self._config.max_buffered_bytes // _ASIDE_SHARE:
            kept, oldest = self._aside.popleft()
            self._aside_bytes -= len(oldest.payload) + SEGMENT_OVERHEAD_BYTES
            kept.aside.remove(oldest)

    def _complete(
        self, target: SegmentSet, segment: Segment, sds_id: str, order_key: int, assembled: Assembled
    ) -> MessageCompleted | SegmentSurplus:
        complete = self._rest_of(target, Slot.of(segment))
        if complete is not None:
            merged = self._merge(target, complete)
            self._surplus(complete, segment, sds_id, order_key)
            return SegmentSurplus(set_key=complete.key, merged_ids=merged)
        if self._open.get(target.name) is None:
            self._generations.setdefault(_identity_of(target), []).append(target)
        else:
            self._close(target)
        held = list(target.ids)
        forged = {slot: target.ids.pop(slot) for slot in held if assembled.used.get(slot) != target.payload_of(slot)}
        target.put(segment, sds_id, order_key)
        self._end(target, SetState.COMPLETED, held)
        self._counts["segments_stored"] += 1
        self._counts["messages_completed"] += 1
        self._counts["messages_recovered"] += assembled.recovered
        orders = {slot: slot.order(target.data_count) for slot in sorted(target.ids)}
        return MessageCompleted(
            set_key=target.key,
            payload=assembled.payload,
            recovered=assembled.recovered,
            sds_ids=target.sds_ids,
            segments={target.ids[slot]: order for slot, order in orders.items()},
            missing_orders=frozenset(range(target.data_count + target.parity_count)) - set(orders.values()),
            set_aside=frozenset(slot.order(target.data_count) for slot in assembled.used.keys() - target.ids.keys()),
            data_count=target.data_count,
            parity_count=target.parity_count,
            forged_ids=tuple(forged.values()),
        )

    def _rest_of(self, target: SegmentSet, more: Slot | None = None) -> SegmentSet | None:
        """Return the complete sending of which a set may be the rest; None if it must be one of its own."""
        sendings = self._generations.get(_identity_of(target), ())
        return next((known for known in sendings if target.may_be_rest_of(known, more)), None)

    def _merge(self, rest: SegmentSet, complete: SegmentSet) -> tuple[str, ...]:
        """Remember the segments of a set, if it is here, as those of a complete one; return their SDS ids."""
        if self._open.get(rest.name) is None:
            return ()
        self._close(rest)
        self._generations[_identity_of(rest)].remove(rest)
        for slot in rest.ids:
            self._on_change(records.segment_row_key(rest, slot))
        self._on_change(records.set_row_key(rest))
        new = {slot: sds_id for slot, sds_id in rest.ids.items() if slot not in complete.ids}
        complete.ids.update(new)
        complete.late.update(new)
        self._remember(complete, len(new))
        return rest.sds_ids

    def _give_up(self, incomplete: SegmentSet, reason: LossReason) -> SetLost | SetMerged:
        complete = self._rest_of(incomplete)
        if complete is not None:
            return SetMerged(set_key=complete.key, sds_ids=self._merge(incomplete, complete))
        self._close(incomplete)
        self._end(incomplete, SetState.GIVEN_UP, incomplete.ids)
        self._counts[reason.name] += 1
        return SetLost(
            set_key=incomplete.key,
            reason=reason,
            held=len(incomplete.ids),
            needed=incomplete.data_count or None,
            sds_ids=incomplete.sds_ids,
        )

    def _close(self, target: SegmentSet) -> None:
        """Account for a set that ends."""
        self._open.remove(target)
        if target.aside:
            self._aside = deque(kept for kept in self._aside if kept[0] is not target)
            self._aside_bytes = sum(len(aside.payload) + SEGMENT_OVERHEAD_BYTES for _, aside in self._aside)

    def _end(self, target: SegmentSet, state: SetState, held: Iterable[Slot]) -> None:
        target.end(state)
        for slot in held:
            self._on_change(records.segment_row_key(target, slot))
        self._remember(target, len(target.ids))

    def _remember(self, ended: SegmentSet, new_ids: int) -> None:
        """Keep an ended set as the one touched last, and forget what there is no room for."""
        ended.turn = self._next_turn()
        self._ended.touch(ended, new_ids)
        self._on_change(records.set_row_key(ended))
        while (excess := self._ended.excess()) is not None:
            self._forget(excess)
        sendings = [kept for kept in self._generations.get(_identity_of(ended), ()) if not kept.is_open]
        if len(sendings) > MAX_REMEMBERED_SENDINGS:
            self._forget(sendings[0])

    def _forget(self, ended: SegmentSet) -> None:
        self._ended.forget(ended)
        identity = _identity_of(ended)
        self._generations[identity].remove(ended)
        if not self._generations[identity]:
            del self._generations[identity]
        self._on_change(records.set_row_key(ended))

    def _next_turn(self) -> int:
        self._turn += 1
        return self._turn


def _identity_of(kept: SegmentSet) -> _Identity:
    return _Identity(kept.key.sender_id, kept.key.payload_hash, kept.key.payload_length)
