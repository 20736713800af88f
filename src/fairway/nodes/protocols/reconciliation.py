"""`Reconciliation`: one side of a session that finds the messages that two stores lack (WAKU-SYNC).

Pure; time is an argument, and payloads and differences are values. The initiator sends the fingerprint of its whole
time range. The nodes then answer each other in turn:

| received range | answer |
|---|---|
| fingerprint that is equal here | none |
| fingerprint, and few ids here | all ids of the range |
| fingerprint, and many ids here | the range in `PARTS` parts: a fingerprint, or the ids if they are few |
| ids | the ids of the range here, marked as reconciled; the peer lacks those that it did not name |
| ids that are marked as reconciled | none; the peer lacks the ids that it did not name |

The session ends with a payload without open ranges. A node compares only messages of topics that both nodes keep. It
does not compare times before its own range, because a peer would otherwise send all messages of these times. Each
side sends the messages that the other one lacks; it does not request any.

A session ends after `MAX_ROUNDS` payloads of the peer. Ranges in a payload do not overlap, so an answer names each id
at most once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import xor
from typing import Final

from fairway.errors import DecodeError
from fairway.storage.archive import ArchivedId
from fairway.wire.store_sync import ZERO_HASH, ItemSet, SyncId, SyncPayload, SyncRange
from fairway.wire.waku_message import MESSAGE_HASH_BYTES

PARTS: Final = 8
"""Parts of a range that is split; nwaku has the same number."""
MAX_LISTED: Final = 100
"""Most ids of a range that is not split; nwaku has the same number."""
MAX_ROUNDS: Final = 32
"""Most payloads that a session reads: an hour is split into single nanoseconds fourteen times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStep:
    """The result of a payload."""

    reply: SyncPayload | None
    """The payload for the peer; None if the peer ended the session."""
    peer_lacks: tuple[bytes, ...] = ()
    """Message hashes that the peer lacks, each once in a session."""
    ended: bool = False
    """Whether the session ends after the reply."""


class Reconciliation:
    """One side of one session."""

    def __init__(self, stored: Sequence[ArchivedId], *, pubsub_topics: Iterable[str], start_ns: int) -> None:
        """Compare the messages of ``pubsub_topics``, those that this node keeps, from ``start_ns`` (Unix time) on.

        ``stored`` has these messages in order; those of other topics are ignored.
        """
        self._stored: Final = stored
        self._pubsub_topics: Final = tuple(sorted(pubsub_topics))
        self._start: Final = SyncId(start_ns, ZERO_HASH)
        self._rounds = 0
        self._sent: set[bytes] = set()
        """Hashes that the peer lacks, of the whole session."""
        self._scope: tuple[frozenset[str], frozenset[str]] | None = None
        self._compare(frozenset(self._pubsub_topics), frozenset())

    def begin(self, end_ns: int) -> SyncPayload:
        """Return the first payload of the initiator, for the time from its start to ``end_ns``, which is not included.

        ``end_ns`` must be later than the start.
        """
        end = SyncId(end_ns, ZERO_HASH)
        whole = SyncRange(self._start, end, self._fingerprint(*self._places(self._start, end)))
        return SyncPayload(pubsub_topics=self._pubsub_topics, ranges=(whole,))

    def receive(self, payload: SyncPayload) -> SyncStep:
        """Return the answer to a payload; raise `DecodeError` beyond `MAX_ROUNDS`."""
        if all(one.content is None for one in payload.ranges):
            return SyncStep(reply=None, ended=True)
        self._rounds += 1
        if self._rounds > MAX_ROUNDS:
            raise DecodeError(f"a session of reconciliation has {MAX_ROUNDS} rounds at most")
        if self._rounds == 1:
            # WAKU-SYNC: the intersection of both nodes' topics; an empty set of a node means all topics.
            scope = frozenset(self._pubsub_topics)
            if payload.pubsub_topics:
                scope &= frozenset(payload.pubsub_topics)
            self._compare(scope, frozenset(payload.content_topics))
            if not scope:
                return SyncStep(reply=SyncPayload(), ended=True)
        ranges: list[SyncRange] = []
        peer_lacks: list[bytes] = []
        for one in payload.ranges:
            start, end = one.start, one.end
            if start < self._start:
                ranges.append(SyncRange(start, min(end, self._start)))
                start = self._start
            if start >= end:
                continue
            first, last = self._places(start, end)
            match one.content:
                case None:
                    ranges.append(SyncRange(start, end))
                case bytes() as theirs:
                    ranges += self._answer(start, end, theirs)
                case ItemSet() as theirs:
                    named = set(theirs.ids)
                    here = self._ids[first:last]
                    peer_lacks += [each.message_hash for each in here if each not in named]
                    ranges.append(SyncRange(start, end, None if theirs.reconciled else ItemSet(here, reconciled=True)))
        new = [each for each in dict.fromkeys(peer_lacks) if each not in self._sent]
        self._sent.update(new)
        is_open = any(one.content is not None for one in ranges)
        reply = SyncPayload()
        if is_open:
            reply = SyncPayload(pubsub_topics=self._pubsub_topics, ranges=tuple(_merged(ranges)))
        return SyncStep(reply=reply, peer_lacks=tuple(new), ended=not is_open)

    def _compare(self, pubsub_topics: frozenset[str], content_topics: frozenset[str]) -> None:
        """Compare the messages of these topics only; no content topic means all."""
        if (pubsub_topics, content_topics) == self._scope:
            return
        self._scope = pubsub_topics, content_topics
        self._ids = tuple(
            SyncId(one.timestamp_ns, one.message_hash)
            for one in self._stored
            if one.pubsub_topic in pubsub_topics and (not content_topics or one.content_topic in content_topics)
        )
        hashes = (int.from_bytes(one.message_hash) for one in self._ids)
        self._fingerprints = list(accumulate(hashes, xor, initial=0))
        """The fingerprint of the first ids, as a number, for each count of them."""

    def _places(self, start: SyncId, end: SyncId) -> tuple[int, int]:
        """Return the places of the first id of a range and of the first one behind it."""
        return bisect_left(self._ids, start), bisect_left(self._ids, end)

    def _fingerprint(self, first: int, last: int) -> bytes:
        """Return the XOR of the hashes of ids (WAKU-SYNC, "Fingerprint")."""
        return (self._fingerprints[first] ^ self._fingerprints[last]).to_bytes(MESSAGE_HASH_BYTES)

    def _answer(self, start: SyncId, end: SyncId, theirs: bytes) -> Iterator[SyncRange]:
        """Yield the answer to a fingerprint."""
        first, last = self._places(start, end)
        if self._fingerprint(first, last) == theirs:
            yield SyncRange(start, end)
        elif last - first <= MAX_LISTED or end.timestamp_ns - start.timestamp_ns < PARTS:
            yield self._listed(start, end, first, last)
        else:
            length_ns = end.timestamp_ns - start.timestamp_ns
            inner = (SyncId(start.timestamp_ns + length_ns * part // PARTS, ZERO_HASH) for part in range(1, PARTS))
            for lower, upper in pairwise((start, *inner, end)):
                first, last = self._places(lower, upper)
                if last - first <= MAX_LISTED:
                    yield self._listed(lower, upper, first, last)
                else:
                    yield SyncRange(lower, upper, self._fingerprint(first, last))

    def _listed(self, start: SyncId, end: SyncId, first: int, last: int) -> SyncRange:
        """Return a range with the ids here; without any the peer lacks nothing, and need not name its own."""
        return SyncRange(start, end, ItemSet(self._ids[first:last], reconciled=first == last))


def _merged(ranges: Iterable[SyncRange]) -> Iterator[SyncRange]:
    """Merge adjacent ranges without content."""
    held: SyncRange | None = None
    for one in ranges:
        if held is not None and held.content is None and one.content is None:
            held = SyncRange(held.start, one.end)
            continue
        if held is not None:
            yield held
        held = one
    if held is not None:
        yield held
