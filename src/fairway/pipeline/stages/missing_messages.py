"""From ``sds_messages`` to ``missing_messages``: cited messages that are not in the archive.

The result is exact: values are compared, not hashes. The work is spread by (channel, id), so that a busy channel is
spread over several tasks.
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
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.citations import CITED, CITING_COLUMNS, citations_in
from fairway.pipeline.stages.keyed import KEY, Keyed, keyed
from fairway.pipeline.stages.reassembled import COMPUTED_INPUT, computed_segments_in

MISSING_MESSAGES: Final = (
    "channel_id string, message_id string, sender_id string, retrieval_hint binary, cited_by bigint,"
    " first_cited timestamp, first_cited_ns bigint, last_cited timestamp, last_cited_ns bigint,"
    " first_cited_by string, last_cited_by string"
)
"""The table of missing messages. ``sender_id`` is the author and ``retrieval_hint`` the hint, if a citation names them.
``cited_by`` is the number of messages that cite it; ``first_cited`` and ``last_cited`` are timestamps (nanoseconds),
and ``first_cited_by`` and ``last_cited_by`` their senders, who had the message. A row does not list all senders,
because their number is unbounded."""

MESSAGE_KEYS: Final = pa.schema([(name, pa.string()) for name in KEY])
"""The key columns of a message."""
_SCHEMA: Final = exact_schema(MISSING_MESSAGES)


def missing_messages(sds_messages: DataFrame, reassembled: DataFrame | None = None) -> DataFrame:
    """Return ``missing_messages`` (`MISSING_MESSAGES`), one row for each cited message not in the archive.

    With ``reassembled``, segments that were computed from parity are not missing, as in the table of a run.
    """

    def prepare(messages: pa.Table) -> dict[str, pa.Table]:
        content = messages.filter(pc.equal(messages.column("kind"), "content"))
        return {"content": content.select(MESSAGE_KEYS.names), "cited": citations_in(messages).select(CITED.names)}

    def work(bucket: Bucket) -> Iterator[pa.Table]:
        tables = (("content", MESSAGE_KEYS), ("cited", CITED), ("rebuilt", MESSAGE_KEYS))
        yield missing_rows(*keyed(*(bucket.table(kind, schema) for kind, schema in tables)))

    cuts = [Cut(frame=sds_messages.select(*CITING_COLUMNS), by=KEY, prepare=prepare)]
    if reassembled is not None:
        frame = reassembled.select(*COMPUTED_INPUT)
        cuts.append(
            Cut(frame=frame, by=KEY, prepare=lambda table: {"rebuilt": rebuilt_in(computed_segments_in(table))})
        )
    return bucketed(cuts, work, MISSING_MESSAGES)


def rebuilt_in(computed_segments: pa.Table) -> pa.Table:
    """Return the lost segments that were computed from parity and have known ids (`MESSAGE_KEYS`)."""
    known = computed_segments.filter(pc.invert(computed_segments.column("is_guess")))
    return known.select(MESSAGE_KEYS.names).cast(MESSAGE_KEYS)


def missing_rows(content: Keyed, cited: Keyed, *others: Keyed) -> pa.Table:
    """Return ``missing_messages`` of the citations (`CITED`) of some messages.

    Messages in ``content`` or ``others`` are not missing. The tables must have all rows about each message.
    """
    is_there = np.zeros(cited.count, np.bool_)
    for known in (content, *others):
        is_there[known.keys] = True
    lost = np.flatnonzero(~is_there[cited.keys])
    rows = cited.table.take(pa.array(lost))
    keys, cited_at = cited.keys[lost], rows.column("cited_at_ns").to_numpy()
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
        "first_cited_ns": cited_at[earliest],
        "last_cited_ns": cited_at[latest],
        "first_cited_by": names.take(pa.array(citing[earliest])),
        "last_cited_by": names.take(pa.array(citing[latest])),
    }
    return pa.table(columns, schema=_SCHEMA)


def _greatest(column: pa.ChunkedArray, order: Codes, first: Codes) -> pa.Array:
    """Return the greatest value of each group; ``first`` has the start of each group in ``order``."""
    if not len(first):
        return pa.array([], column.type)
    (ranks,), values = ranked(column)
    greatest = np.maximum.reduceat(ranks[order], first)
    return values.take(pa.array(greatest, mask=greatest == NOTHING))
