"""Generates archives of any size on Spark, and the facts about them.

`generate` returns the table ``waku_messages`` of a `GeneratorPlan`: channels of very different sizes, one wire or both,
losses, retransmissions, repeated rows, several stores, segments with parity, undecodable messages. `truth` returns the
facts that a pipeline must find in it. The executors make both, block by block, with the codecs of live channels. No
rows are collected, and the same plan makes the same tables on every machine.

Messages are not encrypted, and bloom filters are empty, so they acknowledge no messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from fairway.pipeline.exchange import BatchMapper, in_tasks
from fairway.pipeline.instants import batches_with_instants
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, WAKU_MESSAGES
from fairway.testing.archives.block import GeneratedRow, MadeBlock, make_block
from fairway.testing.archives.plan import GeneratorPlan, layout_of

FACTS: Final = (
    "fact string, channel_id string, message_id string, sender_id string, lamport bigint, timestamp timestamp,"
    " timestamp_ns bigint, message_hash binary, status string, kind string, payload_bytes int, sources array<string>,"
    " rows int, is_retransmission boolean, segment_hash binary, segments int, held int, is_recovered boolean,"
    " size_bytes bigint, retrieval_hint binary, cited_by bigint, first_cited timestamp, first_cited_ns bigint,"
    " last_cited timestamp, last_cited_ns bigint, is_rebuilt boolean, acknowledged_by string,"
    " content_bytes int, history_bytes int, bloom_bytes int"
)
"""The table of facts. Which columns a row has follows from ``fact``:

- ``carrier``: a WakuMessage that at least one store has: message_hash, timestamp, status (as in ``sds_messages``),
  payload_bytes, sources (which stores), rows (how often it is in ``waku_messages``); unless it is damaged also
  message_id, sender_id, kind, lamport, is_retransmission (whether an earlier copy of the SDS message is there, too),
  content_bytes, history_bytes, bloom_bytes (what these take in it).
- ``delivered``: a logical message that can be read: message_id (SHA-256 of the payload), sender_id, timestamp (of the
  last SDS message that is there), segments, is_recovered, size_bytes.
- ``incomplete``: a segmented message that cannot: segment_hash, held, segments (null if nothing tells).
- ``missing``: an SDS message with content that no store has and that is cited: message_id, sender_id, retrieval_hint,
  cited_by, first_cited, last_cited, is_rebuilt (whether it is a lost segment of a message that can be read, and its id
  follows from that).
- ``unnoticed``: the same, cited by nobody.
- ``acknowledged``: message_id and sender_id of an SDS message, acknowledged_by (another participant that cites it),
  timestamp (of the first citation).
"""

_ROWS_PER_BATCH: Final = 1_000
_MESSAGES_PER_TASK: Final = 25_000
"""Messages of a task of one or two seconds."""

_BLOCKS: Final = "id"
_FACT_SCHEMA: Final = exact_schema(FACTS)


def generate(spark: SparkSession, plan: GeneratorPlan) -> DataFrame:
    """Return ``waku_messages`` (`WAKU_MESSAGES`) of a generated archive, in no particular order.

    It is computed again at each use; write or persist it to use it more than once.
    """
    return in_tasks(task_numbers(spark, plan), rows_mapper(plan, task_count(plan)), WAKU_MESSAGES)


def truth(spark: SparkSession, plan: GeneratorPlan) -> DataFrame:
    """Return the table of facts (`FACTS`) of a generated archive, in no particular order.

    It is computed again at each use, like `generate`.
    """
    return in_tasks(task_numbers(spark, plan), facts_mapper(plan, task_count(plan)), FACTS)


def rows_mapper(plan: GeneratorPlan, stripes: int = 1) -> BatchMapper:
    """Return the function that turns batches of stripe numbers (column ``id``) into batches of ``waku_messages``."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches_with_instants(exact(batches), WAKU_MESSAGES)

    def exact(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for made in _blocks(plan, stripes, batches):
            rows = made.rows()
            while chunk := list(islice(rows, _ROWS_PER_BATCH)):
                columns = dict(zip(GeneratedRow._fields, map(list, zip(*chunk, strict=True)), strict=True))
                yield pa.RecordBatch.from_pydict(columns, schema=ARROW_SCHEMA)

    return make


def facts_mapper(plan: GeneratorPlan, stripes: int = 1) -> BatchMapper:
    """Return the function that turns batches of stripe numbers (column ``id``) into batches of facts."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for made in _blocks(plan, stripes, batches):
            facts = pa.Table.from_pylist(list(made.facts()), schema=_FACT_SCHEMA)
            yield from batches_with_instants(facts.to_batches(), FACTS)

    return make


def _blocks(plan: GeneratorPlan, stripes: int, batches: Iterator[pa.RecordBatch]) -> Iterator[MadeBlock]:
    """Make every block of each stripe; stripe n has each ``stripes``-th block from n on, for equal work."""
    for batch in batches:
        for stripe in batch.column(_BLOCKS).to_pylist():
            for number in range(stripe, layout_of(plan).block_count, stripes):
                yield make_block(plan, number)


def task_count(plan: GeneratorPlan) -> int:
    """Return the number of tasks that make an archive."""
    return max(1, min(layout_of(plan).block_count, -(-plan.messages // _MESSAGES_PER_TASK)))


def task_numbers(spark: SparkSession, plan: GeneratorPlan) -> DataFrame:
    """Return the numbers of the tasks, one in each partition, in the column ``id``."""
    count = task_count(plan)
    return spark.range(0, count, 1, count)
