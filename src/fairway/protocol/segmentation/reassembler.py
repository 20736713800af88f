"""Put segments together again (SEGMENTATION, "Receiving"; LIP-243, "Reconstruction").

Pure: time is an argument, and the answer to each segment is an `Outcome`. Segments may come in any order, more than
once, from many senders at once, and some may never come. Each sending of a payload is handed out once, and only with
the right hash.

A segment that is taken in may be acknowledged, and a sender takes a message for delivered once so many of its segments
are acknowledged that they suffice to rebuild it. So the reassembler

* keeps what it took in: a quota turns new segments away, and no segment is evicted for another;
* has fewer segments of a set than suffice, until their hash is right. The segment that would suffice, but gives the
  wrong hash, is set aside; so is a second content for an index. Which of them is forged is unknown, so that with each
  further segment several choices among them are tried;
* takes in no more segments of a set that it gave up, so that the sender never takes that message for delivered.
  Segments of that sending that come much later, or after the set was forgotten, look like a new sending of the payload.
  They and those that were acknowledged before might seem to the sender to be enough. So their set is doubtful, and none
  of its segments is acknowledged, until its first segment proves to be later than all that was given up (a sender
  stamps the segments of a message in order), or until the message is complete.

No segment is trusted: the counts that it claims allocate nothing, each sender has a quota, and whatever is kept is
forgotten in the end. A store can mirror the state: ``on_change`` is called with the key of each row that changed,
`Reassembler.row` returns its value, and `Reassembler.load` takes all rows back.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from fairway.errors import SegmentError
from fairway.events import Limit, LossReason
from fairway.protocol.segmentation import records
from fairway.protocol.segmentation.assembly import MAX_TRIES, Assembled, Unassembled, assemble
from fairway.protocol.segmentation.ended_sets import EndedSets
from fairway.protocol.segmentation.generations import Fit, fit
from fairway.protocol.segmentation.open_sets import SEGMENT_OVERHEAD_BYTES, OpenSets, Urgency
from fairway.protocol.segmentation.outcomes import (
    GIVEN_UP,
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
from fairway.protocol.segmentation.segment_set import (
    FIRST_INDEX,
    SegmentIndex,
    SegmentSet,
    SetAside,
    SetState,
    open_set,
)
from fairway.wire.segment import INVALID, MAX_SEGMENTS, UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fairway.options import SegmentationConfig
    from fairway.protocol.segmentation.records import Row
    from fairway.wire.segment import Segment, SegmentFormat

MAX_REMEMBERED_SENDINGS: Final = 16
"""Ended sendings of one payload by one sender that are remembered: each new segment is compared with all."""

MAX_ASIDE_PER_SEGMENT: Final = 4
"""Contents that are set aside for one index of a set; a further one is ignored."""

_ASIDE_SHARE: Final = 8
"""Segments set aside may take one in so many of the bytes that may be kept. To new ones the oldest give way that nobody
cites: what honest participants sent others cite, and what is forged in its place mostly nobody does."""

_LOOKED_AT: Final = 100
"""So many of the oldest are looked at for one that nobody cites."""


class _Identity(NamedTuple):
    """What the segments of all sendings of one payload by one sender have in common."""

    sender_id: str
    payload_hash: bytes
    payload_length: int | None


def _ignore(_key: str) -> None:
    """Serve as ``on_change`` where the state is not stored."""


class Reassembler:
    """Reassembles the messages of one channel.

    ``on_change`` is called with the key of each row that was put or deleted; `row` returns None if it was deleted. With
    ``acknowledges`` false, segments are not acknowledged, as by the reader of an archive, and no set is doubtful.
    """

    def __init__(
        self,
        config: SegmentationConfig,
        segment_format: SegmentFormat,
        on_change: Callable[[str], None] = _ignore,
        *,
        acknowledges: bool = True,
    ) -> None:
        self._config = config
        self._format = segment_format
        self._on_change = on_change
        self._acknowledges = acknowledges
        self.is_wanted: Callable[[str], bool] = lambda _: False
        """Whether others cite the segment with an SDS id, and it is not here; set by the layer above."""
        self.order_of: Callable[[str], int | None] = lambda _: None
        """The order key of a segment that is here, by its SDS id, None if it is unknown; set by the layer above."""
        self._forgotten_until: int | None = None
        """The last order key of all sets that were given up and are forgotten; None if none is."""
        self._generations: dict[_Identity, list[SegmentSet]] = {}
        self._open = OpenSets(config)
        self._ended = EndedSets(config.max_completed_sets)
        self._aside: deque[tuple[SegmentSet, SetAside]] = deque()
        self._aside_bytes = 0
        self._aside_in: dict[str, list[SegmentSet]] = {}
        """The sets that hold segments set aside, by the SDS id of each."""
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

        ``sds_id`` is the id of the SDS message, ``order_key`` its Lamport timestamp. An ``urgency`` above LATER may
        exceed quotas. ``waiting_bytes`` are taken by complete messages that are held for their causal order, and count
        as used. Raises nothing, whatever the content is.
        """
        try:
            segment = self._format.decode(content, self._max_segments)
        except SegmentError as error:
            # Where whole messages are not wrapped, what is no protobuf is one.
            is_other = error.reason == UNDECODABLE and not self._format.self_describing
            if not is_other and self._format.is_segment(content):
                return self._discard(error.reason, str(error))
            self._counts["whole_messages"] += 1
            return WholeMessage(payload=content)
        if len(segment.payload) > self._max_payload_bytes:
            detail = f"a payload of {len(segment.payload)} bytes, at most {self._max_payload_bytes} are allowed"
            return self._discard("oversized", detail)
        identity = _Identity(sender_id, segment.payload_hash, segment.payload_length)
        action, target = fit(
            self._generations.get(identity, ()),
            segment,
            sds_id,
            order_key,
            self_describing=self._format.self_describing,
        )
        if target is None:
            target = self._opened(identity, segment, order_key, now_ms)
        if action is Fit.DUPLICATE:
            self._counts["segments_duplicate"] += 1
            if target.state is SetState.DOUBTFUL:
                return SegmentSetAside(set_key=target.key, disputed=False, is_doubtful=True)
            return SegmentDuplicate(set_key=target.key)
        if action is Fit.SURPLUS:
            return self._surplus(target, segment, sds_id)
        if action is Fit.MISMATCH:
            detail = (
                f"{segment.data_count} data and {segment.parity_count} parity segments, "
                f"but the set has {target.data_count} and {target.parity_count}"
            )
            return self._discard("count-mismatch", detail)
        if target.total_with(segment) > self._max_segments:
            # A segment of SEGMENTATION names one count, of data or of parity: only both together may be too many.
            detail = f"{target.total_with(segment)} segments, at most {self._max_segments} allowed"
            return self._discard(INVALID, detail)
        return self._take(target, segment, sds_id, order_key, now_ms, urgency=urgency, waiting_bytes=waiting_bytes)

    def will_try(self, sds_id: str) -> bool:
        """Return whether a segment that was set aside is held, and tried in each choice with what still comes.

        It is not if its message has contradicting segments in more choices than are tried.
        """
        holding = self._aside_in.get(sds_id, ())
        return bool(holding) and all(_choice_count(target) <= MAX_TRIES for target in holding)

    def is_piece(self, content: bytes, payload: bytes) -> bool:
        """Return whether the content of an SDS message is a data segment of a payload, where its index says."""
        try:
            return self._format.decode(content, self._max_segments).is_piece_of(payload)
        except SegmentError:
            return False

    def has_room_to_begin(self, sender_id: str | None, waiting_bytes: int = 0) -> bool:
        """Return whether a sender's message may begin with a segment that waits for others, and nothing waits for it.

        ``waiting_bytes`` are those of `add`.
        """
        return self._open.has_room_to_begin(sender_id, waiting_bytes)

    def expire(self, now_ms: int) -> tuple[SetLost | SetMerged, ...]:
        """Give up the sets that gained no segment for reassembly_timeout_ms.

        SEGMENTATION, "Receiving": incomplete reconstructions SHOULD be garbage-collected after a timeout.
        """
        lost: list[SetLost | SetMerged] = []
        while (overdue := self._open.overdue(now_ms)) is not None:
            if overdue.state is SetState.DOUBTFUL:
                self._give_up_doubtful(overdue)
                continue
            reason = LossReason.HASH_MISMATCH if overdue.disputed else LossReason.SEGMENTS_EXPIRED
            lost.append(self._give_up(overdue, reason))
        return tuple(lost)

    def evict(self, sender_id: str) -> SetLost | None:
        """Give up a sender's oldest incomplete set, or the oldest of the sender that holds most, to make room.

        Only for receivers that acknowledge nothing, such as the reader of an archive.
        """
        oldest = self._open.oldest_of(sender_id)
        if oldest is None:
            return None
        gone = self._give_up(oldest, LossReason.SEGMENTS_EVICTED)
        return gone if isinstance(gone, SetLost) else None

    def completed(self) -> Iterator[tuple[str, ...]]:
        """Yield, for each completed message that is remembered, the SDS message ids of its segments in their order."""
        for ended in self._ended:
            if ended.state is SetState.COMPLETED:
                yield ended.sds_ids

    def next_deadline(self) -> int | None:
        """Return when `expire` will next have something to do, in ms; None if nothing is incomplete."""
        return self._open.next_deadline()

    def statistics(self) -> ReassemblyStatistics:
        """Return counts since this reassembler was made, and what it holds now."""
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
        if self._forgotten_until is not None:
            yield records.FORGOTTEN, (self._forgotten_until,)
        for kept in (*self._open, *self._ended):
            yield from records.rows_of(kept)

    def row(self, key: str) -> Row | None:
        """Return the value of one row, or None if it is (now) deleted."""
        if key == records.FORGOTTEN:
            return None if self._forgotten_until is None else (self._forgotten_until,)
        return records.row_at(key, lambda name: self._open.get(name) or self._ended.get(name))

    def load(self, rows: Iterable[tuple[str, Row]]) -> None:
        """Take back the state of an earlier reassembler with the same configuration; this one must be new.

        Raises `SnapshotError` for rows that are not such a state.
        """
        self._forgotten_until, sets = records.restored(rows)
        for kept in sets:
            self._turn = max(self._turn, kept.turn)
            self._generations.setdefault(_identity_of(kept), []).append(kept)
            if kept.is_open:
                self._open.grow(kept, len(kept.ids), kept.byte_count)
            else:
                self._ended.touch(kept, kept.id_count)
        for generations in self._generations.values():
            generations.sort(key=lambda kept: kept.key.generation)

    def _discard(self, reason: str, detail: str, full: Limit | None = None) -> SegmentDiscarded:
        self._discarded[reason] += 1
        return SegmentDiscarded(reason=reason, detail=detail, full=full)

    def _opened(self, identity: _Identity, segment: Segment, order_key: int, now_ms: int) -> SegmentSet:
        """Return a new set; it is remembered only once a segment is taken in."""
        generations = self._generations.get(identity)
        is_new_sending = self._is_new_sending(identity, segment, order_key)
        key = SetKey(
            sender_id=identity.sender_id,
            payload_hash=identity.payload_hash,
            payload_length=identity.payload_length,
            generation=generations[-1].key.generation + 1 if generations else 0,
        )
        state = SetState.OPEN if is_new_sending else SetState.DOUBTFUL
        return open_set(key, segment, order_key, now_ms=now_ms, turn=self._turn, state=state)

    def _is_new_sending(self, identity: _Identity, segment: Segment, order_key: int) -> bool:
        """Return whether nothing of the sending that a segment is of can have been acknowledged and given up before."""
        if not self._acknowledges:
            return True
        given_up = [known for known in self._generations.get(identity, ()) if known.state is SetState.GIVEN_UP]
        until = [known.last_order_key for known in given_up]
        if self._forgotten_until is not None:
            until.append(self._forgotten_until)
        return not until or (SegmentIndex.of(segment) == FIRST_INDEX and order_key > max(until))

    def _surplus(self, target: SegmentSet, segment: Segment, sds_id: str) -> Outcome:
        if target.state is SetState.GIVEN_UP:
            return self._discard(GIVEN_UP, "a segment of a message that was given up")
        return self._late(target, segment, sds_id)

    def _late(
        self, complete: SegmentSet, segment: Segment, sds_id: str, merged_ids: tuple[str, ...] = ()
    ) -> SegmentSurplus:
        self._counts["segments_surplus"] += 1
        if complete.put_late(SegmentIndex.of(segment), sds_id):
            # With it the number of parity segments may be known, and so whether anything can still come.
            complete.parity_count = complete.parity_count or segment.parity_count
            self._remember(complete, 1)
        sds_ids = complete.sds_ids
        if sds_id not in sds_ids:
            sds_ids = (*sds_ids, sds_id)
        return SegmentSurplus(set_key=complete.key, sds_ids=sds_ids, merged_ids=merged_ids)

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
        latest = SetAside(SegmentIndex.of(segment), sds_id, segment.payload, order_key)
        if latest in target.aside:
            return SegmentSetAside(set_key=target.key, disputed=False)
        data_count, parity_count = counts = target.counts_with(segment)
        if not data_count and parity_count > 1 and len(target.parity.keys() | {segment.index}) == parity_count:
            # All parity came and no data, which would tell how many data segments there are. There are at least as many
            # as parity segments; if there are not more, the parity suffices.
            result = assemble(target, latest, (parity_count, parity_count), self.order_of)
            if isinstance(result, Assembled):
                target.learn_data_count(parity_count)
                return self._complete(target, segment, sds_id, order_key, result)
        result = assemble(target, latest, counts, self.order_of)
        if isinstance(result, Assembled):
            return self._complete(target, segment, sds_id, order_key, result)
        identity = _identity_of(target)
        if target.state is SetState.DOUBTFUL and self._is_new_sending(identity, segment, order_key):
            # Now the others may be taken in, when they come again.
            self._drop(target)
            target = self._opened(identity, segment, order_key, now_ms)
            return self._take(target, segment, sds_id, order_key, now_ms, urgency=urgency, waiting_bytes=waiting_bytes)
        disputed = self._dispute(target) if result is Unassembled.MISMATCH else False
        if latest.segment_index in target.ids or (data_count and len(target.ids) + 1 >= data_count):
            self._set_aside(target, latest)
            is_useless = self._open.get(target.name) is None
            return SegmentSetAside(set_key=target.key, disputed=disputed, is_useless=is_useless)
        full = self._open.full(target, len(segment.payload), urgency, waiting_bytes)
        if full is not None:
            return self._discard("no-room", f"{full.value}: what is here must become whole first", full)
        target.put(segment, sds_id, order_key)
        self._store(target, latest, now_ms)
        if target.state is SetState.DOUBTFUL:
            return SegmentSetAside(set_key=target.key, disputed=disputed, is_doubtful=True)
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
        self._on_change(records.segment_row_key(target, latest.segment_index))
        self._on_change(records.set_row_key(target))

    def _dispute(self, target: SegmentSet) -> bool:
        """Note that the hash of a set is wrong; return whether that is new."""
        if target.disputed:
            return False
        self._counts["sets_disputed"] += 1
        target.disputed = True
        return True

    def _set_aside(self, target: SegmentSet, latest: SetAside) -> None:
        self._counts["segments_set_aside"] += 1
        # A message of one segment whose hash is wrong has no set, and needs none: no further segment can mend it.
        is_here = self._open.get(target.name) is not None
        if is_here and self._has_place(target, latest):
            target.aside.append(latest)
            self._aside.append((target, latest))
            self._aside_in.setdefault(latest.sds_id, []).append(target)
            self._aside_bytes += len(latest.payload) + SEGMENT_OVERHEAD_BYTES
        while self._aside_bytes > self._config.max_buffered_bytes // _ASIDE_SHARE:
            unwanted = (each for each in islice(self._aside, _LOOKED_AT) if not self.is_wanted(each[1].sds_id))
            self._give_way(*next(unwanted, self._aside[0]))

    def _has_place(self, target: SegmentSet, latest: SetAside) -> bool:
        """Return whether one more content may be set aside for an index; one that others cite takes another's place."""
        others = [aside for aside in target.aside if aside.segment_index == latest.segment_index]
        if len(others) < MAX_ASIDE_PER_SEGMENT:
            return True
        unwanted = next((aside for aside in others if not self.is_wanted(aside.sds_id)), None)
        if unwanted is None or not self.is_wanted(latest.sds_id):
            return False
        self._give_way(target, unwanted)
        return True

    def _give_way(self, kept: SegmentSet, aside: SetAside) -> None:
        """Let go of a segment that was set aside."""
        self._aside.remove((kept, aside))
        self._aside_bytes -= len(aside.payload) + SEGMENT_OVERHEAD_BYTES
        self._lets_go_of(aside.sds_id, kept)
        kept.aside.remove(aside)

    def _lets_go_of(self, sds_id: str, kept: SegmentSet) -> None:
        self._aside_in[sds_id].remove(kept)
        if not self._aside_in[sds_id]:
            del self._aside_in[sds_id]

    def _complete(
        self, target: SegmentSet, segment: Segment, sds_id: str, order_key: int, assembled: Assembled
    ) -> MessageCompleted | SegmentSurplus:
        complete = self._rest_of(target, SegmentIndex.of(segment))
        if complete is not None:
            return self._late(complete, segment, sds_id, self._merge(target, complete))
        if self._open.get(target.name) is None:
            self._generations.setdefault(_identity_of(target), []).append(target)
        else:
            self._close(target)
        held = list(target.ids)
        if target.state is SetState.DOUBTFUL:
            # Its segments were not acknowledged, so they come again, as late ones of a completed message.
            target.ids.clear()
        differing = [index for index in target.ids if assembled.used.get(index) != target.payload_of(index)]
        forged = {index: target.ids.pop(index) for index in differing}
        target.put(segment, sds_id, order_key)
        self._end(target, SetState.COMPLETED, held)
        self._counts["segments_stored"] += 1
        self._counts["messages_completed"] += 1
        self._counts["messages_recovered"] += assembled.recovered
        orders = {index: index.order(target.data_count) for index in sorted(target.ids)}
        return MessageCompleted(
            set_key=target.key,
            payload=assembled.payload,
            recovered=assembled.recovered,
            sds_ids=target.sds_ids,
            segments={target.ids[index]: order for index, order in orders.items()},
            missing_orders=frozenset(range(target.data_count + target.parity_count)) - set(orders.values()),
            set_aside=frozenset(index.order(target.data_count) for index in assembled.used.keys() - target.ids.keys()),
            data_count=target.data_count,
            parity_count=target.parity_count,
            forged_ids=tuple(forged.values()),
        )

    def _rest_of(self, target: SegmentSet, more: SegmentIndex | None = None) -> SegmentSet | None:
        """Return the completed set whose missing segments a set may hold; None if it is of another sending."""
        sendings = self._generations.get(_identity_of(target), ())
        return next((known for known in sendings if target.may_be_rest_of(known, more)), None)

    def _merge(self, rest: SegmentSet, ended: SegmentSet) -> tuple[str, ...]:
        """Remember the segments of an open set as late ones of a set that has ended; return their SDS message ids."""
        if self._open.get(rest.name) is None:
            return ()
        self._drop(rest)
        self._remember(ended, sum(ended.put_late(index, sds_id) for index, sds_id in rest.ids.items()))
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

    def _give_up_doubtful(self, incomplete: SegmentSet) -> None:
        """Forget a set of which nothing was acknowledged: it is as though it had never come.

        Most likely it is the rest of a sending that was given up; then its segments are known as such from now on.
        """
        sendings = self._generations.get(_identity_of(incomplete), ())
        given_up = (known for known in sendings if known.state is SetState.GIVEN_UP)
        lacking = next((known for known in given_up if known.indexes.isdisjoint(incomplete.ids)), None)
        if lacking is None:
            self._drop(incomplete)
        else:
            self._merge(incomplete, lacking)

    def _drop(self, target: SegmentSet) -> None:
        """Forget an open set at once."""
        self._close(target)
        identity = _identity_of(target)
        self._generations[identity].remove(target)
        if not self._generations[identity]:
            del self._generations[identity]
        for index in target.ids:
            self._on_change(records.segment_row_key(target, index))
        self._on_change(records.set_row_key(target))

    def _close(self, target: SegmentSet) -> None:
        """Take a set, which ends, out of the open ones."""
        self._open.remove(target)
        if target.aside:
            for aside in target.aside:
                self._lets_go_of(aside.sds_id, target)
            self._aside = deque(kept for kept in self._aside if kept[0] is not target)
            self._aside_bytes = sum(len(aside.payload) + SEGMENT_OVERHEAD_BYTES for _, aside in self._aside)

    def _end(self, target: SegmentSet, state: SetState, held: Iterable[SegmentIndex]) -> None:
        target.end(state)
        for index in held:
            self._on_change(records.segment_row_key(target, index))
        self._remember(target, len(target.ids))

    def _remember(self, ended: SegmentSet, new_ids: int) -> None:
        """Keep an ended set as the most recently touched one, and forget others if there are too many."""
        ended.turn = self._next_turn()
        self._ended.touch(ended, new_ids)
        self._on_change(records.set_row_key(ended))
        while (excess := self._ended.excess()) is not None:
            self._forget(excess)
        sendings = [kept for kept in self._generations.get(_identity_of(ended), ()) if not kept.is_open]
        if len(sendings) > MAX_REMEMBERED_SENDINGS:
            self._forget(sendings[0])

    def _forget(self, ended: SegmentSet) -> None:
        if ended.state is SetState.GIVEN_UP and self._acknowledges:
            self._forgotten_until = max(self._forgotten_until or 0, ended.last_order_key)
            self._on_change(records.FORGOTTEN)
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


def _choice_count(target: SegmentSet) -> int:
    """Return how many choices the segments of a set leave: of one content for each index, and without one of them."""
    contents = Counter(aside.segment_index for aside in target.aside)
    contents.update(target.ids.keys())
    leaving_out = len(contents) if any(index.is_parity for index in contents) else 0
    return math.prod(contents.values()) + leaving_out
