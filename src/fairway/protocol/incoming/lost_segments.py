"""Lost segments: segments that never arrived of a message that parity completed.

SDS does not know parity, so messages wait for the SDS ids of lost segments. `LostSegments` finds these ids and ends the
waiting (docs/decisions/specifications.md, "Parity under causal order"). It finds the ids by citation alone. In the
causal histories of a sender the segments of a message follow each other. A missing id next to a segment that arrived is
therefore at the position of a lost segment. It must not be cited with another sender. This is no proof: SDS still
requests these messages, but does not declare them lost.

The citations of a lost segment are unknown. After its message is delivered they do not matter: the message was
delivered after everything that was sent before it. Before that, only lost segments at the beginning of the message
matter: the message waits for its first segment that arrived, and that segment cites them. If that segment waits for
nothing else, SDS stops waiting for them. If it cites no message from before its own one, SDS keeps waiting for them:
they may be the only citations of earlier messages.
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
"""Segments of complete messages remembered, for citations of lost ones next to them."""


class LostSegments:
    """Finds the lost segments of complete messages and ends the waiting for them."""

    def __init__(self, options: ReliableChannelOptions, sds: MessageChannel, complete: CompleteMessages) -> None:
        self._causal_history_size = options.sds.causal_history_size
        self._sds = sds
        self._complete = complete
        self._sets: BoundedDict[str, SegmentSet] = BoundedDict(_MAX_REMEMBERED)
        """The sets of complete messages, by the SDS id of each segment that arrived."""
        self._without_beginning: dict[str, SegmentSet] = {}
        """Waiting sets whose first segments were lost, by the SDS id of the first segment that arrived."""
        self._unneeded: list[str] = []
        """SDS ids that `take_unneeded` returns next."""

    def completed(self, segments: SegmentSet) -> None:
        """Note that a message is complete, or that a late segment of it arrived."""
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
        """Note that a message was delivered: its lost segments are no longer needed."""
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
        """Return the SDS ids of lost segments that are no longer needed, each once."""
        unneeded, self._unneeded = self._unneeded, []
        for first_id, segments in list(self._without_beginning.items()):
            if first_id not in self._complete:
                del self._without_beginning[first_id]
            else:
                unneeded += self._passed(first_id, segments)
        return unneeded

    def _passed(self, first_id: str, segments: SegmentSet) -> list[str]:
        """Return the lost segments for which the first segment that arrived waits, if it waits for nothing else."""
        parked = self._sds.parked.get(first_id)
        if parked is None:
            return []
        cited, order = parked.message.causal_history, segments.order_of(first_id)
        lost = set(self._cited_before(parked.message, segments))
        # If it cites only lost segments, nothing was sent before the message, or its causal history was full.
        tells_of_others = any(entry.message_id not in lost for entry in cited)
        if not (tells_of_others or len(cited) == order < self._causal_history_size):
            return []
        return list(parked.waiting_for) if parked.waiting_for.keys() <= lost else []

    def _cited_before(self, message: SdsMessage, segments: SegmentSet) -> list[str]:
        """Return the ids that a segment cites at the positions of lost segments of its message.

        The sender chooses how many earlier segments it cites. The smallest causal history among the parked segments is
        an upper bound: some segments also cite messages that were uncited before the message.
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
        """Return the ids that a message cites at the positions of lost segments of its own sender, with their sets.

        Messages of other senders are ignored: their authors may not have had the next segment either.
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
        """Return whether no citation of a message names another sender than that of a set."""
        sender_id = segments.key.sender_id
        missing = self._sds.missing.get(entry.message_id)
        names = {entry.sender_id or None, (missing.entry.sender_id or None) if missing else None, sender_id} - {None}
        return names == {sender_id}
