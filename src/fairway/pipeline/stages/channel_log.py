"""`channel_logs`: the logs of channels, a function over Arrow tables, without Spark.

It reads ids and citations, but no content. A channel has the order of SDS, (Lamport timestamp, message id), unless its
clocks are broken: a message cites another whose timestamp is not below its own. `fairway.pipeline.stages.causal_order`
describes the order of such channels, `fairway.pipeline.stages.ordered_logs` that of channels too large for memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.pipeline.codes import NOTHING, Codes, codes_of_pairs, ranked
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.causal_order import Edges, Numbers, causal_order, latest_ahead

SDS_ORDERED: Final = (
    "channel_id string, message_id string, sender_id string, lamport bigint, timestamp timestamp, timestamp_ns bigint,"
    " message_hash binary, segment_hash binary, position int, missing_parents bigint, status string, waits_for string"
)
"""The table of ordered messages."""

LOG_COLUMNS: Final = (
    "channel_id",
    "message_id",
    "sender_id",
    "lamport",
    "timestamp_ns",
    "message_hash",
    "segment_hash",
)
"""The columns of a message in ``sds_ordered``."""

_ARROW_SCHEMA: Final = exact_schema(SDS_ORDERED)

LOGGED: Final = pa.schema(
    [
        *(_ARROW_SCHEMA.field(name) for name in LOG_COLUMNS),
        ("parents", pa.list_(pa.string())),
    ]
)
"""A content message, and the ids that it cites, each once."""

ABSENT: Final = pa.schema(
    [("channel_id", pa.string()), ("message_id", pa.string()), ("first_cited_ns", pa.int64()), ("told_by", pa.string())]
)
"""A cited message that the archive does not have: missing since ``first_cited``, or a segment that was computed from
parity; then ``told_by`` is the first segment of the same message in the archive."""

INHERITED: Final = pa.schema(
    [
        ("channel_id", pa.string()),
        ("message_id", pa.string()),
        ("waits_for", pa.string()),
        ("first_cited_ns", pa.int64()),
    ]
)
"""A message of an earlier part of its channel that is not complete, and the missing message that it waits for, with the
time of its first citation; both are null if it waits only for a circle."""


class DependencyStatus(Enum):
    """The state in which a live participant that received the whole archive would have a message."""

    COMPLETE = "complete"
    """Delivered: all its dependencies, direct or not, are in the archive or were computed from parity."""
    WAITING = "waiting"
    """Parked, until a dependency is given up as lost."""
    CIRCULAR = "circular"
    """Parked: it is in a circle of messages that cite each other, which only a forger can make."""
    NOT_COMPUTED = "not-computed"
    """Unknown: its channel has a circle, or a chain against all timestamps, that is too large for one worker."""


_STATUSES: Final = tuple(DependencyStatus)


def channel_logs(
    messages: pa.Table,
    absent: pa.Table,
    *,
    before: Mapping[str, int] = MappingProxyType({}),
    inherited: pa.Table | None = None,
    is_computed: bool = True,
) -> pa.Table:
    """Return the rows of ``sds_ordered``, sorted by (channel_id, position), for the content messages of some channels.

    ``messages`` (`LOGGED`) are all of each channel, in any order. ``absent`` (`ABSENT`) has the messages that they cite
    and the archive does not have. Of the channels in ``before``, so many messages are in tables before this one; those
    of them that are not complete and are cited here are in ``inherited`` (`INHERITED`). If the order ``is_computed``,
    no message cites one of a later table; else messages are ordered by timestamp alone, and their status is unknown.
    """
    if not messages.num_rows:
        return _ARROW_SCHEMA.empty_table()
    inherited = INHERITED.empty_table() if inherited is None else inherited
    tables = (messages, absent, inherited)
    (channels, of_absent, of_inherited), names = ranked(*(table.column("channel_id") for table in tables))
    log = _Log.of(messages, channels)
    missing = np.flatnonzero(pc.is_null(absent.column("told_by")).to_numpy())
    ranks, missing_ids = _by_first_citation(absent.take(pa.array(missing)), inherited)
    citations = _citations(log, tables, (channels, of_absent, of_inherited), missing, ranks)
    found = _causal(log, citations) if is_computed else _by_timestamp(log)

    firsts = np.array([before.get(name, 0) for name in names.to_pylist()])
    gaps = np.bincount(citations.citing[citations.gaps != NOTHING], minlength=len(log.rows))
    by_place = np.empty(len(log.rows), np.int64)
    by_place[found.places] = np.arange(len(log.rows))
    sent = messages.select(LOG_COLUMNS).combine_chunks().take(pa.array(log.rows[by_place]))
    positions = found.places - log.starts + firsts[log.channels] + 1
    waits_for = found.waits_for[by_place]
    columns: dict[str, Any] = {
        **{name: sent.column(name) for name in LOG_COLUMNS},
        "position": pa.array(positions[by_place], pa.int32()),
        "missing_parents": gaps[by_place],
        "status": pa.array([status.value for status in _STATUSES]).take(pa.array(found.status[by_place])),
        "waits_for": missing_ids.take(pa.array(waits_for, mask=waits_for == NOTHING)),
    }
    return pa.table(columns, schema=_ARROW_SCHEMA)


@dataclass(frozen=True, slots=True)
class _Log:
    """Messages numbered in the order of (channel, Lamport timestamp, message id); each column has one row for each."""

    rows: Numbers
    """Its row in the given table."""
    channels: Codes
    clocks: Numbers
    starts: Numbers
    """The number of the first message of its channel."""

    @classmethod
    def of(cls, messages: pa.Table, channels: Codes) -> _Log:
        clocks = messages.column("lamport").fill_null(0).to_numpy()
        keys = pa.table({"channel": channels, "clock": clocks, "id": messages.column("message_id")})
        order = pc.sort_indices(keys, [(name, "ascending") for name in keys.schema.names])
        rows = order.to_numpy().astype(np.int64)
        sorted_channels = channels[rows]
        starts = np.searchsorted(sorted_channels, sorted_channels)
        return cls(rows, sorted_channels, clocks[rows], starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Citations:
    """Citations; each column has one row for each citation, `NOTHING` if the column does not apply."""

    citing: Numbers
    """The number of the citing message."""
    parents: Numbers
    """The number of the cited message."""
    gaps: Numbers
    """The rank of the cited missing message, by the time of the first citation."""
    inherited: Numbers
    """The rank of the missing message for which the cited message of an earlier part waits."""
    is_held_up: NDArray[np.bool_]
    """Whether the cited message of an earlier part is not complete."""
    is_computed: NDArray[np.bool_]
    """Whether the cited message is a segment that was computed from parity."""
    told_by: Numbers
    """For a cited computed segment, the number of the first segment of the same message in the archive."""


def _by_first_citation(missing: pa.Table, inherited: pa.Table) -> tuple[Numbers, pa.ChunkedArray]:
    """Return the ranks of missing messages, then of those that inherited ones wait for, by the first citation.

    The second value has the ids of these missing messages, in the order of their ranks.
    """
    times = pa.chunked_array([*missing["first_cited_ns"].chunks, *inherited["first_cited_ns"].chunks], pa.int64())
    ids = pa.chunked_array([*missing["message_id"].chunks, *inherited["waits_for"].chunks], pa.string())
    order = pc.sort_indices(pa.table({"time": times, "id": ids}), [("time", "ascending"), ("id", "ascending")])
    places = np.empty(len(order), np.int64)
    places[order.to_numpy()] = np.arange(len(order))
    return places, ids.take(order)


def _citations(
    log: _Log,
    tables: tuple[pa.Table, pa.Table, pa.Table],
    channels_of: tuple[Codes, Codes, Codes],
    missing: Numbers,
    ranks: Numbers,
) -> _Citations:
    messages, absent, inherited = tables
    channels, of_absent, of_inherited = channels_of
    parents = messages.column("parents")
    citing = np.repeat(np.arange(len(channels)), pc.list_value_length(parents).fill_null(0).to_numpy())
    ids = (
        messages.column("message_id"),
        pc.list_flatten(parents),
        absent.column("message_id"),
        absent.column("told_by"),
        inherited.column("message_id"),
    )
    both = pa.array(np.concatenate([channels, channels[citing], of_absent, of_absent, of_inherited]))
    keys, count = codes_of_pairs(both, pa.chunked_array([chunk for column in ids for chunk in column.chunks]))
    own, cited, gone, tellers, waiting = np.split(keys, np.cumsum([len(column) for column in ids])[:-1])

    numbers = np.empty(len(own), np.int64)
    numbers[log.rows] = np.arange(len(own))
    number_of, gap_of, mark_of = (np.full(count, NOTHING, np.int64) for _ in range(3))
    number_of[own] = numbers
    gap_of[gone[missing]] = ranks[: len(missing)]
    mark_of[waiting] = np.where(pc.is_valid(inherited.column("waits_for")), ranks[len(missing) :], NOTHING)
    is_held_up = np.zeros(count, np.bool_)
    is_held_up[waiting] = True

    is_computed, told_by = np.zeros(count, np.bool_), np.full(count, NOTHING, np.int64)
    is_rebuilt = pc.is_valid(absent.column("told_by")).to_numpy()
    rebuilt, teller_keys = gone[is_rebuilt], tellers[is_rebuilt]
    tellers = number_of[teller_keys]
    is_computed[rebuilt] = True
    # A guessed id may be that of several computed segments: the lowest ``told_by`` counts.
    least_last = np.argsort(np.where(tellers == NOTHING, 0, len(own) - tellers), kind="stable")
    told_by[rebuilt[least_last]] = tellers[least_last]
    np.maximum.at(mark_of, rebuilt, mark_of[teller_keys])
    np.logical_or.at(is_held_up, rebuilt, is_held_up[teller_keys])

    is_absent = number_of[cited] == NOTHING
    is_lost = is_computed[cited] & is_absent
    return _Citations(
        citing=numbers[citing],
        parents=number_of[cited],
        gaps=gap_of[cited],
        inherited=np.where(is_absent, mark_of[cited], NOTHING),
        is_held_up=is_absent & is_held_up[cited],
        is_computed=is_lost,
        told_by=np.where(is_lost, told_by[cited], NOTHING),
    )


class _Found(NamedTuple):
    """Three columns, with one row for each message."""

    places: Numbers
    """Its position among all messages of all channels, from 0."""
    status: Numbers
    """The index of its status in `_STATUSES`."""
    waits_for: Numbers
    """The rank of the missing message that it waits for, by the time of the first citation."""


def _by_timestamp(log: _Log) -> _Found:
    """Return the messages in the order of their timestamps, with an unknown status."""
    count = len(log.rows)
    unknown = _STATUSES.index(DependencyStatus.NOT_COMPUTED)
    return _Found(np.arange(count), np.full(count, unknown), np.full(count, NOTHING, np.int64))


def _causal(log: _Log, citations: _Citations) -> _Found:
    """Return the causal order of the messages."""
    count = len(log.rows)
    edges = Edges(child=citations.citing, parent=citations.parents)
    here = edges.without((edges.parent == NOTHING) | (edges.parent == edges.child))
    places, circles = _in_causal_order(log, here)

    # A computed segment with a guessed id is missing, but no message waits for it.
    open_gaps = np.where(citations.is_computed, NOTHING, citations.gaps)
    newest = np.full(count, NOTHING, np.int64)
    np.maximum.at(newest, citations.citing, np.maximum(open_gaps, citations.inherited))
    # A computed segment's own citations are unknown. But all segments of a message are sent together, so that the first
    # segment in the archive cites the messages sent before it. That segment waits for no other segment of its message.
    through = Edges(child=citations.citing, parent=citations.told_by)
    through = through.without((through.parent == NOTHING) | (through.parent == through.child))
    ahead = here.and_these(through)
    waits_for = latest_ahead(count, ahead, newest)
    held_up = circles.copy()
    held_up[citations.citing[citations.is_held_up]] = count
    is_behind = latest_ahead(count, ahead, held_up) != NOTHING

    status = np.full(count, _STATUSES.index(DependencyStatus.COMPLETE))
    status[(waits_for != NOTHING) | is_behind] = _STATUSES.index(DependencyStatus.WAITING)
    status[circles != NOTHING] = _STATUSES.index(DependencyStatus.CIRCULAR)
    return _Found(places, status, waits_for)


def _in_causal_order(log: _Log, edges: Edges) -> tuple[Numbers, Numbers]:
    """Return the position of each message, and its circle, `NOTHING` for none."""
    count = len(log.rows)
    places, circles = np.arange(count), np.full(count, NOTHING, np.int64)
    wrong = np.zeros(count, np.bool_)
    wrong[log.starts[edges.child[edges.parent >= edges.child]]] = True
    moved = np.flatnonzero(wrong[log.starts])
    if moved.size:
        # Channels do not mix: the next message is the one with the lowest number.
        numbers = np.full(count, NOTHING, np.int64)
        numbers[moved] = np.arange(len(moved))
        among = edges.without(numbers[edges.child] == NOTHING)
        order = causal_order(len(moved), Edges(child=numbers[among.child], parent=numbers[among.parent]))
        places[moved] = moved[order.places]
        circles[moved] = order.circles
    return places, circles
