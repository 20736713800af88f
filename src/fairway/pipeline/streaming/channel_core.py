"""`ChannelCore`: the protocol core of one channel of a stream, over successive micro-batches.

It consists of a live channel's reassembler for each profile, of `Gaps`, and of the delivery data for each incomplete
segment set. The state is rows (`fairway.protocol.journal`): a micro-batch writes only changed rows, so that its cost
does not grow with the channel. The caller must pass each SDS message once.

Invariant: the state is bounded for any input. Beyond the bounds of `STREAM_QUOTAS` the core evicts the oldest
incomplete set: of the sender, or of the sender that holds most. The tables still have its messages, because they are
made from the recorded messages; `fairway.pipeline.streaming.settling` delivers the difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from fairway.options import Profile
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION
from fairway.pipeline.streaming.gaps import Gaps
from fairway.protocol.segmentation.open_sets import Quotas
from fairway.protocol.segmentation.outcomes import MessageComplete, Outcome, Refused, SegmentKept
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.segmentation.segment_set import SegmentSet, SetKey

DELIVERED: Final = "delivered"
MISSING: Final = "missing"
FOUND: Final = "found"

EMITTED: Final = (
    "what string, channel_id string, sender_id string, message_id string, lamport bigint, sds_ids array<string>,"
    " timestamp timestamp, timestamp_ns bigint, segments int, recovered boolean, size_bytes bigint, payload binary"
)
"""The output of a core. A row with ``what`` = ``delivered`` is a row of the table of this name, as it is known when the
message is complete. ``missing`` reports the id of a cited message that has not arrived, with the time of the citation.
``found`` reports such a message that arrived later."""

STREAM_QUOTAS: Final = Quotas(bytes_per_sender=33_554_432, all_bytes=67_108_864, ended_sets=1_000)
"""Bounds of one channel: bytes of waiting segments of a sender and in all (each segment counts 1 KiB more than its
content), and completed sets of which late segments are recognised."""

_SYNC: Final = "sync"
_TIMES: Final = "times"
_NOW_MS: Final = 0
"""The constant time for the reassembler, so that no set expires: an archive is read at its own pace."""

Row: TypeAlias = tuple[Any, ...]


class StreamedMessage(NamedTuple):
    """An SDS message of the channel."""

    message_id: str
    sender_id: str | None
    kind: str
    lamport: int | None
    timestamp_ns: int
    profile: str
    content: bytes | None
    segment_hash: bytes | None
    is_parity: bool | None
    cited: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreChanges:
    """The changes of a micro-batch."""

    summary: Row
    """The row that is written in every micro-batch; its size is bounded (`fairway.pipeline.streaming.gaps`)."""
    rows: Mapping[str, Row | None]
    """Changed rows of incomplete and completed sets by their keys; None: removed."""


class ChannelCore:
    """The core of one channel, for one micro-batch."""

    def __init__(self, channel_id: str, summary: Row | None, load: Callable[[], Iterable[tuple[str, Row]]]) -> None:
        """Restore the state: ``summary`` is the last one written, ``load`` returns the rows if they are needed."""
        self._channel_id = channel_id
        self._gaps = Gaps() if summary is None else Gaps(*summary)
        self._times: dict[str, Row] = {}
        self._load = load
        self._reassemblers: dict[str, Reassembler] | None = None
        self._touched: dict[str, None] = {}

    def take(self, arrivals: Iterable[StreamedMessage]) -> Iterator[Row]:
        """Process a micro-batch and yield rows of `EMITTED`; the state is complete after the last row.

        Memory holds the segments of the micro-batch, but not its unsegmented messages.
        """
        segments: list[StreamedMessage] = []
        citing: list[tuple[str, str, int, tuple[str, ...]]] = []
        for arrival in arrivals:
            if self._gaps.came(arrival.kind, arrival.message_id):
                yield self._gap(FOUND, arrival.message_id, arrival.timestamp_ns)
            citing.append((arrival.kind, arrival.message_id, arrival.timestamp_ns, arrival.cited))
            if arrival.segment_hash is not None:
                segments.append(arrival)
            elif arrival.kind != _SYNC:
                yield self._delivered(
                    arrival.sender_id,
                    arrival.content,
                    (arrival.message_id,),
                    lamport=arrival.lamport,
                    timestamp=arrival.timestamp_ns,
                )
        # A message may arrive in the same micro-batch as its citation, and after it.
        for kind, message_id, timestamp, cited in citing:
            for absent in self._gaps.cited(kind, message_id, cited):
                yield self._gap(MISSING, absent, timestamp)
        # The order of a run over a whole archive: data before parity.
        for segment in sorted(segments, key=lambda one: (one.is_parity, one.lamport or 0, one.message_id)):
            yield from self._segment(segment)

    def changes(self) -> CoreChanges:
        """Return the changes to write for the core of the next micro-batch."""
        return CoreChanges(
            summary=(self._gaps.seen, self._gaps.missing), rows={key: self._row(key) for key in self._touched}
        )

    def _segment(self, arrival: StreamedMessage) -> Iterator[Row]:
        lamport, sender_id = arrival.lamport or 0, arrival.sender_id or ""
        match self._added(arrival, sender_id, lamport):
            case SegmentKept(segments=segments, is_late=False):
                self._note(_name(arrival.profile, segments.key), lamport, arrival.timestamp_ns)
            case Refused(lost=lost) if lost is not None:
                self._forget(_name(arrival.profile, lost.key))
            case MessageComplete(segments=SegmentSet() as segments) as outcome:
                name = _name(arrival.profile, segments.key)
                self._note(name, lamport, arrival.timestamp_ns)
                first, last = self._times[name]
                self._forget(name)
                yield self._delivered(
                    arrival.sender_id,
                    outcome.payload,
                    segments.sds_ids,
                    lamport=first,
                    timestamp=last,
                    segments=segments.data_count,
                    recovered=outcome.recovered,
                )

    def _added(self, arrival: StreamedMessage, sender_id: str, lamport: int) -> Outcome:
        reassembler = self._all()[arrival.profile]
        while True:
            outcome = reassembler.accept(sender_id, arrival.message_id, lamport, arrival.content or b"", _NOW_MS)
            if not (isinstance(outcome, Refused) and outcome.full):
                return outcome
            lost = reassembler.evict(sender_id)
            if lost is None:
                return outcome
            self._forget(_name(arrival.profile, lost.key))

    def _note(self, name: str, lamport: int, timestamp: int) -> None:
        first, last = self._times.get(name, (lamport, timestamp))
        self._times[name] = (min(first, lamport), max(last, timestamp))
        self._touched[name] = None

    def _forget(self, name: str) -> None:
        if self._times.pop(name, None) is not None:
            self._touched[name] = None

    def _all(self) -> dict[str, Reassembler]:
        """Return the reassemblers; only a micro-batch with segments loads them."""
        if self._reassemblers is None:
            self._reassemblers = {profile.value: self._reassembler(profile) for profile in Profile}
            rows: dict[str, list[tuple[str, Row]]] = {}
            for key, row in self._load():
                kind, _, own = key.partition("/")
                if kind == _TIMES:
                    self._times[key] = row
                else:
                    rows.setdefault(kind, []).append((own, row))
            for profile_name, kept in rows.items():
                self._reassemblers[profile_name].load(kept)
        return self._reassemblers

    def _reassembler(self, profile: Profile) -> Reassembler:
        def touch(key: str) -> None:
            self._touched[f"{profile.value}/{key}"] = None

        return Reassembler(ARCHIVE_SEGMENTATION, profile.segments, on_change=touch, quotas=STREAM_QUOTAS)

    def _row(self, key: str) -> Row | None:
        kind, _, own = key.partition("/")
        return self._times.get(key) if kind == _TIMES else self._all()[kind].row(own)

    def _delivered(
        self,
        sender_id: str | None,
        payload: bytes | None,
        sds_ids: tuple[str, ...],
        *,
        lamport: int | None,
        timestamp: int,
        segments: int = 1,
        recovered: bool = False,
    ) -> Row:
        # As in `fairway.pipeline.stages.delivered`: the id of a logical message is the SHA-256 of its payload.
        message_id = None if payload is None else hashlib.sha256(payload).hexdigest()
        size_bytes = None if payload is None else len(payload)
        who = (DELIVERED, self._channel_id, sender_id, message_id)
        return (*who, lamport, list(sds_ids), timestamp, segments, recovered, size_bytes, payload)

    def _gap(self, what: str, message_id: str, timestamp: int) -> Row:
        return (what, self._channel_id, None, message_id, None, None, timestamp, None, None, None, None)


def _name(profile: str, key: SetKey) -> str:
    """Return the key of a set's row in `_TIMES`: its least Lamport timestamp and its latest timestamp."""
    return f"{_TIMES}/{profile}/{key.payload_hash.hex()}/{key.payload_length}/{key.generation}/{key.sender_id}"
