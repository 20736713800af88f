"""From ``unique_messages`` to ``missing_messages``: messages that are cited and not in the archive.

The result is exact: values are compared, and no hashes. The work is spread by (channel, id), so that a busy channel is
not the work of one task.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.pipeline.codes import NOTHING, Codes, ranked, starts_of_runs
from fairway.pipeline.exchange import Bucket, Cut, bucketed
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.stages.citations import CITED, CITING_COLUMNS, citations_in
from fairway.pipeline.stages.keyed import KEY, Keyed, keyed
from fairway.pipeline.stages.reassembled import COMPUTED_INPUT, computed_segments_in

MISSING_MESSAGES: Final = (
    "channel_id string, message_id string, sender_id string, retrieval_hint binary, cited_by bigint,"
    " first_cited bigint, last_cited bigint, first_cited_by string, last_cited_by string"
)
"""The table of missing messages. ``sender_id`` is the author and ``retrieval_hint`` the hint, if a citation names them.
``cited_by`` is the number of messages that cite it; ``first_cited`` and ``last_cited`` are timestamps (nanoseconds),
and ``first_cited_by`` and ``last_cited_by`` the senders, who had the message. A row does not list all senders, because
any number may cite it."""

MESSAGE_KEYS: Final = pa.schema([(name, pa.string()) for name in KEY])
"""Messages of which nothing else is needed."""
_SCHEMA: Final = arrow_schema(MISSING_MESSAGES)


def missing_messages(unique_messages: DataFrame) -> DataFrame:
    """Return ``missing_messages`` (`MISSING_MESSAGES`), one row for each message that is cited and not there."""

    def prepare(messages: pa.Table) -> dict[str, pa.Table]:
        content = messages.filter(pc.equal(messages.column("kind"), "content"))
        return {"content": content.select(MESSAGE_KEYS.names), "cited": citations_in(messages).select(CITED.names)}

    def work(bucket: Bucket) -> Iterator[pa.Table]:
        yield missing_rows(*keyed(bucket.table("content", MESSAGE_KEYS), bucket.table("cited", CITED)))

    return bucketed(
        [Cut(frame=unique_messages.select(*CITING_COLUMNS), by=KEY, prepare=prepare)], work, MISSING_MESSAGES
    )


def without_rebuilt(missing_messages: DataFrame, reassembled: DataFrame) -> DataFrame:
    """Return the missing messages without the lost segments that Reed-Solomon computed."""

    def work(bucket: Bucket) -> Iterator[pa.Table]:
        missing, rebuilt = keyed(bucket.table("missing", _SCHEMA), bucket.table("rebuilt", MESSAGE_KEYS))
        yield missing.table.filter(pa.array(rebuilt.rows()[missing.keys] == NOTHING))

    return bucketed(
        [
            Cut(frame=missing_messages, by=KEY, prepare=lambda table: {"missing": table}),
            Cut(
                frame=reassembled.select(*COMPUTED_INPUT),
                by=KEY,
                prepare=lambda table: {"rebuilt": rebuilt_in(computed_segments_in(table))},
            ),
        ],
        work,
        MISSING_MESSAGES,
    )


def rebuilt_in(computed_segments: pa.Table) -> pa.Table:
    """Return the lost segments that were computed from parity (`MESSAGE_KEYS`) and of which the ids are known."""
    known = computed_segments.filter(pc.invert(computed_segments.column("is_guess")))
    return known.select(MESSAGE_KEYS.names).cast(MESSAGE_KEYS)


def missing_rows(content: Keyed, cited: Keyed, *others: Keyed) -> pa.Table:
    """Return ``missing_messages`` of the citations (`CITED`) of some messages.

    What is among ``content`` or ``others`` is not missing. All rows about one message must be there.
    """
    is_there = np.zeros(cited.count, np.bool_)
    for known in (content, *others):
        is_there[known.keys] = True
    lost = np.flatnonzero(~is_there[cited.keys])
    rows = cited.table.take(pa.array(lost))
    keys, cited_at = cited.keys[lost], rows.column("cited_at").to_numpy()
    (citing,), names = ranked(rows.column("citing_sender_id"))
    order = np.lexsort((citing, cited_at, keys))
    first = starts_of_runs(keys[order])
    counts = np.diff(first, append=len(order))
    earliest, latest = order[first], order[first + counts - 1]
    columns = {
        "channel_id": rows.column("channel_id").take(pa.array(earliest)),
        "message_id": rows.column("message_id").take(pa.array(earliest)),
        "sender_id": _greatest(rows.column("sender_id"), order, first),
        "retrieval_hint": _greatest(rows.column("retrieval_hint"), order, first),
        "cited_by": counts,
        "first_cited": cited_at[earliest],
        "last_cited": cited_at[latest],
        "first_cited_by": names.take(pa.array(citing[earliest])),
        "last_cited_by": names.take(pa.array(citing[latest])),
    }
    return pa.table(columns, schema=_SCHEMA)


def _greatest(column: pa.ChunkedArray, order: Codes, first: Codes) -> pa.Array:
    """Return the greatest value of each group; ``first`` tells where the groups start when rows are in ``order``."""
    if not len(first):
        return pa.array([], column.type)
    (ranks,), values = ranked(column)
    greatest = np.maximum.reduceat(ranks[order], first)
    return values.take(pa.array(greatest, mask=greatest == NOTHING))
