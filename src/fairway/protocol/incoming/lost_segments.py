"""A message's own lost segments: which ids SDS misses in vain, and when the waiting for them ends.

docs/decisions/specifications.md, "Parity under causal order", has the reason.

A set that was completed by parity knows the content of its lost segments, but SDS still waits for their ids. Which ids
those are follows from the rule by which the sender made them: worked out for segments that did come, it must give their
ids, and then it gives those of the lost ones too, parity included. Such a segment is as good as received. Of a sender
that makes ids by a rule of its own, the order of sending tells: a segment cites the ones before it, newest last. That
is a guess, which a forger can lead astray: nobody waits for such an id, but it is still asked for.

A lost segment stands for what it cited itself, which nobody here has read. Once the message was delivered that is no
matter, since it comes after whatever was sent before it; so from then on nobody waits for its lost segments. Until then
only lost ones at its very beginning stand in its way. They are let go when the first segment that came waits for
nothing else, but they are still asked for, since they may have cited what it does not; and if it tells of nothing that
was sent before, they are waited for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from fairway.errors import FairwayError
from fairway.options import IdRule, ReliableChannelOptions
from fairway.protocol.incoming.arrivals import Arrivals, Awaiting, Lost
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.message_id import make_message_id
from fairway.protocol.sds.outcome import SdsOutcome
from fairway.protocol.segmentation.outcomes import MessageCompleted
from fairway.protocol.segmentation.segmenter import Segmenter, SegmentPart
from fairway.wire.sds import HistoryEntry

_T = TypeVar("_T")

_MAX_REMEMBERED: Final = 10_000
"""Lost segments remembered, in case that somebody cites them."""
_KNOWN_RULES: Final = (IdRule.UNIQUE, IdRule.PAYLOAD)
"""Rules that depend on nothing but what a receiver knows."""


class LetOff(NamedTuple):
    """A lost segment that nobody needs to wait for any more."""

    sds_id: str
    sender_id: str
    lost: Lost


class LostSiblings:
    """Finds lost segments of completed messages, and lets go of who waits for them."""

    def __init__(
        self, options: ReliableChannelOptions, sds: MessageChannel, segmenter: Segmenter, arrivals: Arrivals
    ) -> None:
        self._causal_history_size = options.sds.causal_history_size
        self._sds = sds
        self._segmenter = segmenter
        self._arrivals = arrivals
        self._remembered: OrderedDict[str, LetOff] = OrderedDict()
        self._rebuilt: OrderedDict[str, None] = OrderedDict()
        self._let_off: list[LetOff] = []

    def of(self, outcome: MessageCompleted, lamports: Mapping[str, int]) -> dict[str, Lost]:
        """Return a completed message's lost segments by id; ``lamports`` are the timestamps of those that came."""
        # SEGMENTATION has data segments that do not tell how much parity there is; but the next message will cite it.
        untold = not outcome.parity_count and self._segmenter.parity_count(outcome.data_count)
        if not (outcome.missing_orders or untold):
            return {}
        lost = self._by_rule(outcome, lamports)
        if lost is None:
            lost = self._by_citation(outcome)
        first_id, first = min(outcome.segments.items(), key=lambda item: item[1])
        tells = self._tells_of_others(first_id, first, lost.keys())
        return {
            sds_id: Lost(lamport, early=place < first, untold=place < first and not tells)
            for sds_id, (place, lamport) in lost.items()
            # What was set aside is not lost: it comes again, and tells then what was sent before it.
            if place not in outcome.set_aside
        }

    def delivered(self, awaiting: Awaiting) -> None:
        """Note that a message was delivered: its lost segments may be cited now without holding anybody up."""
        for sds_id, lost in awaiting.lost.items():
            _remember(self._remembered, sds_id, LetOff(sds_id, awaiting.sender_id, lost))
        self.missed(awaiting.lost)

    def missed(self, sds_ids: Iterable[str]) -> None:
        """Let go of who waits for ids that are missing, if they are lost segments of delivered messages."""
        for sds_id in sds_ids:
            if sds_id in self._sds.missing and sds_id in self._remembered:
                self._let_off.append(self._remembered.pop(sds_id))

    def cited(self, entries: Iterable[HistoryEntry], now_ms: int) -> list[SdsOutcome]:
        """Take in what a message cites of the lost segments of delivered messages, so that it need not wait for them.

        Cited they must have been sent, parity too; and their content is known.
        """
        outcomes: list[SdsOutcome] = []
        for entry in entries if self._remembered else ():
            let_off = self._remembered.get(entry.message_id)
            if let_off is not None and let_off.lost.lamport is not None and not let_off.lost.untold:
                del self._remembered[entry.message_id]
                outcomes += self._sds.adopt(entry.message_id, let_off.lost.lamport, let_off.sender_id, now_ms)
        return outcomes

    def let_go(self, now_ms: int) -> list[SdsOutcome]:
        """Release whoever waits for a lost segment that nobody needs to wait for any more."""
        let_off, self._let_off = self._let_off, []
        for first_id, awaiting in self._arrivals.beheaded.items():
            if passed := self._passed(first_id, awaiting):
                let_off += [LetOff(sds_id, awaiting.sender_id, awaiting.lost[sds_id]) for sds_id in passed]
                self._arrivals.let_off(first_id, passed)
        outcomes: list[SdsOutcome] = []
        for sds_id, sender_id, lost in let_off:
            if lost.lamport is not None and not lost.untold:
                outcomes += self._sds.adopt(sds_id, lost.lamport, sender_id, now_ms)
            elif sds_id in self._sds.missing:
                outcomes += self._sds.stop_waiting(sds_id, now_ms)
                if lost.lamport is not None:
                    _remember(self._rebuilt, sds_id, None)
        return outcomes

    def is_rebuilt(self, sds_id: str) -> bool:
        """Return whether nothing is lost with a missing message: it is a segment whose content is known for certain."""
        waiting = (awaiting.lost.get(sds_id) for awaiting in self._arrivals.awaiting.values())
        return sds_id in self._rebuilt or any(lost and lost.lamport is not None and not lost.untold for lost in waiting)

    def _passed(self, first_id: str, awaiting: Awaiting) -> list[str]:
        """Return the lost segments that the first one that came waits for, if it waits for nothing else."""
        parked, missing = self._sds.parked.get(first_id), self._sds.missing
        if parked is None:
            return []
        early = {i for i, lost in awaiting.lost.items() if lost.early and not lost.untold and i in missing}
        return list(parked.waiting_for) if parked.waiting_for.keys() <= early else []

    def _tells_of_others(self, sds_id: str, place: int, lost: Collection[str]) -> bool:
        """Return whether the first segment that came tells what was sent before the message."""
        parked = self._sds.parked.get(sds_id)
        if parked is None or any(entry.message_id not in lost for entry in parked.message.causal_history):
            return True
        # It cites its lost siblings alone: either nothing was sent before, or they crowded it out.
        return len(parked.message.causal_history) == place < self._causal_history_size

    def _by_rule(
        self, outcome: MessageCompleted, lamports: Mapping[str, int]
    ) -> dict[str, tuple[int, int | None]] | None:
        """Work ids, places and timestamps out, or return None if they do not follow from what is known here."""
        try:
            parts = self._segmenter.split(outcome.payload).parts
        except FairwayError:
            return None
        places = sorted(outcome.segments.items(), key=lambda item: item[1])
        (first_id, first), (last_id, last) = places[0], places[-1]
        # All segments of a message are made in one go, so that their timestamps are consecutive.
        base = lamports[first_id] - first
        if last >= len(parts) or not 0 <= base <= base + len(parts) < 1 << 64:
            return None
        sender_id = outcome.set_key.sender_id
        for rule in _KNOWN_RULES:
            if (first_id, last_id) == tuple(_made(rule, sender_id, base, parts, place) for place in (first, last)):
                came = set(outcome.segments.values())
                return {
                    _made(rule, sender_id, base, parts, place): (place, base + place)
                    for place in range(len(parts))
                    if place not in came
                }
        return None

    def _by_citation(self, outcome: MessageCompleted) -> dict[str, tuple[int, int | None]]:
        """Return what parked segments cite where their lost siblings must stand, with places.

        How many of the newest its sender cites is the sender's own choice. It is no more than any segment cites: some
        cite besides what nobody had cited before the message.
        """
        parked_ones = [parked for sds_id in outcome.segments if (parked := self._sds.parked.get(sds_id)) is not None]
        newest = min((len(parked.message.causal_history) for parked in parked_ones), default=0)
        newest = min(newest, self._causal_history_size)
        senders = {None, "", outcome.set_key.sender_id}
        came = {place: sds_id for sds_id, place in outcome.segments.items()}
        places: dict[str, set[int]] = {}
        for sds_id, own_place in outcome.segments.items():
            parked = self._sds.parked.get(sds_id)
            siblings = parked.message.causal_history[-newest:] if parked and newest else ()
            for place, entry in zip(range(own_place - 1, -1, -1), reversed(siblings), strict=False):
                missing = self._sds.missing.get(entry.message_id)
                if came.get(place, entry.message_id) != entry.message_id or entry.sender_id not in senders:
                    break
                if place in outcome.missing_orders and missing and missing.entry.sender_id in senders:
                    places.setdefault(entry.message_id, set()).add(place)
        # What seems to stand in two places stands in none.
        return {sds_id: (found.pop(), None) for sds_id, found in places.items() if len(found) == 1}


def _made(rule: IdRule, sender_id: str, base: int, parts: tuple[SegmentPart, ...], place: int) -> str:
    return make_message_id(
        rule, sender_id=sender_id, lamport=base + place, content=parts[place].content, now_ms=0, sequence=0
    )


def _remember(memory: OrderedDict[str, _T], sds_id: str, value: _T) -> None:
    memory[sds_id] = value
    if len(memory) > _MAX_REMEMBERED:
        memory.popitem(last=False)
