"""Lost segments: those that never came, of a message that became complete without them, by parity.

SDS knows nothing of parity, and messages wait for the SDS ids of the lost segments. `LostSegments` finds these ids and
ends the waiting (docs/decisions/specifications.md, "Parity under causal order"). The ids are found by citation alone:
in the causal histories of its sender the segments of a message follow on each other, so a missing id next to a segment
that came stands where a lost segment must stand. It must not be cited as another sender's. That is no proof: SDS still
asks for these messages, but does not declare them lost.

Each lost segment cited messages, and its citations are unknown here. After its message is delivered they do not matter:
the message was delivered after everything that was sent before it. Before that, only lost segments at the beginning of
the message matter, since the message waits for its first segment that came, and that one cites them. If it waits for
nothing else, SDS stops waiting for them. If that first segment cites nothing that was sent before the message, SDS does
wait for them, because only they can tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairway.bounded import BoundedDict

if TYPE_CHECKING:
    from fairway.options import ReliableChannelOptions
    from fairway.protocol.incoming.complete_messages import CompleteMessage, CompleteMessages
    from fairway.protocol.sds.channel import MessageChannel
    from fairway.protocol.segmentation.segment_set import SegmentSet
    from fairway.wire.sds import HistoryEntry, SdsMessage

_MAX_REMEMBERED: Final = 10_000
"""Segments of complete messages that are remembered, in case that somebody cites a lost one next to them."""


class LostSegments:
    """Finds the lost segments of complete messages, and ends the waiting for them."""

    def __init__(self, options: ReliableChannelOptions, sds: MessageChannel, complete: CompleteMessages) -> None:
        self._causal_history_size = options.sds.causal_history_size
        self._sds = sds
        self._complete = complete
        self._sets: BoundedDict[str, SegmentSet] = BoundedDict(_MAX_REMEMBERED)
        """The sets of complete messages, by the SDS id of each segment that came."""
        self._without_beginning: dict[str, SegmentSet] = {}
        """Sets whose first segments were lost, by the SDS id of the first segment that came, for which they wait."""
        self._unneeded: list[str] = []
        """Lost segments that `take_unneeded` returns next."""

    def completed(self, segments: SegmentSet) -> None:
        """Note that a message is complete, or that a late segment of it came."""
        if segments.is_whole:
            return
        for sds_id in segments.ids.values():
            self._sets[sds_id] = segments
        if not self._sds.missing:
            return
        ids = set(segments.ids.values())
        for sds_id, parked in self._sds.parked.items():
            if sds_id in ids or any(entry.message_id in ids for entry in parked.message.causal_history):
                self.look_at(parked.message)
        first, first_id = next(iter(segments.orders.items()))
        if first and first_id in self._complete:
            self._without_beginning[first_id] = segments

    def delivered(self, message: CompleteMessage) -> None:
        """Note that a message was delivered: no message needs to wait for its lost segments any more."""
        self._unneeded += message.lost

    def look_at(self, message: SdsMessage) -> None:
        """Find the lost segments for which a message waits."""
        parked = self._sds.parked.get(message.message_id)
        if parked is None or not self._sets:
            return
        own = self._sets.get(message.message_id)
        found = self._cited_after(message) if own is None else dict.fromkeys(self._cited_before(message, own), own)
        for sds_id, segments in found.items():
            complete = self._complete.with_segment(segments.ids.values())
            if complete is None:
                self._unneeded.append(sds_id)
            else:
                self._complete.note_lost(complete, sds_id)

    def take_unneeded(self) -> list[str]:
        """Return the lost segments that no message needs to wait for any more."""
        unneeded, self._unneeded = self._unneeded, []
        for first_id, segments in list(self._without_beginning.items()):
            if first_id not in self._complete:
                del self._without_beginning[first_id]
            else:
                unneeded += self._passed(first_id, segments)
        return unneeded

    def _passed(self, first_id: str, segments: SegmentSet) -> list[str]:
        """Return the lost segments that the first one that came waits for, if it waits for nothing else."""
        parked = self._sds.parked.get(first_id)
        if parked is None:
            return []
        cited, order = parked.message.causal_history, segments.order_of(first_id)
        lost = set(self._cited_before(parked.message, segments))
        # If it cites lost segments alone, nothing was sent before the message, or they left no room for that.
        tells_of_others = any(entry.message_id not in lost for entry in cited)
        if not (tells_of_others or len(cited) == order < self._causal_history_size):
            return []
        return list(parked.waiting_for) if parked.waiting_for.keys() <= lost else []

    def _cited_before(self, message: SdsMessage, segments: SegmentSet) -> list[str]:
        """Return what a segment cites where lost segments of its message must stand.

        How many segments before it a segment cites is the sender's own choice. It is no more than any segment cites:
        some cite besides what was uncited before the message.
        """
        orders = segments.orders
        waiting = [parked for sds_id in orders.values() if (parked := self._sds.parked.get(sds_id)) is not None]
        newest = min((len(parked.message.causal_history) for parked in waiting), default=0)
        newest = min(newest, self._causal_history_size)
        own_order = segments.order_of(message.message_id)
        found: list[str] = []
        cited = reversed(message.causal_history[-newest:] if newest else ())
        for order, entry in zip(range(own_order - 1, -1, -1), cited, strict=False):
            if orders.get(order) == entry.message_id:
                continue
            if order in orders or not self._may_be_of(segments, entry):
                break
            if entry.message_id in self._sds.missing:
                found.append(entry.message_id)
        return found

    def _cited_after(self, message: SdsMessage) -> dict[str, SegmentSet]:
        """Return what a message cites after earlier segments of its sender where lost ones must stand.

        What another participant cites after a segment need not be the next one, which it may lack, too.
        """
        found: dict[str, SegmentSet] = {}
        segments: SegmentSet | None = None
        order = 0
        newest = self._causal_history_size
        for entry in self._sds.cited_by(message)[-newest:] if newest else ():
            known = self._sets.get(entry.message_id)
            if known is not None and known.key.sender_id == message.sender_id:
                segments, order = known, known.order_of(entry.message_id)
                continue
            order += 1
            if segments is None or order >= segments.total or order in segments.orders:
                segments = None
            elif self._may_be_of(segments, entry) and entry.message_id in self._sds.missing:
                found[entry.message_id] = segments
            else:
                segments = None
        return found

    def _may_be_of(self, segments: SegmentSet, entry: HistoryEntry) -> bool:
        """Return whether nothing says that a cited message is one of another sender than that of a set."""
        sender_id = segments.key.sender_id
        missing = self._sds.missing.get(entry.message_id)
        names = {entry.sender_id or None, (missing.entry.sender_id or None) if missing else None, sender_id} - {None}
        return names == {sender_id}
