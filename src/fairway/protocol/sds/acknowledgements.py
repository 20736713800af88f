"""Which participants have acknowledged which own messages (SDS, "Review ACK Status").

docs/decisions/specifications.md, "What acknowledges", gives the reasons.

A message of another participant acknowledges an own message in one of four ways:

* It cites the own message in its causal history.
* It cites a causal descendant of the own message, and vouches for all ancestors of its citations
  (`fairway.protocol.sds.vouching`). This counts for own messages that are not old.
* It cites a causal descendant of the own message, and its bloom filter holds the own message. Neither alone is enough:
  a participant delivers a message only after its ancestors, but may have given one of them up; and a filter has false
  hits. False hits must be rare: a sender that does not vouch may not have the message, and the filter is the only
  evidence.
* Its bloom filter alone holds the own message. The filter must be so empty that a false hit is very unlikely. The
  message must not be older than the own message: a retransmission after an hour proves nothing. This is a possible
  acknowledgement, counted once for each participant. If their number reaches the threshold, all of them count as
  acknowledgements.

A message stays in the outgoing buffer until the layer above removes it (`OutgoingBuffer.remove`). That layer decides
how many acknowledgements are enough.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from msgspec import Struct

from fairway.bounded import BoundedDict
from fairway.protocol.journal import Journal
from fairway.protocol.sds.vouching import BELIEVED_MS
from fairway.wire.bloom import BloomParameters, chance_of_false_hit, holds, spread
from fairway.wire.sds import HistoryEntry, ReceivedBloom, SdsCodec, SdsMessage

OUTGOING: Final = "outgoing"
ACKNOWLEDGEMENTS: Final = "acknowledgements"

_ANCESTRY_WINDOW: Final = 65_536
"""Newest messages whose unacknowledged ancestors are kept; peers cite the newest few that they have."""
_MAX_RANGES: Final = 64
"""Ranges of own ancestors that are kept for one message, the newest."""
_MAX_WITNESSES: Final = 10_000
"""Acknowledging participants that are kept for one message."""
SUPPORTING: Final = 0.002
"""Maximum chance of a false hit in a filter beside the citation of a descendant.

It is twice the default rate of all implementations, because the number of set bits varies. A filter with a higher
chance is ignored."""
CREDIBLE: Final = 1e-6
"""Maximum chance of a false hit in a filter without such a citation: about two fifths of its capacity are used.

Two filters that hold the same message are not two proofs: both contain nearly the same ids, and so have the same false
hits. js-waku never rolls its filter over, so that the filter finally seems to hold every message."""

_CLOCKS_APART_MS: Final = 60_000
"""Tolerated difference between clocks; Waku nodes reject timestamps more than 20 s from their own time."""


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
    """Number among the own messages of this channel."""
    base_hashes: tuple[int, int] | None = field(default=None, compare=False)
    """Hashes that give the bits of its id in filters of any size; computed when the first filter arrives."""
    positions: list[int] = field(default_factory=list, compare=False)
    """Bits of its id in filters of this channel's size; empty until the first such filter arrives."""
    acknowledged_by: dict[str, Evidence] = field(default_factory=dict)
    made_ms: int = 0
    """Time of creation, in Unix milliseconds."""


class Acknowledged(NamedTuple):
    """The state of an own message that was forgotten (`MessageChannel.watch_again`)."""

    sequence: int
    """Number among the own messages of this channel."""
    by: Collection[str]
    made_ms: int
    """Time of creation, in Unix milliseconds."""


Ranges = tuple[tuple[int, int], ...]
"""Numbers as disjoint ranges (first, last), ascending."""


class Ancestry:
    """Which own messages each recent message descends from, as ranges of their sequence numbers.

    The messages of one sender cite one another, so a message that cites one of them descends from all earlier ones. One
    range is therefore nearly always enough, even for many unacknowledged messages.
    """

    def __init__(self) -> None:
        self._ancestors: BoundedDict[str, Ranges] = BoundedDict(_ANCESTRY_WINDOW)

    def record(self, message_id: str, parents: Sequence[HistoryEntry], own: dict[str, OutgoingMessage]) -> None:
        """Note a message that entered the history, with its citations."""
        known = self._ancestors
        if not own:
            known.clear()
            return
        outgoing = own.get(message_id)
        found: dict[Ranges, None] = {} if outgoing is None else {((outgoing.sequence, outgoing.sequence),): None}
        low, high = 1, 0
        for parent in reversed(parents):
            inherited = known.get(parent[0])
            # The newest parents descend from nearly all others.
            if inherited and not (low <= inherited[0][0] and inherited[-1][1] <= high):
                found[inherited] = None
                low, high = inherited[-1]
        if found:
            known[message_id] = _merged(found)

    def of(self, message_ids: Iterable[str]) -> Ranges:
        """Return the sequence numbers of the own messages among these messages and their ancestors."""
        found = dict.fromkeys(ranges for message_id in message_ids if (ranges := self._ancestors.get(message_id)))
        return _merged(found) if found else ()


def _merged(sets: Collection[Ranges]) -> Ranges:
    """Return the union, limited to the newest `_MAX_RANGES` ranges."""
    if len(sets) == 1:
        return next(iter(sets))
    merged: list[tuple[int, int]] = []
    for first, last in sorted(one for ranges in sets for one in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged[-_MAX_RANGES:])


class Review(Struct, frozen=True, kw_only=True):
    """The evidence that one received message gives about an own one."""

    message_id: str
    participant: str
    evidence: Evidence | None
    """None for a possible acknowledgement."""
    possible_count: int = 0
    acknowledged_by: tuple[str, ...] = ()
    """All participants that have acknowledged the message; empty for a possible acknowledgement."""


class OutgoingBuffer:
    """Own messages that wait for acknowledgements, oldest first."""

    def __init__(self, codec: SdsCodec, parameters: BloomParameters, threshold: int, journal: Journal) -> None:
        self.messages: dict[str, OutgoingMessage] = {}
        self.possible: dict[str, dict[str, None]] = {}
        """Participants whose bloom filters held a message, by message id."""
        self.ancestry = Ancestry()
        self._codec = codec
        self._parameters = parameters
        self._threshold = threshold
        self._journal = journal

    def __len__(self) -> int:
        return len(self.messages)

    def __contains__(self, message_id: str) -> bool:
        return message_id in self.messages

    def __iter__(self) -> Iterator[OutgoingMessage]:
        return iter(self.messages.values())

    def add(self, message: SdsMessage, sequence: int, now_ms: int) -> None:
        """Start to wait for acknowledgements of a new message."""
        self.messages[message.message_id] = OutgoingMessage(message=message, sequence=sequence, made_ms=now_ms)
        self._journal.touch(OUTGOING, message.message_id)

    def remove(self, message_id: str) -> OutgoingMessage | None:
        """Stop waiting for acknowledgements of a message; return it, or None if it was not in the buffer."""
        outgoing = self.messages.pop(message_id, None)
        if outgoing is not None:
            self.possible.pop(message_id, None)
            self._journal.touch(OUTGOING, message_id)
            self._journal.touch(ACKNOWLEDGEMENTS, message_id)
        return outgoing

    def review(
        self, message: SdsMessage, cited: tuple[HistoryEntry, ...], now_ms: int, sent_ms: int | None = None
    ) -> list[Review]:
        """Return the evidence in a message that was sent at ``sent_ms`` about own ones (SDS, "Review ACK Status").

        An invalid bloom field is ignored; the citations of its message still count.
        """
        reviews = self._review_citations(cited, message.sender_id)
        if not self.messages:
            return reviews
        if not message.bloom_filter:
            return reviews + (self._review_ancestors(cited, message.sender_id, now_ms) if message.vouches else [])
        bloom = self._codec.read_bloom(message.bloom_filter, self._parameters)
        return reviews if bloom is None else reviews + self._review_bloom(bloom, cited, message.sender_id, sent_ms)

    def _review_citations(self, cited: tuple[HistoryEntry, ...], participant: str) -> list[Review]:
        reviews: list[Review] = []
        for entry in cited:
            outgoing = self.messages.get(entry[0])
            if self._is_anothers(entry):
                continue
            if outgoing is not None and participant not in outgoing.acknowledged_by:
                reviews += self._acknowledge(outgoing, [participant], Evidence.CITED)
        return reviews

    def _review_ancestors(self, cited: tuple[HistoryEntry, ...], participant: str, now_ms: int) -> list[Review]:
        """Review the own ancestors of the cited messages, for which the citing message vouches."""
        vouched_for = self.ancestry.of(entry[0] for entry in cited if not self._is_anothers(entry))
        reviews: list[Review] = []
        for outgoing in list(self.messages.values()) if vouched_for else ():
            if participant in outgoing.acknowledged_by or now_ms - outgoing.made_ms > BELIEVED_MS:
                continue
            if any(first <= outgoing.sequence <= last for first, last in vouched_for):
                reviews += self._acknowledge(outgoing, [participant], Evidence.DESCENDANT)
        return reviews

    def _is_anothers(self, entry: HistoryEntry) -> bool:
        """Return whether a citation with the id of an own message names another sender."""
        outgoing = self.messages.get(entry[0])
        return outgoing is not None and (entry[2] or outgoing.message.sender_id) != outgoing.message.sender_id

    def _review_bloom(
        self, bloom: ReceivedBloom, cited: tuple[HistoryEntry, ...], participant: str, sent_ms: int | None
    ) -> list[Review]:
        """Review the own messages that a participant's bloom filter holds."""
        reviews: list[Review] = []
        words, flip = bloom.words, self._codec.bloom.byte_flip
        same = bloom.parameters == self._parameters
        chance: float | None = None
        descended_from = self.ancestry.of(entry[0] for entry in cited)
        for outgoing in list(self.messages.values()):
            if participant in outgoing.acknowledged_by:
                continue
            if not holds(words, self._positions(outgoing, bloom.parameters, same=same), flip):
                continue
            if chance is None:
                chance = chance_of_false_hit(words, bloom.parameters)
                if chance > SUPPORTING:
                    return []
            if any(first <= outgoing.sequence <= last for first, last in descended_from):
                reviews += self._acknowledge(outgoing, [participant], Evidence.DESCENDANT)
            elif chance <= CREDIBLE and (sent_ms is None or sent_ms >= outgoing.made_ms - _CLOCKS_APART_MS):
                reviews += self._possibly(outgoing, participant)
        return reviews

    def _positions(self, outgoing: OutgoingMessage, parameters: BloomParameters, *, same: bool) -> list[int]:
        """Return the bits of a message's id in a filter; those of this channel's size (``same``) are cached."""
        if same and outgoing.positions:
            return outgoing.positions
        if outgoing.base_hashes is None:
            outgoing.base_hashes = self._codec.bloom.base_hashes(outgoing.message.message_id)
        positions = spread(outgoing.base_hashes, parameters)
        if same:
            outgoing.positions = positions
        return positions

    def _possibly(self, outgoing: OutgoingMessage, participant: str) -> list[Review]:
        message_id = outgoing.message.message_id
        seen = self.possible.setdefault(message_id, {})
        if participant in seen or len(seen) >= _MAX_WITNESSES:
            return []
        seen[participant] = None
        self._journal.touch(ACKNOWLEDGEMENTS, message_id)
        if len(seen) >= self._threshold:
            return self._acknowledge(outgoing, list(seen), Evidence.BLOOM)
        return [Review(message_id=message_id, participant=participant, evidence=None, possible_count=len(seen))]

    def _acknowledge(self, outgoing: OutgoingMessage, participants: list[str], evidence: Evidence) -> list[Review]:
        message_id, known = outgoing.message.message_id, outgoing.acknowledged_by
        if len(known) >= _MAX_WITNESSES:
            return []
        for participant in participants:
            known.setdefault(participant, evidence)
        self._journal.touch(ACKNOWLEDGEMENTS, message_id)
        return [
            Review(
                message_id=message_id,
                participant=participants[-1],
                evidence=evidence,
                acknowledged_by=tuple(known),
            )
        ]
