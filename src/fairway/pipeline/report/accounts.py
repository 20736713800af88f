"""`Accounts`: the counts of messages of the archive, and the channels and senders of which the greatest share is lost.

::

    sender_stats, incomplete, sds_ordered, lost messages -> sums by sender -> the worst senders
                                       channel_stats, sums by sender -> sums by channel -> the worst channels

Sums are made part by part (`Divided`), so that memory does not grow with the number of channels and senders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.report.bounded import Divided, Order, Top, rows_with
from fairway.pipeline.report.causes import LossCause
from fairway.pipeline.report.headline import COUNTS, Headline, least_share
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.stages.channel_log import DependencyStatus
from fairway.pipeline.stages.statistics import FIGURES
from fairway.pipeline.stages.sums import grouped

Row = dict[str, Any]

WHO: Final = ("channel_id", "sender_id")
_CAUSES: Final = tuple(cause.value for cause in LossCause)
_STATISTICS: Final = ("content", "ephemeral", "missing")
_SUMS: Final = ("rows", *_STATISTICS, "incomplete", "held_up", "undetermined", *_CAUSES)
"""The columns that are added up; ``rows`` counts rows of the table of statistics."""
_LOST: Final = pa.schema([*((name, pa.string()) for name in WHO), *((name, pa.int64()) for name in _CAUSES)])
_WORST: Final = (("lost_share", "descending"), ("known", "descending"))
_MOST_LOST: Final = (("lost", "descending"), ("channel_id", "ascending"))


def senders_divided(tables: RunTables) -> Divided:
    """Return a place for the sums of all senders."""
    counted = ("sender_stats", "incomplete", "sds_ordered", "missing_messages")
    return Divided(WHO, sum(map(tables.rows, counted)))


def lost_sums(lost: Counter[tuple[str, str | None, LossCause]]) -> pa.Table:
    """Return the sums of lost messages, from their numbers by channel, author and cause."""
    rows = [
        {"channel_id": channel_id, "sender_id": sender_id, cause.value: count}
        for (channel_id, sender_id, cause), count in lost.items()
    ]
    return _summands(pa.Table.from_pylist(rows, schema=_LOST), WHO)


class Accounts:
    """The counts of the archive, and the worst channels and senders."""

    def __init__(self, tables: RunTables, by_sender: Divided, worst: int, most_lost: int) -> None:
        """Read the tables; ``by_sender`` has the sums of lost messages.

        Keep the ``worst`` channels and senders, and the ``most_lost`` channels that lost the most messages.
        """
        self.channels_with_losses = 0
        self.totals = dict.fromkeys(FIGURES, 0)
        """The sums of the figures of all channels."""
        for table in _states(tables):
            by_sender.add(_summands(table, WHO))
        senders, channels, losing = (
            Top(_order(*WHO), worst),
            Top(_order("channel_id"), worst),
            Top(_MOST_LOST, most_lost),
        )
        sums = Counter[str]()
        rows = tables.rows("sender_stats") + tables.rows("channel_stats")
        with Divided(WHO[:1], rows) as by_channel:
            for part in by_sender:
                added = _added(part, WHO)
                senders.add(_counted(added))
                parts = grouped(added, WHO[:1], {name: (name, "sum") for name in _SUMS[len(_STATISTICS) + 1 :]})
                by_channel.add(_summands(parts, WHO[:1]))
            for batch in tables.batches("channel_stats", ["channel_id", *FIGURES]):
                for name in FIGURES:
                    self.totals[name] += pc.sum(batch.column(name)).as_py() or 0
                by_channel.add(_of_statistics(batch, WHO[:1]))
            for part in by_channel:
                counted = _counted(_added(part, WHO[:1]))
                channels.add(counted)
                losing.add(counted.filter(pc.field("lost") > 0))
                self.channels_with_losses += pc.sum(pc.greater(counted["lost"], 0)).as_py() or 0
                sums.update({name: pc.sum(counted[name]).as_py() or 0 for name in COUNTS})
        self.headline = Headline(**{name: sums[name] for name in COUNTS})
        self.channels = rows_with(tables, "channel_stats", WHO[:1], channels.rows())
        """The worst channels: the row of ``channel_stats``, and the counts of a `Headline`."""
        self.senders = rows_with(tables, "sender_stats", WHO, senders.rows())
        """The worst senders: the row of ``sender_stats``, and these counts with one for each `LossCause`."""
        self.most_lost = losing.rows()
        """The counts of the channels that lost the most messages."""


def _order(*names: str) -> Order:
    """Return the order from the worst to the best, by the lost share that is certain."""
    return [*_WORST, *((name, "ascending") for name in names)]


def _states(tables: RunTables) -> Iterator[pa.Table]:
    """Yield the counts of senders of all tables but that of the lost messages."""
    for batch in tables.batches("sender_stats", [*WHO, *_STATISTICS]):
        yield _of_statistics(batch, WHO)
    for batch in tables.batches("incomplete", [*WHO, "held"]):
        yield grouped(pa.Table.from_batches([batch]), WHO, {"incomplete": ("held", "sum")})
    is_held_up = ds.field("status") != DependencyStatus.COMPLETE.value
    for batch in tables.batches("sds_ordered", [*WHO, "status"], is_held_up):
        is_unknown = pc.equal(batch.column("status"), DependencyStatus.NOT_COMPUTED.value)
        states = {"held_up": pc.invert(is_unknown), "undetermined": is_unknown}
        rows = pa.table({name: batch.column(name) for name in WHO} | {n: s.cast(pa.int64()) for n, s in states.items()})
        yield grouped(rows, WHO, {name: (name, "sum") for name in states})


def _of_statistics(batch: pa.RecordBatch, keys: tuple[str, ...]) -> pa.Table:
    """Return rows of a table of statistics, for adding."""
    table = pa.Table.from_batches([batch]).select([*keys, *_STATISTICS])
    return _summands(table.append_column("rows", pa.array(np.ones(len(table), np.int64))), keys)


def _summands(table: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """Return a table with all columns that are added up; the new ones have no values."""
    nothing = pa.nulls(table.num_rows, pa.int64())
    return pa.table(
        {name: table[name] for name in keys}
        | {name: table[name] if name in table.column_names else nothing for name in _SUMS}
    )


def _added(part: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    return grouped(part, keys, {name: (name, "sum") for name in _SUMS})


def _counted(added: pa.Table) -> pa.Table:
    """Return the sums of channels or senders that have statistics, with the counts of a `Headline`."""
    table = added.filter(pc.greater(pc.fill_null(added["rows"], 0), 0))
    sums = {name: pc.fill_null(table[name], 0).to_numpy() for name in _SUMS}
    known = sums["content"] + sums["ephemeral"] + sums["missing"]
    lost = sums["missing"] - sums[LossCause.DAMAGED.value]
    counts = {
        **sums,
        "known": known,
        "readable": known - sums["missing"] - sums["incomplete"],
        "lost": lost,
        "lost_share": least_share(lost + sums["incomplete"], known),
    }
    keys = {name: table[name] for name in WHO if name in table.column_names}
    named = (*COUNTS, *_CAUSES, "lost_share")
    return pa.table(keys | {name: counts[name] for name in dict.fromkeys(named)})
