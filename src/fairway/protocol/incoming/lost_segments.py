"""Lost segments: those that never came, of a message that became complete without them, by parity.

SDS knows nothing of parity. It goes on waiting for the SDS ids of the lost segments, although their content is known.
So this module does two things (docs/decisions/specifications.md, "Parity under causal order"):

1. It finds the SDS ids of the lost segments. Mostly they follow from the rule by which the sender makes ids. The rule
   is tried on the segments that came; if it gives their ids, it also gives those of the lost ones, parity included.
   Such a segment counts as received. A sender may make ids by another rule. Then the citations tell, for each segment
   cites those before it, newest last. This is a guess, which a forger can lead astray. So a message stops waiting for
   such an id, but SDS still asks for it.
2. It ends the waiting for them. Each lost segment cited messages, and its citations are unknown here. After the message
   is delivered they do not matter: it was delivered after everything that was sent before it. Before that, only lost
   segments at the beginning of the message matter, since the message waits for its first segment that came, and that
   one cites them. If it waits for nothing else, SDS stops waiting for them, but still asks for them. If that first
   segment cites nothing that was sent before the message, SDS does wait for them, for only they can tell.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from fairway.errors import FairwayError
from fairway.options import IdRule, ReliableChannelOptions
from fairway.protocol.incoming.undelivered import CompleteMessage, LostSegment, Undelivered
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.message_id import make_message_id
from fairway.protocol.sds.outcome import SdsOutcome
from fairway.protocol.segmentation.outcomes import MessageCompleted
from fairway.protocol.segmentation.segmenter import OutgoingSegment, Segmenter
from fairway.wire.sds import HistoryEntry

_T = TypeVar("_T")

_MAX_REMEMBERED: Final = 10_000
"""Lost segments remembered, in case that somebody cites them."""
_KNOWN_RULES: Final = (IdRule.UNIQUE, IdRule.PAYLOAD)
"""Rules that depend on nothing but what a receiver knows."""


class Unneeded(NamedTuple):
    """A lost segment that no message needs to wait for any more."""

    sds_id: str
    sender_id: str
    lost: LostSegment


class LostSegments:
    """Finds the lost segments of complete messages, and ends the waiting for them."""

    def __init__(
        self, options: ReliableChannelOptions, sds: MessageChannel, segmenter: Segmenter, undelivered: Undelivered
    ) -> None:
        self._causal_history_size = options.sds.causal_history_size
        self._sds = sds
        self._segmenter = segmenter
        self._undelivered = undelivered
        self._of_delivered: OrderedDict[str, Unneeded] = OrderedDict()
        """Lost segments of delivered messages that nothing waited for yet."""
        self._rebuilt: OrderedDict[str, None] = OrderedDict()
        """Lost segments whose content is known, and that SDS still asks for."""
        self._to_release: list[Unneeded] = []
        """Lost segments that `release` is to end the waiting for."""

    def find(self, outcome: MessageCompleted, lamports: Mapping[str, int]) -> dict[str, LostSegment]:
        """Return a completed message's lost segments by id; ``lamports`` are the timestamps of those that came."""
        # SEGMENTATION has data segments that do not tell how much parity there is; but the next message will cite it.
        unknown_parity = not outcome.parity_count and self._segmenter.parity_count(outcome.data_count)
        if not (outcome.missing_orders or unknown_parity):
            return {}
        lost = self._by_rule(outcome, lamports)
        if lost is None:
            lost = self._by_citation(outcome)
        first_id, first = min(outcome.segments.items(), key=lambda item: item[1])
        tells = self._tells_of_others(first_id, first, lost.keys())
        return {
            sds_id: LostSegment(lamport, is_before_first=order < first, hides_past=order < first and not tells)
            for sds_id, (order, lamport) in lost.items()
            # What was set aside is not lost: it comes again, and tells then what was sent before it.
            if order not in outcome.set_aside
        }

    def delivered(self, message: CompleteMessage) -> None:
        """Note that a message was delivered: no message needs to wait for its lost segments any more."""
        for sds_id, lost in message.lost.items():
            _remember(self._of_delivered, sds_id, Unneeded(sds_id, message.sender_id, lost))
        self.found_missing(message.lost)

    def found_missing(self, sds_ids: Iterable[str]) -> None:
        """Plan to end the waiting for missing ids that are lost segments of delivered messages (`release`)."""
        for sds_id in sds_ids:
            if sds_id in self._of_delivered and sds_id in self._sds.missing:
                self._to_release.append(self._of_delivered.pop(sds_id))

    def enter_cited(self, entries: Iterable[HistoryEntry], now_ms: int) -> list[SdsOutcome]:
        """Enter into the history those lost segments of delivered messages that a message cites.

        So it need not wait for them. A cited segment was sent, parity too; and its content is known.
        """
        outcomes: list[SdsOutcome] = []
        for entry in entries if self._of_delivered else ():
            unneeded = self._of_delivered.get(entry.message_id)
            if unneeded is not None and (lamport := unneeded.lost.adoptable_lamport) is not None:
                del self._of_delivered[entry.message_id]
                outcomes += self._sds.adopt(entry.message_id, lamport, unneeded.sender_id, now_ms)
        return outcomes

    def release(self, now_ms: int) -> list[SdsOutcome]:
        """Deliver what waits for a lost segment that no message needs to wait for any more."""
        unneeded, self._to_release = self._to_release, []
        for first_id, message in self._undelivered.without_beginning.items():
            if passed := self._passed(first_id, message):
                unneeded += [Unneeded(sds_id, message.sender_id, message.lost[sds_id]) for sds_id in passed]
                self._undelivered.stop_waiting(first_id, passed)
        outcomes: list[SdsOutcome] = []
        for sds_id, sender_id, lost in unneeded:
            if (lamport := lost.adoptable_lamport) is not None:
                outcomes += self._sds.adopt(sds_id, lamport, sender_id, now_ms)
            elif sds_id in self._sds.missing:
                outcomes += self._sds.stop_waiting(sds_id, now_ms)
                if lost.lamport is not None:
                    _remember(self._rebuilt, sds_id, None)
        return outcomes

    def is_rebuilt(self, sds_id: str) -> bool:
        """Return whether nothing is lost with a missing message: it is a segment whose content is known for certain."""
        found = (message.lost.get(sds_id) for message in self._undelivered.awaiting.values())
        return sds_id in self._rebuilt or any(lost and lost.adoptable_lamport is not None for lost in found)

    def _passed(self, first_id: str, message: CompleteMessage) -> list[str]:
        """Return the lost segments that the first one that came waits for, if it waits for nothing else."""
        parked, missing = self._sds.parked.get(first_id), self._sds.missing
        if parked is None:
            return []
        passable = {
            sds_id
            for sds_id, lost in message.lost.items()
            if lost.is_before_first and not lost.hides_past and sds_id in missing
        }
        return list(parked.waiting_for) if parked.waiting_for.keys() <= passable else []

    def _tells_of_others(self, sds_id: str, order: int, lost: Collection[str]) -> bool:
        """Return whether the first segment that came tells what was sent before the message."""
        parked = self._sds.parked.get(sds_id)
        if parked is None or any(entry.message_id not in lost for entry in parked.message.causal_history):
            return True
        # It cites lost segments of its message alone: either nothing was sent before, or they crowded it out.
        return len(parked.message.causal_history) == order < self._causal_history_size

    def _by_rule(
        self, outcome: MessageCompleted, lamports: Mapping[str, int]
    ) -> dict[str, tuple[int, int | None]] | None:
        """Work ids, orders and timestamps out, or return None if they do not follow from what is known here."""
        try:
            segments = self._segmenter.split(outcome.payload).segments
        except FairwayError:
            return None
        came = sorted(outcome.segments.items(), key=lambda item: item[1])
        (first_id, first), (last_id, last) = came[0], came[-1]
        # All segments of a message are made in one go, so that their timestamps are consecutive.
        base = lamports[first_id] - first
        if last >= len(segments) or not 0 <= base <= base + len(segments) < 1 << 64:
            return None
        sender_id = outcome.set_key.sender_id
        for rule in _KNOWN_RULES:
            if (first_id, last_id) == tuple(_made(rule, sender_id, base, segments, order) for order in (first, last)):
                orders = set(outcome.segments.values())
                return {
                    _made(rule, sender_id, base, segments, order): (order, base + order)
                    for order in range(len(segments))
                    if order not in orders
                }
        return None

    def _by_citation(self, outcome: MessageCompleted) -> dict[str, tuple[int, int | None]]:
        """Return what parked segments cite where lost segments of their message must stand, with their orders.

        How many of the newest its sender cites is the sender's own choice. It is no more than any segment cites: some
        cite besides what was uncited before the message.
        """
        parked_ones = [parked for sds_id in outcome.segments if (parked := self._sds.parked.get(sds_id)) is not None]
        newest = min((len(parked.message.causal_history) for parked in parked_ones), default=0)
        newest = min(newest, self._causal_history_size)
        senders = {None, "", outcome.set_key.sender_id}
        came = {order: sds_id for sds_id, order in outcome.segments.items()}
        orders: dict[str, set[int]] = {}
        for sds_id, own_order in outcome.segments.items():
            parked = self._sds.parked.get(sds_id)
            cited = parked.message.causal_history[-newest:] if parked and newest else ()
            for order, entry in zip(range(own_order - 1, -1, -1), reversed(cited), strict=False):
                missing = self._sds.missing.get(entry.message_id)
                if came.get(order, entry.message_id) != entry.message_id or entry.sender_id not in senders:
                    break
                if order in outcome.missing_orders and missing and missing.entry.sender_id in senders:
                    orders.setdefault(entry.message_id, set()).add(order)
        # What seems to be two segments is neither.
        return {sds_id: (found.pop(), None) for sds_id, found in orders.items() if len(found) == 1}


def _made(rule: IdRule, sender_id: str, base: int, segments: tuple[OutgoingSegment, ...], order: int) -> str:
    return make_message_id(
        rule, sender_id=sender_id, lamport=base + order, content=segments[order].content, now_ms=0, sequence=0
    )


def _remember(memory: OrderedDict[str, _T], sds_id: str, value: _T) -> None:
    memory[sds_id] = value
    if len(memory) > _MAX_REMEMBERED:
        memory.popitem(last=False)
