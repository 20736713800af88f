"""`channel_log`: the log of one channel with gaps or broken clocks, a function over Arrow tables; without Spark.

`sds_ordered` calls it for the channels that SQL cannot order. It reads ids and citations, but no content.
`fairway.pipeline.stages.causal_order` describes the order.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.stages.causal_order import NOTHING, Edges, Numbers, causal_order, latest_ahead

LOG_COLUMNS: Final = (
    "channel_id",
    "message_id",
    "sender_id",
    "lamport",
    "timestamp",
    "message_hash",
    "segment_hash",
)
"""The columns of a message in ``sds_ordered``."""

SDS_ORDERED: Final = (
    "channel_id string, message_id string, sender_id string, lamport bigint, timestamp bigint, message_hash binary,"
    " segment_hash binary, position int, missing_parents bigint, status string, waits_for string"
)
"""The table of ordered messages."""

ABSENT_COLUMNS: Final = ("message_id", "first_cited", "told_by")
"""Of what is cited and not there: it is missing since ``first_cited``; or it is a segment that was computed from
parity, and ``told_by`` is the first one that came of the same message."""

_ARROW_SCHEMA: Final = arrow_schema(SDS_ORDERED)


class DependencyStatus(Enum):
    """The state in which a live participant that received the whole archive would have a message."""

    COMPLETE = "complete"
    """Delivered: all its dependencies, direct or not, are there or were computed from parity."""
    WAITING = "waiting"
    """Parked, until a dependency is given up as lost."""
    CIRCULAR = "circular"
    """Parked: it is in a circle of messages that cite each other, which only a forger makes."""
    NOT_COMPUTED = "not-computed"
    """Unknown: its channel has gaps or broken clocks, and is too large for one worker."""


def channel_log(messages: pa.Table, absent: pa.Table) -> pa.Table:
    """Return the rows of ``sds_ordered`` for all content messages of one channel.

    ``messages`` has `LOG_COLUMNS` and ``parents`` (ids, each once), in any order; ``absent`` has `ABSENT_COLUMNS`.
    """
    if not messages.num_rows:
        return _ARROW_SCHEMA.empty_table()
    lamports = pc.fill_null(messages.column("lamport"), 0)
    by_lamport = pa.table({"lamport": lamports, "message_id": messages.column("message_id")})
    messages = messages.take(pc.sort_indices(by_lamport, [("lamport", "ascending"), ("message_id", "ascending")]))
    count = messages.num_rows
    ids = messages.column("message_id").combine_chunks()
    citing, cited = _citations(messages.column("parents").combine_chunks())
    parents = _places(cited, ids)
    here = Edges(child=citing, parent=parents).without((parents == NOTHING) | (parents == citing))
    order = causal_order(count, here)

    is_rebuilt = pc.is_valid(absent.column("told_by"))
    missing = absent.filter(pc.invert(is_rebuilt)).sort_by([("first_cited", "ascending"), ("message_id", "ascending")])
    rebuilt = absent.filter(is_rebuilt)
    gaps = _places(cited, missing.column("message_id"))
    is_missing = gaps != NOTHING
    lost = np.where(parents == NOTHING, _places(cited, rebuilt.column("message_id")), NOTHING)
    # The id of a computed segment may be a guess: then it is missing, but no message waits for it.
    open_gaps = is_missing & (lost == NOTHING)
    newest = np.full(count, NOTHING, np.int64)
    np.maximum.at(newest, citing[open_gaps], gaps[open_gaps])
    edges = here.and_these(_through_rebuilt(citing, lost, _places(rebuilt.column("told_by"), ids)))
    waits_for = latest_ahead(count, edges, newest)
    behind_circle = latest_ahead(count, edges, order.circles)

    status = np.full(count, DependencyStatus.COMPLETE.value, object)
    status[(waits_for != NOTHING) | (behind_circle != NOTHING)] = DependencyStatus.WAITING.value
    status[order.circles != NOTHING] = DependencyStatus.CIRCULAR.value
    columns: dict[str, Any] = {name: messages.column(name) for name in LOG_COLUMNS}
    columns["position"] = pa.array(order.places + 1, pa.int32())
    columns["missing_parents"] = pa.array(np.bincount(citing[is_missing], minlength=count), pa.int64())
    columns["status"] = pa.array(status, pa.string())
    columns["waits_for"] = missing.column("message_id").take(pa.array(waits_for, mask=waits_for == NOTHING))
    return pa.table(columns).cast(_ARROW_SCHEMA)


def _citations(parents: pa.ListArray) -> tuple[Numbers, pa.Array]:
    """Return one row for each citation: the number of the message that cites, and the id that it cites."""
    return _numbers(pc.list_parent_indices(parents)), pc.list_flatten(parents)


def _places(ids: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray) -> Numbers:
    """Return for each id its index in ``among``, or `NOTHING`."""
    return _numbers(pc.fill_null(pc.index_in(ids, value_set=among), NOTHING))


def _through_rebuilt(citing: Numbers, lost: Numbers, told_by: Numbers) -> Edges:
    """Return edges that replace those to segments that were computed from parity.

    ``lost`` has for each citation the number of the computed segment that it cites, and ``told_by`` for each of these a
    segment of the same message that was read. The citations of a computed segment are unknown. But all segments of a
    message are sent together, so that the first segment that was read cites the messages sent before it. That segment
    waits for no other segment of its message.
    """
    is_lost = lost != NOTHING
    child, parent = citing[is_lost], told_by[lost[is_lost]]
    return Edges(child=child, parent=parent).without((parent == NOTHING) | (parent == child))


def _numbers(column: pa.Array | pa.ChunkedArray) -> Numbers:
    return np.asarray(column, np.int64)
