"""How js-waku weighs evidence about own messages: by citation and by filters, without asking whose they are."""

from __future__ import annotations

from fairway.protocol.journal import Journal
from fairway.protocol.sds.acknowledgements import Evidence, OutgoingBuffer, OutgoingMessage, Review
from fairway.protocol.sds.vouching import BELIEVED_MS
from fairway.wire.bloom import BloomParameters, chance_of_false_hit, holds
from fairway.wire.sds import HistoryEntry, SdsCodec, SdsMessage
from js_waku.faults import Fault, Notice


class JsOutgoingBuffer(OutgoingBuffer):
    """Own messages that are not yet acknowledged, and how many filters held each."""

    def __init__(
        self, codec: SdsCodec, parameters: BloomParameters, threshold: int, journal: Journal, notice: Notice
    ) -> None:
        super().__init__(codec, parameters, threshold, journal)
        self.confirmed: set[str] = set()
        """Own messages whose send callback returned."""
        self.hits: dict[str, int] = {}
        """Filters that held a message, by message id: js-waku's ``possibleAcks``."""
        self._wire = codec.bloom
        self._witnesses: dict[str, set[str]] = {}
        self._needed = threshold
        self._notice = notice

    def review(
        self,
        message: SdsMessage,
        cited: tuple[HistoryEntry, ...],
        now_ms: int,
        sent_ms: int | None = None,
    ) -> list[Review]:
        """Return what a received message tells about own ones."""
        if not message.bloom_filter and self._has_more_ancestors(cited, now_ms):
            self._notice(Fault.DESCENDANTS_IGNORED)
        reviews = []
        for entry in cited:
            if entry.message_id in self:
                if entry.message_id in self.hits:
                    # The counter stays, and goes on when the same payload is sent again.
                    self._notice(Fault.COUNTER_OUTLIVES)
                reviews.append(self._acknowledge_now(entry.message_id, message.sender_id, Evidence.CITED))
        field = message.bloom_filter
        bloom = None if field is None else self._codec.read_bloom(field, self._parameters)
        if bloom is None:
            return reviews
        if chance_of_false_hit(bloom.words, bloom.parameters) > bloom.parameters.error_rate:
            self._notice(Fault.OVERFULL_FILTER_COUNTS)
        for outgoing in list(self):
            positions = self._wire.positions(outgoing.message.message_id, bloom.parameters)
            if holds(bloom.words, positions, self._wire.byte_flip):
                self._notice_weight(outgoing, cited, message.sender_id)
                reviews.append(self._count(outgoing.message.message_id, message.sender_id))
        return reviews

    def _has_more_ancestors(self, cited: tuple[HistoryEntry, ...], now_ms: int) -> bool:
        """Return whether fairway would take citations without a filter for acknowledgements of more than they cite."""
        ids = {entry.message_id for entry in cited}
        ancestors = self.ancestry.of(ids)
        recent = [own for own in self if own.message.message_id not in ids and now_ms - own.made_ms <= BELIEVED_MS]
        return any(first <= own.sequence <= last for own in recent for first, last in ancestors)

    def _count(self, message_id: str, participant: str) -> Review:
        """Count a filter, whoever's, also the same one again."""
        count = self.hits.pop(message_id, 0) + 1
        if count >= self._needed:
            return self._acknowledge_now(message_id, participant, Evidence.BLOOM)
        self.hits[message_id] = count
        return Review(message_id=message_id, participant=participant, evidence=None, possible_count=count)

    def _acknowledge_now(self, message_id: str, participant: str, evidence: Evidence) -> Review:
        self.remove(message_id)
        return Review(message_id=message_id, participant=participant, evidence=evidence)

    def _notice_weight(self, outgoing: OutgoingMessage, cited: tuple[HistoryEntry, ...], participant: str) -> None:
        """Notice where fairway makes more or less of a filter that holds a message."""
        if outgoing.message.message_id not in self.confirmed:
            self._notice(Fault.UNCONFIRMED_SEND)
        ancestors = self.ancestry.of(entry.message_id for entry in cited)
        if any(first <= outgoing.sequence <= last for first, last in ancestors):
            self._notice(Fault.DESCENDANTS_IGNORED)
        witnesses = self._witnesses.setdefault(outgoing.message.message_id, set())
        if participant in witnesses:
            self._notice(Fault.HITS_COUNTED)
        witnesses.add(participant)
