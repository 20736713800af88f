"""The first job of a run: ``waku_messages``, ``sds_messages``, ``repeats`` and ``quarantine``, from the sources.

::

    tasks that read sources -> by message hash: waku_messages, and undecodable messages into quarantine
                            -> by (channel_id, message_id): sds_messages, repeats, and forged messages into quarantine

If no hash occurs twice, the tasks that read the sources also do the work of the second step. If the repeated messages
are known and few (`fairway.pipeline.run.copies`), the same tasks decode the first copy of each. All copies go by hash
to the last tasks, which write them as one message. The repeated SDS messages are then known, too. The other SDS
messages are written by the tasks that decode them, so that few payloads are moved. A bucket of any size is processed in
pieces, so that one message repeated a million times takes no more memory.

Whole messages and segments of ``sds_messages`` are in different files, because later jobs read the contents of only one
kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import count
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from fairway.errors import PipelineError
from fairway.options import Profile
from fairway.pipeline.bucket_keys import BucketKeys, Buckets, Hashes, found_in
from fairway.pipeline.channel_topics import ChannelTopics
from fairway.pipeline.exchange import (
    BLOBS,
    PIECE_BYTES,
    SPILL_BYTES,
    Batches,
    BatchMapper,
    Cutter,
    exchanged,
    filtered,
    gathered,
    in_parts,
    in_tasks,
    note,
    shared_out,
    task_number,
)
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.ranges import SAMPLE_INPUT, sample_of
from fairway.pipeline.run.copies import Repeated, RepeatedInPart, disagree
from fairway.pipeline.run.reading import in_tables
from fairway.pipeline.run.topics import claims_in, several_topics, sum_of
from fairway.pipeline.schema import columns_of, exact_ddl
from fairway.pipeline.sources.waku_messages import MessageScan, Selection
from fairway.pipeline.stages.decoding import BatchDecoder, Status, decoding_batches
from fairway.pipeline.stages.deduplicated import as_one_copy, each_once, with_channels
from fairway.pipeline.stages.quarantine import FORGED_INPUT, QUARANTINE, forged
from fairway.pipeline.stages.sds_messages import DECODED_INPUT, copies_of, first_copies, further_copies
from fairway.pipeline.tables.files import TableFiles

WRITTEN: Final = ("waku_messages", "sds_messages", "contents", "repeats", "quarantine")
"""The tables that the job writes."""

_QUARANTINE: Final = columns_of(exact_ddl(QUARANTINE))
_CARRIED: Final = (*DECODED_INPUT, "sources")
"""The columns of the second exchange; ``sources`` is for forged messages."""

_WHOLE: Final = "whole"
_SEGMENTS: Final = "segments"
"""The kinds of blobs of SDS messages."""
_COPIES: Final = "copies"
"""The kind of blobs of repeated messages, with the columns of ``waku_messages``."""
_CLAIMS: Final = "claims"
"""The kind of blobs of `CLAIMS`."""
_CHANNEL: Final = ("message_hash", "channel_id")
_NO_CHANNELS: Final = pa.schema([("message_hash", pa.binary()), ("channel_id", pa.string())]).empty_table()

Numbered = tuple[pa.Table, int | None]
"""Messages, each once, and the number of their file of ``waku_messages``; None if they are not written."""

Source = Callable[[BatchMapper, str], DataFrame]
"""Function that maps the batches of ``waku_messages`` of a source in the tasks that read them, and returns the rows
with the given schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingesting:
    """The inputs of the tasks of the job."""

    files: TableFiles
    keys: BucketKeys
    buckets: int
    profile: Profile | None
    channel_keys: ChannelKeys | None
    channels: tuple[str, ...] = ()
    """The wanted channels; empty: all."""
    channel_topics: ChannelTopics = field(default_factory=dict)
    """Content topics of channels; a message of one of them on another topic goes to the quarantine."""
    counts_topics: bool = True
    """Whether notes count the channels with messages on several content topics (`CountedTopics`)."""
    spill_bytes: int = SPILL_BYTES
    """Largest bucket in memory; a larger one is in a file."""
    piece_bytes: int = PIECE_BYTES
    """Bytes of a bucket that are processed at once."""

    def frame(self, sources: Sequence[Source], *, unique: bool) -> DataFrame:
        """Return the notes of the job as rows of `BLOBS`. With ``unique`` no hash occurs twice."""
        work = self.decode_alone if unique else self.cut_by_hash
        found = reduce(DataFrame.unionAll, [source(work, BLOBS) for source in sources])
        if not unique:
            found = in_tasks(exchanged(found, self.buckets), self.decode_bucket, BLOBS)
        return in_tasks(exchanged(found, self.buckets), self.sight, BLOBS)

    def frame_with_copies(
        self, spark: SparkSession, scan: MessageScan, parts: Sequence[Any], repeated: Repeated
    ) -> DataFrame:
        """Return the notes of the job over the parts of one source, in which exactly these messages are repeated.

        If a note has ``disagree``, copies differ, and the tables must be rebuilt without knowledge of repeated
        messages.
        """
        found = in_parts(spark, parts, lambda part: self.decode_first(repeated, scan.read(part)), BLOBS)
        return in_tasks(exchanged(found, self.buckets), self.sight, BLOBS)

    def frame_again(self, spark: SparkSession, names: Sequence[str], tasks: int) -> DataFrame:
        """Return the notes of rebuilding the other tables from files of ``waku_messages``."""
        places = list(enumerate(names))
        found = shared_out(spark, places, tasks, self._decode_files)
        return in_tasks(exchanged(found, self.buckets), self.sight, BLOBS)

    def _decode_files(self, places: Sequence[tuple[int, str]]) -> Batches:
        for number, name in places:
            yield from self._cut_decoded(number, ((table, None) for table in self.files.read("waku_messages", [name])))

    def cut_by_hash(self, batches: Batches) -> Batches:
        """Cut messages from sources (``waku_messages``) by their hash, into blobs of the kind ``waku``."""
        cutter = Cutter("waku", self.buckets)
        for batch in batches:
            table = pa.Table.from_batches([batch])
            yield from cutter.add(table, self.keys.by_columns([table["message_hash"]], self.buckets))
        yield from cutter.close()

    def decode_bucket(self, batches: Batches) -> Batches:
        """Write the messages of a bucket, each once; yield SDS messages as blobs, segments separately."""
        bucket = gathered(batches, spill_bytes=self.spill_bytes)
        if bucket.tables:
            messages = each_once(bucket.tables["waku"], piece_bytes=self.piece_bytes)
            yield from self._cut_decoded(bucket.number, self._wanted(messages))

    def decode_alone(self, batches: Batches) -> Batches:
        """Do the same with messages from a source without repeated messages."""
        yield from self._cut_decoded(task_number(), self._wanted(map(as_one_copy, in_tables(batches))))

    def decode_first(self, repeated: Repeated, batches: Batches) -> Batches:
        """Do the same with messages of which some are repeated: of these, only the first copy is decoded.

        Repeated messages are not written, but yielded as blobs of the kind ``copies``.
        """
        number = task_number()
        cutter = Cutter(_COPIES, self.buckets)
        copies: list[tuple[pa.Table, Buckets]] = []
        first = self._first(in_tables(batches), RepeatedInPart(repeated, number), copies)
        for row in self._cut_decoded(number, first, several=repeated.keys):
            yield row
            while copies:
                yield from cutter.add(*copies.pop())
        yield from cutter.close()

    def _first(
        self, tables: Iterator[pa.Table], repeated: RepeatedInPart, copies: list[tuple[pa.Table, Buckets]]
    ) -> Iterator[Numbered]:
        """Yield each message once; add all copies of repeated messages with their buckets."""
        firsts: list[pa.Table] = []
        for part, table in enumerate(tables):
            heads = self.keys.heads(table["message_hash"].combine_chunks())
            if heads is None:
                raise PipelineError("a source has other rows than when its hashes were read: run again")
            is_repeated, is_first = repeated.split(heads)
            if is_repeated.any():
                copies.append((filtered(table, is_repeated), self.keys.by_number(heads[is_repeated], self.buckets)))
            messages = as_one_copy(table)
            alone = filtered(messages, ~is_repeated)
            if alone.num_rows:
                yield alone, part
            firsts.append(messages.filter(pa.array(is_repeated & is_first)))
        if firsts:
            yield pa.concat_tables(firsts), None

    def _wanted(self, tables: Iterator[pa.Table]) -> Iterator[Numbered]:
        """Yield the wanted messages."""
        decoder = self.decoder()
        for part, found in enumerate(tables):
            table = of_channels(found, self.channels, decoder)
            if table.num_rows or not found.num_rows:
                yield table, part

    def decoder(self) -> BatchDecoder:
        """Return the decoder of the messages."""
        return BatchDecoder(self.profile, None, self.channel_keys, channel_topics=self.channel_topics)

    def _cut_decoded(self, number: int, tables: Iterator[Numbered], *, several: Hashes | None = None) -> Batches:
        """Write messages, each once, and the quarantine; yield the SDS messages as blobs.

        If ``several`` has the keys of repeated SDS messages, the others are written, too.
        """
        decoder = self.decoder()
        cutter = Cutter(_WHOLE, self.buckets, _SEGMENTS)
        alone = _Alone(self, number)
        refused: list[pa.Table] = []
        claims: list[pa.Table] = []
        notes: list[pa.RecordBatch] = []
        for table, part in tables:
            carried: list[pa.Table] = []
            for batch in decoding_batches(table):
                for rows in decoder.parts(batch):
                    decoded = pa.Table.from_batches([rows])
                    is_ok = pc.equal(decoded["status"], Status.OK.value)
                    if not pc.all(is_ok).as_py():
                        refused.append(decoded.filter(pc.invert(is_ok)).select(_QUARANTINE))
                        decoded = decoded.filter(is_ok)
                    decoded = decoded.select(_CARRIED)
                    carried.append(decoded.select(_CHANNEL))
                    if self.counts_topics:
                        claims.append(claims_in(decoded))
                    keys = self.keys.hashes([decoded["channel_id"], decoded["message_id"]])
                    is_segment = decoded["segment_hash"].is_valid().to_numpy()
                    if several is not None:
                        is_moved, _ = found_in(several, keys)
                        yield from alone.add(_WHOLE, filtered(decoded, ~is_moved & ~is_segment))
                        yield from alone.add(_SEGMENTS, filtered(decoded, ~is_moved & is_segment))
                        decoded = filtered(decoded, is_moved)
                        keys, is_segment = keys[is_moved], is_segment[is_moved]
                    yield from cutter.add(decoded, self.keys.by_number(keys, self.buckets), is_segment)
            if part is not None:
                messages = with_channels(table, pa.concat_tables([_NO_CHANNELS, *carried]))
                notes.append(self.files.write("waku_messages", number, messages, part))
        yield from cutter.close()
        yield from alone.close()
        yield from self._cut_claims(sum_of(claims))
        if refused:
            yield self.files.write("quarantine", number, pa.concat_tables(refused))
        yield from notes

    def _cut_claims(self, claims: pa.Table) -> Batches:
        cutter = Cutter(_CLAIMS, self.buckets)
        yield from cutter.add(claims, self.keys.by_columns([claims["channel_id"]], self.buckets))
        yield from cutter.close()

    def sight(self, batches: Batches) -> Batches:
        """Write the SDS messages of a bucket, their repeats, and forged messages."""
        bucket = gathered(batches, spill_bytes=self.spill_bytes)
        yield from bucket.notes
        if not bucket.tables:
            return
        if _COPIES in bucket.tables:
            yield from self._write_copies(bucket.number, bucket.tables[_COPIES])
        if _CLAIMS in bucket.tables:
            yield note(topics=several_topics(sum_of([bucket.tables[_CLAIMS]])).as_json())
        tables = [bucket.tables[kind] for kind in (_WHOLE, _SEGMENTS) if kind in bucket.tables]
        if not tables:
            return
        decoded = pa.concat_tables(tables)
        copies = copies_of(decoded, piece_bytes=self.piece_bytes)
        if not copies.is_honest.all():
            left_out = decoded.select(FORGED_INPUT).filter(pa.array(~copies.is_honest))
            yield self.files.write("quarantine", bucket.number, forged(left_out))
        if copies.is_honest.sum() > copies.is_first.sum():
            yield self.files.write("repeats", bucket.number, further_copies(decoded, copies))
        part = done = 0
        for table in tables:
            own = copies.is_first[done : done + table.num_rows]
            done += table.num_rows
            for piece in first_copies(table, own, piece_bytes=self.piece_bytes):
                if piece.num_rows:
                    yield from self.files.write_messages(bucket.number, piece, part)
                    part += 1
        yield note(sample=sample_of(decoded.select(SAMPLE_INPUT).filter(pa.array(copies.is_first))))

    def _write_copies(self, number: int, copies: pa.Table) -> Batches:
        if disagree(copies):
            yield note(disagree=True)
            return
        decoder = self.decoder()
        for part, table in enumerate(each_once(copies, piece_bytes=self.piece_bytes)):
            messages = with_channels(table, pa.Table.from_batches(map(decoder.batch, decoding_batches(table))))
            yield self.files.write("waku_messages", number, messages, part)


class _Alone:
    """SDS messages without repeats: the task that decoded them writes them in files of about `PIECE_BYTES`."""

    def __init__(self, job: Ingesting, number: int) -> None:
        self._job = job
        self._number = number
        self._parts = count()
        self._held: dict[str, list[pa.Table]] = {_WHOLE: [], _SEGMENTS: []}

    def add(self, kind: str, decoded: pa.Table) -> Batches:
        """Add messages, and yield the notes of the files written of their kind."""
        if decoded.num_rows:
            self._held[kind].append(decoded)
        if sum(table.nbytes for table in self._held[kind]) >= self._job.piece_bytes:
            yield from self._write(kind)

    def close(self) -> Batches:
        """Write the remaining messages."""
        for kind in self._held:
            yield from self._write(kind)

    def _write(self, kind: str) -> Batches:
        held, self._held[kind] = self._held[kind], []
        if held:
            messages = pa.concat_tables(held)
            yield from self._job.files.write_messages(self._number, messages, next(self._parts))
            yield note(sample=sample_of(messages.select(SAMPLE_INPUT)))


def of_channels(messages: pa.Table, channels: Sequence[str], decoder: BatchDecoder) -> pa.Table:
    """Return the messages of some channels, and undecodable messages that claim them; without ``channels`` all."""
    if not channels or not messages.num_rows:
        return messages
    selection, names = Selection(channels=tuple(channels)), pa.array(channels, pa.string())
    masks = []
    for batch in decoding_batches(messages):
        decoded = decoder.batch(batch)
        is_ok = pc.equal(decoded["status"], Status.OK.value)
        claims = pa.array(map(selection.may_carry, batch["payload"].to_pylist()), pa.bool_())
        masks.append(pc.if_else(is_ok, pc.is_in(decoded["channel_id"], value_set=names), claims))
    return messages.filter(pa.chunked_array(masks, pa.bool_()))


def at_sources(selection: Selection, keys: ChannelKeys | None) -> Selection:
    """Return the part of a selection that sources can apply: they cannot read the channel of an encrypted message."""
    return selection if keys is None else replace(selection, channels=())
