"""Who is known to have received which of our messages (SDS spec, "Review ACK status"; design.md 5.5).

Evidence comes with every message that another participant sends, in three strengths:

* it cites ours in its causal history: the participant delivered it;
* it cites a causal descendant of ours, and its bloom filter holds ours: a participant delivers a message only after
  its ancestors, and the filter says that it has this one, so the two together are evidence;
* its bloom filter alone holds ours: possibly acknowledged, counted once per participant. From as many participants as
  the threshold says, it counts as acknowledged by them.

Own messages never acknowledge themselves. A message leaves the outgoing buffer once as many participants, and those by
name, acknowledged it as its sender asked for.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fairway.wire.bloom import BloomParameters, holds
from fairway.wire.sds import HistoryEntry, ReceivedBloom, SdsCodec, SdsMessage

_ANCESTRY_WINDOW: Final = 4_096
"""Newest messages whose unacknowledged ancestors are remembered; peers cite the newest few."""


class Evidence(Enum):
    """Why a message counts as acknowledged."""

    CITED = "cited"
    DESCENDANT = "descendant"
    BLOOM = "bloom"


@dataclass(slots=True, kw_only=True)
class OutgoingMessage:
    """An own message that waits for acknowledgement."""

    message: SdsMessage
    sequence: int
    """Counts own messages of this channel."""
    positions: list[int]
    """Bits of its id in this channel's bloom filter; empty until the message was broadcast."""
    acknowledged_by: dict[str, Evidence] = field(default_factory=dict)
    required_count: int = 1
    """Participants whose acknowledgement the sender wants."""
    required_from: frozenset[str] = frozenset()
    """Participants whose acknowledgement the sender wants by name."""

    @property
    def satisfied(self) -> bool:
        """Return whether everybody who was asked for acknowledged."""
        return len(self.acknowledged_by) >= self.required_count and self.required_from <= self.acknowledged_by.keys()


class Ancestry:
    """Which own messages each recent message descends from, as a bit set per message.

    Bit ``sequence - base`` stands for the own message of that sequence number. Merging the sets of all parents is one
    OR each, so that a history of 200 and thousands of unacknowledged messages stay cheap.
    """

    def __init__(self) -> None:
        self._ancestors: OrderedDict[str, int] = OrderedDict()
        self._base = 0

    def record(self, message_id: str, parents: Iterable[HistoryEntry], own: dict[str, OutgoingMessage]) -> None:
        """Note a delivered message and what it cites."""
        known = self._ancestors
        if not own and not known:
            return
        mask = 0
        for parent in parents:
            parent_id = parent[0]
            inherited = known.get(parent_id)
            if inherited:
                mask |= inherited
            outgoing = own.get(parent_id)
            if outgoing is not None and outgoing.sequence >= self._base:
                mask |= 1 << (outgoing.sequence - self._base)
        if mask:
            known[message_id] = mask
            if len(known) > _ANCESTRY_WINDOW:
                known.popitem(last=False)
                self._rebase(own)

    def descends(self, message_ids: Iterable[str], outgoing: OutgoingMessage) -> bool:
        """Return whether one of the messages is a known causal descendant of an own one."""
        shift = outgoing.sequence - self._base
        if shift < 0:
            return False
        known = self._ancestors
        return any(known.get(message_id, 0) >> shift & 1 for message_id in message_ids)

    def _rebase(self, own: dict[str, OutgoingMessage]) -> None:
        """Drop the bits of messages that are no longer waited for, once they are many."""
        oldest = next((outgoing.sequence for outgoing in own.values()), None)
        if oldest is None:
            self._ancestors.clear()
            return
        shift = oldest - self._base
        if shift >= _ANCESTRY_WINDOW:
            self._base = oldest
            self._ancestors = OrderedDict(
                (message_id, mask >> shift) for message_id, mask in self._ancestors.items() if mask >> shift
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What one received message told about an own one."""

    message_id: str
    participant: str
    evidence: Evidence | None
    """None if it is only possible so far."""
    possible_count: int = 0
    acknowledged_by: tuple[str, ...] = ()
    """Everybody who acknowledged so far, when this review added somebody."""
    first: bool = False
    """Whether nobody had acknowledged it before."""
    satisfied: bool = False
    """Whether the message left the outgoing buffer with this."""


class OutgoingBuffer:
    """Own messages that are not yet acknowledged, oldest first."""

    def __init__(self, codec: SdsCodec, parameters: BloomParameters, threshold: int) -> None:
        self.messages: dict[str, OutgoingMessage] = {}
        self.possible: dict[str, list[str]] = {}
        """Participants whose bloom filters held a message, by message id."""
        self.ancestry = Ancestry()
        self._codec = codec
        self._parameters = parameters
        self._threshold = threshold

    def __len__(self) -> int:
        return len(self.messages)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.messages

    def __iter__(self) -> Iterator[OutgoingMessage]:
        return iter(self.messages.values())

    def remove(self, message_id: str) -> bool:
        """Stop waiting for a message; return whether it was waited for."""
        self.possible.pop(message_id, None)
        return self.messages.pop(message_id, None) is not None

    def review_citations(self, entries: Iterable[HistoryEntry], participant: str) -> list[Review]:
        """Acknowledge what a participant's message cites."""
        reviews: list[Review] = []
        for entry in entries:
            outgoing = self.messages.get(entry[0])
            if outgoing is not None and participant not in outgoing.acknowledged_by:
                reviews.append(self._acknowledge(outgoing, [participant], Evidence.CITED))
        return reviews

    def review_bloom(self, bloom: ReceivedBloom, cited: tuple[HistoryEntry, ...], participant: str) -> list[Review]:
        """Weigh what a participant's bloom filter holds of the messages that are still waited for."""
        reviews: list[Review] = []
        words, flip = bloom.words, self._codec.bloom.byte_flip
        same = bloom.parameters == self._parameters
        for outgoing in list(self.messages.values()):
            if participant in outgoing.acknowledged_by:
                continue
            message_id = outgoing.message.message_id
            positions = outgoing.positions if same else self._codec.bloom.positions(message_id, bloom.parameters)
            if not positions or not holds(words, positions, flip):
                continue
            if self.ancestry.descends((entry[0] for entry in cited), outgoing):
                reviews.append(self._acknowledge(outgoing, [participant], Evidence.DESCENDANT))
                continue
            review = self._possibly(outgoing, participant)
            if review is not None:
                reviews.append(review)
        return reviews

    def _possibly(self, outgoing: OutgoingMessage, participant: str) -> Review | None:
        message_id = outgoing.message.message_id
        seen = self.possible.setdefault(message_id, [])
        if participant in seen:
            return None
        seen.append(participant)
        if len(seen) >= self._threshold:
            return self._acknowledge(outgoing, seen, Evidence.BLOOM)
        return Review(message_id=message_id, participant=participant, evidence=None, possible_count=len(seen))

    def _acknowledge(self, outgoing: OutgoingMessage, participants: list[str], evidence: Evidence) -> Review:
        message_id = outgoing.message.message_id
        first = not outgoing.acknowledged_by
        for participant in participants:
            outgoing.acknowledged_by.setdefault(participant, evidence)
        if outgoing.satisfied:
            self.remove(message_id)
        return Review(
            message_id=message_id,
            participant=participants[-1],
            evidence=evidence,
            acknowledged_by=tuple(outgoing.acknowledged_by),
            first=first,
            satisfied=outgoing.satisfied,
        )
