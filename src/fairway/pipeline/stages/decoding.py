"""`BatchDecoder`: decodes a batch of ``waku_messages``, on the executors, for the stage `sds_messages`.

It needs no Spark. Every input row gives an output row, whatever the payload; its `Status` says whether it was decoded.

Encrypted payloads are opened row by row. The canonical messages of one wire are then read together
(`canonical_columns`). The codec of the profile decodes every other row, and reports its error.
"""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.errors import DecodeError, DecryptionError, SegmentError
from fairway.options import Profile
from fairway.pipeline.channel_topics import ChannelTopics, topic_refusal
from fairway.pipeline.columnar.cursor import Packed, rows_of
from fairway.pipeline.exchange import narrowed
from fairway.pipeline.keys import ChannelKeys, Opened
from fairway.pipeline.packing import packed, packed_bytes
from fairway.pipeline.stages.canonical_columns import canonical_columns, canonical_ids
from fairway.pipeline.stages.decoded_columns import message_columns, segment_columns
from fairway.pipeline.stages.deduplicated import holders, is_damaged
from fairway.pipeline.stages.message_hashes import HASH_INPUT, Fit, fits_of
from fairway.pipeline.stages.proof_columns import proof_columns
from fairway.protocol.encryption.hook import Encryption, decrypt_at_once
from fairway.wire.sds import SdsMessage
from fairway.wire.segment import Segment, SegmentFormat

INPUT: Final = ("message_hash", "timestamp_ns", "content_topic", "payload", "meta")
"""Columns of ``waku_messages`` that are read; also the column of proofs and `check_columns`, if the table has them."""

_FEW_ROWS: Final = 256
"""Rows of one wire below which they are decoded one by one, which is then faster."""
_JOINED_ROWS: Final = 4_000
_JOINED_BYTES: Final = 8_388_608
"""Largest joined batch, in rows or bytes. More rows are hardly cheaper each; more bytes do not fit in the processor's
cache."""

_MAX_LAMPORT: Final = 2**63 - 1
_MAX_PACKED_BYTES: Final = 2**31 - 1
"""Payloads of a batch that are read at once: offsets of Arrow's columns have 32 bits."""
_PROFILES: Final = tuple(Profile)
_PROFILE_NAMES: Final = pa.array([profile.value for profile in _PROFILES])
_NOWHERE: Final = -1

_Opening = Opened | DecryptionError
"""A payload after decryption: its plaintext, or why no key opens it."""


class Status(Enum):
    """The result of decoding a message."""

    OK = "ok"
    HASH_MISMATCH = "hash-mismatch"
    """Its message hash does not match its contents: the archive has a damaged copy."""
    BAD_TOPIC = "bad-topic"
    """One of its topics is not UTF-8, so it is not a WakuMessage."""
    NOT_FOR_US = "not-for-us"
    """No key decrypts it, or only the key of another channel does, or the key of its channel does not."""
    NOT_SDS = "not-sds"
    """It is not an SDS message of the profile's wire."""
    NO_ID = "no-id"
    """An SDS message without a message id or a channel id: most likely some other protobuf message."""
    LAMPORT_RANGE = "lamport-range"
    """Its Lamport timestamp does not fit in 63 bits."""
    BAD_SEGMENT = "bad-segment"
    """Its content breaks a rule of the segment format."""
    WRONG_TOPIC = "wrong-topic"
    """Its channel belongs to another content topic."""


_OK: Final = Status.OK.value
_DAMAGES: Final = {
    Status.HASH_MISMATCH: "its message hash is that of other contents: the archive has it damaged",
    Status.BAD_TOPIC: "one of its topics is not UTF-8",
}
REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
"""Replaces invalid bytes in the text of a topic."""


def check_columns(names: Collection[str]) -> list[str]:
    """Return the columns of a table of messages that show which messages are damaged; empty if it has none.

    After `fairway.pipeline.stages.deduplicated` this is ``damaged``. For other tables the hashes are computed.
    """
    if {"sources", "damaged"} <= set(names):
        return ["sources", "damaged"]
    return ["pubsub_topic", "meta"] if set(HASH_INPUT) <= set(names) else []


def decoding_batches(waku_messages: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in batches of the size at which a row costs least."""
    rows = min(_JOINED_ROWS, _JOINED_BYTES * waku_messages.num_rows // max(1, waku_messages.nbytes))
    yield from joined(waku_messages.to_batches(max_chunksize=max(1, rows)))


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches that follow each other to a size at which a row costs least; large ones stay as they are."""
    held: list[pa.RecordBatch] = []
    for batch in map(narrowed, batches):
        held.append(batch)
        rows, size = sum(one.num_rows for one in held), sum(one.nbytes for one in held)
        if rows >= _JOINED_ROWS or size >= _JOINED_BYTES:
            yield from _one(held)
            held = []
    yield from _one(held)


def _one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    if len(batches) < 2:
        return batches
    together: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return together


class RefusedMessage(Exception):  # noqa: N818 - it never leaves the stages
    """A message with another status than ok."""

    def __init__(self, status: Status, error: object) -> None:
        super().__init__(status.value)
        self.status = status
        self.error = str(error)


class BatchDecoder:
    """Turns payloads into SDS messages, and those into columns."""

    def __init__(
        self,
        profile: Profile | None,
        encryption: Encryption | None,
        keys: ChannelKeys | None,
        *,
        channel_topics: ChannelTopics | None = None,
        few_rows: int = _FEW_ROWS,
        with_filters: bool = False,
    ) -> None:
        """Take the options of the stage. Fewer rows of one wire than ``few_rows`` are decoded one by one.

        ``with_filters`` adds the columns ``bloom_filter`` (most of the bytes of an archive) and ``vouches``.
        """
        self._topics = dict(channel_topics or {})
        self._few_rows = few_rows
        self._with_filters = with_filters
        self._profile = profile
        self._encryption = encryption
        self._keys = keys

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch, as many and in the same order."""
        profiles, decoded = self._decoded(batch)
        return _beside(_carriers(batch, profiles), decoded.columns())

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a batch in a few parts, each row once. Sorting them would copy every column.

        All rows of a part have the status ok, or all were decoded one by one.
        """
        profiles, decoded = self._decoded(batch)
        carriers = _carriers(batch, profiles)
        for rows, columns in decoded.parts():
            yield _beside(carriers if len(rows) == batch.num_rows else carriers.take(pa.array(rows)), columns)

    def ids(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return ``channel_id`` and ``message_id`` of each row of a batch, null if it is not an SDS message.

        It costs a fraction of `batch`. Rows with the status ok have the same ids as in `batch`; some other rows have
        ids, too.
        """
        with _without_collector():
            profiles = self._profile_numbers(batch)
            opened = self._opened_rows(batch)
            found = _Gathering(batch.num_rows)
            for rows, profile, messages in self._of_each_wire(batch, profiles, opened):
                canonical, columns = canonical_ids(messages, profile)
                found.add(rows[canonical], columns)
            rows = found.missing()
            found.add(rows, _ids_one_by_one(_openings(batch, opened, rows), _named(profiles[rows])))
        return found.columns()

    def _decoded(self, batch: pa.RecordBatch) -> tuple[NDArray[np.int8], _Gathering]:
        """Return the profile of each row, and all rows decoded."""
        with _without_collector():
            profiles = self._profile_numbers(batch)
            opened = self._opened_rows(batch)
            damages = _damages(batch)
            decoded = _Gathering(batch.num_rows)
            for rows, profile, messages in self._of_each_wire(batch, profiles, opened):
                self._read_columns(rows, profile, messages, batch.column("content_topic"), damages, opened, decoded)
            rows = decoded.missing()
            topics = batch.column("content_topic").take(rows).to_pylist()
            openings = _openings(batch, opened, rows)
            decoded.add(
                rows, self._row_by_row(openings, _named(profiles[rows]), topics, damages.take(rows).to_pylist())
            )
        return profiles, decoded

    def _of_each_wire(
        self, batch: pa.RecordBatch, profiles: NDArray[np.int8], opened: list[_Opening] | None
    ) -> Iterator[tuple[NDArray[np.intp], Profile, Packed]]:
        """Yield the rows of each wire with their messages, if there are enough to read together."""
        if batch.num_rows < self._few_rows:
            return
        payloads = _bytes_column(batch, "payload")
        messages = packed(payloads) if opened is None else packed_bytes([_plaintext(one) for one in opened])
        if len(messages.data) > _MAX_PACKED_BYTES:
            return
        for number, profile in enumerate(_PROFILES):
            rows = rows_of(profiles == number)
            if len(rows) >= self._few_rows:
                yield rows, profile, messages.only(rows)

    def _profile_numbers(self, batch: pa.RecordBatch) -> NDArray[np.int8]:
        if self._profile is not None:
            return np.full(batch.num_rows, _PROFILES.index(self._profile), np.int8)
        # A null is not in the dictionary of the values; its index follows theirs.
        metas = _bytes_column(batch, "meta").dictionary_encode()
        distinct: list[bytes | None] = [*metas.dictionary.to_pylist(), None]
        numbers = np.array([_PROFILES.index(Profile.of_marker(meta)) for meta in distinct], np.int8)
        found: NDArray[np.int8] = numbers[metas.indices.fill_null(len(distinct) - 1).to_numpy()]
        return found

    def _opened_rows(self, batch: pa.RecordBatch) -> list[_Opening] | None:
        """Return the payloads as the keys open them; None if nothing is encrypted."""
        if self._keys is None and self._encryption is None:
            return None
        payloads: list[bytes | None] = batch.column("payload").to_pylist()
        topics: list[str | None] = batch.column("content_topic").to_pylist()
        return [self._open(payload or b"", topic) for payload, topic in zip(payloads, topics, strict=True)]

    def _read_columns(
        self,
        rows: NDArray[np.intp],
        profile: Profile,
        messages: Packed,
        content_topics: pa.Array,
        damages: pa.Array,
        opened: list[_Opening] | None,
        decoded: _Gathering,
    ) -> None:
        """Read the canonical messages among some rows of one wire at once."""
        canonical, columns = canonical_columns(messages, profile, with_filters=self._with_filters)
        rows = rows[canonical]
        columns["status"] = pa.repeat(pa.scalar(_OK), len(rows))
        columns["error"] = pa.nulls(len(rows), pa.string())
        accepted = self._on_their_topics(columns["channel_id"], content_topics.take(pa.array(rows)))
        accepted &= self._opened_by_their_keys(rows, columns["channel_id"], opened)
        accepted &= damages.take(pa.array(rows)).is_null().to_numpy(zero_copy_only=False)
        decoded.add(rows, columns, accepted)

    def _on_their_topics(self, channel_ids: pa.Array, content_topics: pa.Array) -> NDArray[np.bool_]:
        """Return which messages are on the content topic of their channel; true for a channel without a known topic."""
        if not self._topics:
            return np.ones(len(channel_ids), np.bool_)
        known = pc.index_in(channel_ids, value_set=pa.array(self._topics, pa.string()))
        expected = pa.array(self._topics.values(), pa.string()).take(known)
        accepted: NDArray[np.bool_] = pc.if_else(
            expected.is_null(), pa.scalar(value=True), pc.equal(expected, content_topics).fill_null(fill_value=False)
        ).to_numpy(zero_copy_only=False)
        return accepted

    def _opened_by_their_keys(
        self, rows: NDArray[np.intp], channel_ids: pa.Array, opened: list[_Opening] | None
    ) -> NDArray[np.bool_]:
        """Return which messages their channels accept under the key that opened them."""
        accepted = np.ones(len(rows), np.bool_)
        if self._keys is None or opened is None:
            return accepted
        for place, (row, channel_id) in enumerate(zip(rows.tolist(), channel_ids.to_pylist(), strict=True)):
            opening = opened[row]
            accepted[place] = isinstance(opening, Opened) and self._keys.refusal(opening, channel_id) is None
        return accepted

    def _row_by_row(
        self,
        opened: Sequence[_Opening],
        profiles: Sequence[Profile],
        content_topics: Sequence[str | None],
        damages: Sequence[str | None],
    ) -> dict[str, pa.Array]:
        statuses: list[str] = []
        errors: list[str | None] = []
        messages: list[SdsMessage | None] = []
        segments: list[Segment | None] = []
        for opening, profile, content_topic, damage in zip(opened, profiles, content_topics, damages, strict=True):
            message: SdsMessage | None = None
            segment: Segment | None = None
            status, error = _OK, None
            try:
                _refuse_damaged(damage)
                message = self._message(opening, profile, content_topic)
                segment = self._segment(message, profile.segments)
            except RefusedMessage as refusal:
                message, status, error = None, refusal.status.value, refusal.error
            statuses.append(status)
            errors.append(error)
            messages.append(message)
            segments.append(segment)
        return {
            **message_columns(messages, with_filters=self._with_filters),
            **segment_columns(segments),
            "status": pa.array(statuses, pa.string()),
            "error": pa.array(errors, pa.string()),
        }

    def _message(self, opening: _Opening, profile: Profile, content_topic: str | None) -> SdsMessage:
        # LIP-173, "Incoming message processing": decrypt, then SDS, then reassemble.
        if isinstance(opening, DecryptionError):
            raise RefusedMessage(Status.NOT_FOR_US, opening) from opening
        try:
            message = profile.codec.decode(opening.plaintext)
        except DecodeError as error:
            if opening.in_clear:
                detail = f"no key opens it, and in clear it is none: {error}"
                raise RefusedMessage(Status.NOT_FOR_US, detail) from error
            raise RefusedMessage(Status.NOT_SDS, error) from error
        if not (message.message_id and message.channel_id):
            raise RefusedMessage(Status.NO_ID, "an SDS message without message id or channel id")
        refusal = None if self._keys is None else self._keys.refusal(opening, message.channel_id)
        if refusal is not None:
            raise RefusedMessage(Status.NOT_FOR_US, refusal)
        refusal = topic_refusal(self._topics, message.channel_id, content_topic)
        if refusal is not None:
            raise RefusedMessage(Status.WRONG_TOPIC, refusal)
        if (message.lamport_timestamp or 0) > _MAX_LAMPORT:
            raise RefusedMessage(Status.LAMPORT_RANGE, f"Lamport timestamp {message.lamport_timestamp}")
        return message

    def _open(self, payload: bytes, content_topic: str | None) -> _Opening:
        """Return a payload opened, or the error for one that no key opens."""
        try:
            if self._keys is not None:
                return self._keys.open(content_topic, payload)
            return Opened(payload if self._encryption is None else decrypt_at_once(self._encryption, payload))
        except DecryptionError as error:
            return error

    def _segment(self, message: SdsMessage, segment_format: SegmentFormat) -> Segment | None:
        """Return the segment that a message carries, or None for a whole message."""
        # SEGMENTATION, "Sending": content that fits one segment is transmitted unmodified.
        if not message.content or not segment_format.is_segment(message.content):
            return None
        try:
            return segment_format.decode(message.content)
        except SegmentError as error:
            raise RefusedMessage(Status.BAD_SEGMENT, error) from error


class _Gathering:
    """The columns of a batch whose rows are decoded in several parts."""

    def __init__(self, rows: int) -> None:
        self._parts: list[tuple[NDArray[np.intp], dict[str, pa.Array]]] = []
        self._size = 0
        self._places = np.full(rows, _NOWHERE, np.int64)
        """Index of each row in the concatenated parts."""

    def add(self, rows: NDArray[np.intp], columns: dict[str, pa.Array], valid: NDArray[np.bool_] | None = None) -> None:
        """Add the columns of some rows; those that are not valid are still missing."""
        if valid is not None and not valid.all():
            rows = rows[valid]
            columns = {name: column.filter(pa.array(valid)) for name, column in columns.items()}
        if not len(rows) and len(self._places):
            return
        self._places[rows] = self._size + np.arange(len(rows))
        self._parts.append((rows, columns))
        self._size += len(rows)

    def missing(self) -> NDArray[np.intp]:
        """Return the rows that no part has."""
        return rows_of(self._places == _NOWHERE)

    def parts(self) -> list[tuple[NDArray[np.intp], dict[str, pa.Array]]]:
        """Return the rows of each part with their columns; every row must have been added."""
        return self._parts

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns in the order of the batch; every row must have been added."""
        columns = [part for _, part in self._parts]
        if len(columns) == 1:
            return columns[0]
        order = pa.array(self._places)
        return {name: pa.concat_arrays([part[name] for part in columns]).take(order) for name in columns[0]}


def _refuse_damaged(status: str | None) -> None:
    if status is not None:
        raise RefusedMessage(Status(status), _DAMAGES[Status(status)])


def _damages(batch: pa.RecordBatch) -> pa.Array:
    """Return for each row the status that its damage gives it; null if it is intact or cannot be checked."""
    checked = check_columns(batch.schema.names)
    if "damaged" in checked:
        mask = is_damaged(batch)
    elif checked:
        mask = fits_of(batch) == Fit.DAMAGED
    else:
        mask = np.zeros(batch.num_rows, np.bool_)
    if not mask.any():
        return pa.nulls(batch.num_rows, pa.string())
    has_topics = ~np.logical_or.reduce(
        [
            pc.fill_null(pc.match_substring(batch[name], REPLACED), fill_value=False).to_numpy(zero_copy_only=False)
            for name in ("content_topic", "pubsub_topic")
            if name in batch.schema.names
        ]
    )
    statuses = np.where(has_topics, Status.HASH_MISMATCH.value, Status.BAD_TOPIC.value)
    return pa.array(statuses, pa.string(), mask=~mask)


def _openings(batch: pa.RecordBatch, opened: list[_Opening] | None, rows: NDArray[np.intp]) -> list[_Opening]:
    """Return the payloads of some rows, as the keys open them."""
    if opened is not None:
        return [opened[row] for row in rows.tolist()]
    return [Opened(payload or b"") for payload in _bytes_column(batch, "payload").take(rows).to_pylist()]


def _ids_one_by_one(openings: Sequence[_Opening], profiles: Sequence[Profile]) -> dict[str, pa.Array]:
    channel_ids: list[str | None] = [None] * len(openings)
    message_ids: list[str | None] = [None] * len(openings)
    for place, (opening, profile) in enumerate(zip(openings, profiles, strict=True)):
        if isinstance(opening, Opened):
            with suppress(DecodeError):
                message = profile.codec.decode(opening.plaintext)
                if message.message_id and message.channel_id:
                    channel_ids[place], message_ids[place] = message.channel_id, message.message_id
    return {"channel_id": pa.array(channel_ids, pa.string()), "message_id": pa.array(message_ids, pa.string())}


def _carriers(batch: pa.RecordBatch, profiles: NDArray[np.int8]) -> pa.RecordBatch:
    """Return the columns of the WakuMessages that the result keeps beside the decoded columns."""
    columns = {name: batch.column(name) for name in ("message_hash", "timestamp_ns")}
    has_topic = "pubsub_topic" in batch.schema.names
    columns["pubsub_topic"] = batch.column("pubsub_topic") if has_topic else pa.nulls(batch.num_rows, pa.string())
    columns["content_topic"] = batch.column("content_topic")
    if "sources" in batch.schema.names:
        columns["sources"] = batch.column("sources")
    if "damaged" in batch.schema.names:
        columns["sources"] = holders(batch)
    columns |= proof_columns(batch)
    columns["payload_bytes"] = pc.binary_length(_bytes_column(batch, "payload")).fill_null(0).cast(pa.int32())
    columns["profile"] = pa.DictionaryArray.from_arrays(profiles, _PROFILE_NAMES).dictionary_decode()
    return pa.RecordBatch.from_pydict(columns)


def _beside(carriers: pa.RecordBatch, decoded: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return the columns of the stage, in its order."""
    columns = dict(zip(carriers.schema.names, carriers.columns, strict=True))
    profile = columns.pop("profile")
    columns |= {name: decoded[name] for name in ("status", "error")} | {"profile": profile}
    return pa.RecordBatch.from_pydict(columns | {name: found for name, found in decoded.items() if name not in columns})


def _bytes_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column of bytes as a type with offsets."""
    column = batch.column(name)
    with_offsets = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    return column if with_offsets else column.cast(pa.large_binary())


def _named(numbers: NDArray[np.int8]) -> list[Profile]:
    return [_PROFILES[number] for number in numbers.tolist()]


def _plaintext(opening: _Opening) -> bytes:
    """Return the plaintext of a payload: empty if no key opens it."""
    return b"" if isinstance(opening, DecryptionError) else opening.plaintext


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the garbage collector for a batch: it takes 10 % of the time, and a batch makes no cycles of objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
