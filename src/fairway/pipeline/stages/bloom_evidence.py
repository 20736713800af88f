"""From ``waku_messages`` to ``bloom_evidence``: acknowledgements of messages by bloom filters.

A participant may omit the filter and vouch for all ancestors of the cited messages (`fairway.protocol.sds.vouching`). A
sender believes this about its own messages of the last `BELIEVED_MS`; this stage uses the same limit.

The stage reads ``waku_messages`` once more, because the filters are most of the bytes of an archive and no other stage
needs them. One task reads each channel in the order of SDS: `ChannelWitness` keeps a window of the newest content
messages, and tests every filter for those that its sender has not acknowledged yet. Messages outside the window are not
tested. So memory is bounded by the windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from fairway.bounded import BoundedDict
from fairway.options import Profile, SdsConfig
from fairway.pipeline.channel_topics import ChannelTopics
from fairway.pipeline.exchange import in_tasks
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.decoding import BatchDecoder, Status, check_columns, joined
from fairway.pipeline.stages.filter_sizes import FilterSizes
from fairway.protocol.sds.acknowledgements import CREDIBLE, SUPPORTING, Evidence
from fairway.protocol.sds.vouching import BELIEVED_MS
from fairway.wire.bloom import BloomParameters, chance_of_false_hit, spread
from fairway.wire.sds import WAKU_SDS, Kind, ReceivedBloom, SdsCodec

BLOOM_EVIDENCE: Final = (
    "channel_id string, message_id string, acknowledged_by string, how string,"
    " acknowledged_at timestamp, acknowledged_at_ns bigint"
)
"""The table of evidence, at most two rows for each message and participant: ``how`` is ``descendant`` or ``bloom``."""

_FILTERS: Final = (
    "channel_id string, lamport bigint, message_id string, timestamp_ns bigint, message_hash binary, sender_id string,"
    " profile string, is_content boolean, cited array<string>, bloom binary, vouches boolean"
)
_FILTER_SCHEMA: Final = exact_schema(_FILTERS)
_EVIDENCE_SCHEMA: Final = exact_schema(BLOOM_EVIDENCE)
_WINDOW: Final = 1_024
"""Newest content messages of a channel that are tested in every filter."""
_ROWS: Final = 256
"""Messages whose evidence is in one batch of the result: each may acknowledge a whole window."""
_MAX_PARTICIPANTS: Final = 4_096
"""Participants of a channel whose acknowledgements are kept; the one silent longest is evicted first."""
_NS_PER_MS: Final = 1_000_000
_MAX_FILTER_SIZES: Final = 4
"""Sizes of filters in one channel; filters of further sizes are not read."""

_INPUT: Final = ("message_hash", "timestamp_ns", "content_topic", "payload", "meta")


def bloom_evidence(
    waku_messages: DataFrame,
    profile: Profile | None = None,
    *,
    keys: ChannelKeys | None = None,
    channel_topics: ChannelTopics | None = None,
    sds: SdsConfig | None = None,
) -> DataFrame:
    """Return the evidence of bloom filters (`BLOOM_EVIDENCE`), for `acknowledgements`.

    Reads ``waku_messages`` with payloads, and ``profile``, ``keys`` and ``channel_topics`` as `decoded` does. A worker
    reads a whole channel in its order, and tests the 1,024 newest content messages in each filter. ``sds`` gives the
    expected size of the filters on the Waku wire; other sizes are inferred (`FilterSizes`).
    """
    config = sds or SdsConfig()
    weigh = evidence_mapper(config)
    messages = waku_messages.select(*dict.fromkeys([*_INPUT, *check_columns(waku_messages.columns)]))
    filters = in_tasks(messages, filter_mapper(profile, keys=keys, channel_topics=channel_topics), _FILTERS)
    by_channel = filters.repartition("channel_id").sortWithinPartitions(
        "channel_id", "lamport", "message_id", "timestamp_ns", "message_hash"
    )
    return in_tasks(by_channel, lambda batches: batches_with_instants(weigh(batches), BLOOM_EVIDENCE), BLOOM_EVIDENCE)


def filter_mapper(
    profile: Profile | None = None,
    *,
    keys: ChannelKeys | None = None,
    channel_topics: ChannelTopics | None = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that extracts filters and citations from batches of ``waku_messages``."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = BatchDecoder(profile, None, keys, channel_topics=channel_topics, with_filters=True)
        for batch in joined(batches):
            yield _filters(decoder, batch)

    return read


def evidence_mapper(config: SdsConfig) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that weighs the filters of whole channels, each in the order of SDS."""

    def weigh(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        witness = ChannelWitness("", config)
        for rows in (batch.slice(at, _ROWS) for batch in batches for at in range(0, batch.num_rows, _ROWS)):
            found: list[tuple[str, str, str, str, int]] = []
            for row in rows.to_pylist():
                if row["channel_id"] != witness.channel_id:
                    witness = ChannelWitness(row["channel_id"], config)
                found += (
                    (witness.channel_id, *evidence, row["timestamp_ns"]) for evidence in witness.hear(_heard(row))
                )
            columns = list(zip(*found, strict=True)) or [()] * len(_EVIDENCE_SCHEMA)
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, kind) for column, kind in zip(columns, _EVIDENCE_SCHEMA.types, strict=True)],
                schema=_EVIDENCE_SCHEMA,
            )

    return weigh


class Heard(NamedTuple):
    """One message, with its filter and citations."""

    message_id: str
    sender_id: str
    profile: str
    is_content: bool
    cited: Sequence[str]
    bloom: bytes | None
    vouches: bool = False
    """Whether its sender vouches for all ancestors of the cited messages."""
    timestamp_ns: int = 0


class _Positions:
    """The bit positions of the window's messages in filters of one size."""

    def __init__(self, parameters: BloomParameters) -> None:
        self.parameters = parameters
        self.bytes = np.zeros((_WINDOW, parameters.hash_count), np.intp)
        self.bits = np.zeros((_WINDOW, parameters.hash_count), np.uint8)

    def put(self, slot: int, base_hashes: tuple[int, int], byte_flip: int) -> None:
        places = np.array(spread(base_hashes, self.parameters), np.int64)
        self.bytes[slot] = (places >> 3) ^ byte_flip
        self.bits[slot] = 1 << (places & 7)

    def held_by(self, words: bytes) -> NDArray[np.bool_]:
        """Return for each slot whether a filter probably contains its message."""
        held: NDArray[np.bool_] = (np.frombuffer(words, np.uint8)[self.bytes] & self.bits != 0).all(axis=1)
        return held


class _Told(NamedTuple):
    """The messages of the window that a participant has acknowledged."""

    certain: NDArray[np.bool_]
    possible: NDArray[np.bool_]


class ChannelWitness:
    """The newest messages of one channel, and the participants that have acknowledged them."""

    def __init__(self, channel_id: str, config: SdsConfig) -> None:
        self.channel_id = channel_id
        self._expected = BloomParameters.of(config.bloom_capacity, config.bloom_error_rate)
        self._sizes = FilterSizes(self._expected)
        self._ids: list[str | None] = [None] * _WINDOW
        self._senders: list[str] = [""] * _WINDOW
        self._times_ns: list[int] = [0] * _WINDOW
        self._hashes: list[tuple[int, int]] = [(0, 0)] * _WINDOW
        self._sequence = 0
        self._base = 0
        self._slots: dict[str, int] = {}
        self._ancestors: BoundedDict[str, int] = BoundedDict(2 * _WINDOW)
        """For each recent message the set of itself and its ancestors; bit 0 is number `_base`."""
        self._positions: dict[BloomParameters, _Positions] = {}
        self._told: BoundedDict[str, _Told] = BoundedDict(_MAX_PARTICIPANTS)

    def hear(self, heard: Heard) -> list[tuple[str, str, str]]:
        """Return the acknowledgements of a message as (message id, participant, how), and add it to the window."""
        codec = Profile(heard.profile).codec
        ancestors = 0
        for message_id in heard.cited:
            ancestors |= self._ancestors.get(message_id, 0)
        if heard.bloom:
            evidence = self._weigh(heard, codec, ancestors)
        else:
            evidence = self._vouched_for(heard, ancestors) if heard.vouches else []
        if heard.is_content and heard.message_id not in self._ancestors:
            self._enter(heard, codec, ancestors)
        return evidence

    def _weigh(self, heard: Heard, codec: SdsCodec, ancestors: int) -> list[tuple[str, str, str]]:
        bloom = self._read(heard.bloom or b"", heard, codec)
        positions = None if bloom is None else self._positions_for(bloom.parameters, codec)
        if bloom is None or positions is None:
            return []
        told = self._told_in(heard)
        chance: float | None = None
        evidence: list[tuple[str, str, str]] = []
        for slot in np.flatnonzero(positions.held_by(bloom.words) & ~told.certain).tolist():
            held = self._ids[slot]
            if held is None or self._senders[slot] == heard.sender_id:
                continue
            if chance is None:
                chance = chance_of_false_hit(bloom.words, bloom.parameters)
                if chance > SUPPORTING:
                    break
            number = self._number(slot) - self._base
            if number >= 0 and ancestors >> number & 1:
                told.certain[slot] = True
                evidence.append((held, heard.sender_id, Evidence.DESCENDANT.value))
            elif chance <= CREDIBLE and not told.possible[slot]:
                told.possible[slot] = True
                evidence.append((held, heard.sender_id, Evidence.BLOOM.value))
        return evidence

    def _vouched_for(self, heard: Heard, ancestors: int) -> list[tuple[str, str, str]]:
        """Return the ancestors of the cited messages in the last `BELIEVED_MS`."""
        told = self._told_in(heard)
        first = max(self._base, self._sequence - _WINDOW)
        descended = (ancestors >> (first - self._base)).to_bytes(_WINDOW // 8, "little")
        numbers = first + np.flatnonzero(np.unpackbits(np.frombuffer(descended, np.uint8), bitorder="little"))
        evidence = []
        for slot in (numbers % _WINDOW)[~told.certain[numbers % _WINDOW]].tolist():
            held = self._ids[slot]
            is_old = heard.timestamp_ns - self._times_ns[slot] > BELIEVED_MS * _NS_PER_MS
            if held is not None and self._senders[slot] != heard.sender_id and not is_old:
                told.certain[slot] = True
                evidence.append((held, heard.sender_id, Evidence.DESCENDANT.value))
        return evidence

    def _told_in(self, heard: Heard) -> _Told:
        """Return the acknowledgements of the sender of a message, including the messages that it cites."""
        told = self._told_by(heard.sender_id)
        for message_id in heard.cited:
            if message_id in self._slots:
                told.certain[self._slots[message_id]] = True
        return told

    def _read(self, field: bytes, heard: Heard, codec: SdsCodec) -> ReceivedBloom | None:
        if codec is not WAKU_SDS:
            return codec.read_bloom(field, self._expected)  # the field names its own parameters
        parameters = self._sizes.of(heard.sender_id, field, heard.cited)
        return None if parameters is None else codec.read_bloom(field, parameters)

    def _enter(self, heard: Heard, codec: SdsCodec, ancestors: int) -> None:
        slot = self._sequence % _WINDOW
        gone = self._ids[slot]
        if gone is not None:
            del self._slots[gone]
        self._ids[slot], self._senders[slot] = heard.message_id, heard.sender_id
        self._times_ns[slot] = heard.timestamp_ns
        self._hashes[slot] = codec.bloom.base_hashes(heard.message_id)
        self._slots[heard.message_id] = slot
        for positions in self._positions.values():
            positions.put(slot, self._hashes[slot], codec.bloom.byte_flip)
        for told in self._told.values():
            told.certain[slot] = told.possible[slot] = False
        if self._sequence - self._base >= 2 * _WINDOW:
            self._move_base(self._sequence - _WINDOW)
            ancestors >>= _WINDOW
        self._ancestors[heard.message_id] = ancestors | 1 << (self._sequence - self._base)
        self._sequence += 1

    def _move_base(self, base: int) -> None:
        """Remove the messages before the window, so that the sets stay small."""
        shift = base - self._base
        self._base = base
        shifted = [(message_id, mask >> shift) for message_id, mask in self._ancestors.items()]
        self._ancestors.clear()
        self._ancestors.update((message_id, mask) for message_id, mask in shifted if mask)

    def _number(self, slot: int) -> int:
        """Return the sequence number of the message in a slot."""
        return self._sequence - 1 - (self._sequence - 1 - slot) % _WINDOW

    def _positions_for(self, parameters: BloomParameters, codec: SdsCodec) -> _Positions | None:
        known = self._positions.get(parameters)
        if known is None and len(self._positions) < _MAX_FILTER_SIZES:
            known = self._positions[parameters] = _Positions(parameters)
            for slot in self._slots.values():
                known.put(slot, self._hashes[slot], codec.bloom.byte_flip)
        return known

    def _told_by(self, participant: str) -> _Told:
        told = self._told.get(participant)
        if told is None:
            told = _Told(np.zeros(_WINDOW, np.bool_), np.zeros(_WINDOW, np.bool_))
        self._told[participant] = told
        return told


def _heard(row: dict[str, Any]) -> Heard:
    return Heard(**{name: row[name] for name in Heard._fields})


def _filters(decoder: BatchDecoder, batch: pa.RecordBatch) -> pa.RecordBatch:
    decoded = pa.Table.from_batches([decoder.batch(batch)])
    # Undecodable messages are in the quarantine.
    is_heard = pc.and_(
        pc.equal(decoded["status"], Status.OK.value), pc.not_equal(decoded["kind"], Kind.EPHEMERAL.value)
    )
    heard = decoded.filter(is_heard).combine_chunks()
    histories = heard["causal_history"].combine_chunks()
    columns = {name: heard[name] for name in _FILTER_SCHEMA.names if name in heard.column_names}
    columns["is_content"] = pc.equal(heard["kind"], Kind.CONTENT.value)
    columns["cited"] = pa.ListArray.from_arrays(histories.offsets, histories.values.field("message_id"))
    columns["bloom"] = heard["bloom_filter"]
    filters = pa.table(columns).select(_FILTER_SCHEMA.names).cast(_FILTER_SCHEMA)
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in filters.columns], schema=_FILTER_SCHEMA)
