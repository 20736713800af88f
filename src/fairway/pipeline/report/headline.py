"""`Headline`: the counts of all known messages by their state, for the archive, each channel and each sender.

A message here is an SDS message with content or an ephemeral one; a message sent in segments counts as several. The
known messages are those in the archive and those that others cite. Each of them has one of four states:

* readable: it is in the archive, and its content can be read;
* incomplete: it is a segment of a message that cannot be reassembled;
* damaged: it is cited, a store has it with contents of another hash, and no store has it intact;
* lost: it is cited, is in no store that was read, and could not be computed from parity.

The held-up messages are in the archive, but a live participant would park them: they cite a lost message, directly or
through others. Most of them can be read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.stages.channel_log import DependencyStatus

Sender = tuple[str, str | None]
"""Channel and sender id; None for lost messages of which no citation names the author."""
Message = tuple[str, str]
"""Channel and message id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The counts of messages, of an archive or of a part of it. ``known`` = readable + lost + damaged + incomplete."""

    known: int
    readable: int
    lost: int
    damaged: int
    incomplete: int
    held_up: int
    """Known messages that wait for a lost one."""
    undetermined: int
    """Known messages in channels too large to compute whether they wait."""


class Accounts:
    """The counts of each channel and of each sender. Memory grows with the number of those with a loss."""

    def __init__(self, tables: RunTables, damaged_hints: pa.Array) -> None:
        """Read ``incomplete`` and the states in ``sds_ordered``; ``damaged_hints`` name damaged messages."""
        self._damaged: Counter[Sender] = Counter()
        self._incomplete: Counter[Sender] = Counter()
        self._waiting: Counter[Sender] = Counter()
        self._unknown: Counter[Sender] = Counter()
        self.held_up_by: Counter[Message] = Counter()
        """Messages that each lost message holds up, by channel and id. Each counts for the one given up last."""
        for batch in tables.batches("incomplete", ["channel_id", "sender_id", "held"]):
            for row in batch.to_pylist():
                self._incomplete[row["channel_id"], row["sender_id"]] += row["held"]
        if len(damaged_hints):
            is_damaged = ds.field("retrieval_hint").isin(damaged_hints)
            for batch in tables.batches("missing_messages", ["channel_id", "sender_id"], is_damaged):
                self._damaged.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        is_held_up = ds.field("status") != DependencyStatus.COMPLETE.value
        keys = ["channel_id", "sender_id", "status"]
        for batch in tables.batches("sds_ordered", [*keys, "waits_for"], is_held_up):
            rows = pa.Table.from_batches([batch])
            for row in _counted(rows, ["channel_id", "waits_for"]):
                if row["waits_for"] is not None:
                    self.held_up_by[row["channel_id"], row["waits_for"]] += row["count_all"]
            for row in _counted(rows, keys):
                is_unknown = row["status"] == DependencyStatus.NOT_COMPUTED.value
                counts = self._unknown if is_unknown else self._waiting
                counts[row["channel_id"], row["sender_id"]] += row["count_all"]
        self._counts = (self._damaged, self._incomplete, self._waiting, self._unknown)
        self._of_channels = tuple(map(_by_channel, self._counts))

    def of_channel(self, row: Mapping[str, Any]) -> Headline:
        """Return the counts of a channel, from its row of ``channel_stats``."""
        return _headline(row, *(counts[row["channel_id"]] for counts in self._of_channels))

    def of_sender(self, row: Mapping[str, Any]) -> Headline:
        """Return the counts of a sender, from its row of ``sender_stats``."""
        sender = (row["channel_id"], row["sender_id"])
        return _headline(row, *(counts[sender] for counts in self._counts))


def _counted(rows: pa.Table, keys: list[str]) -> list[dict[str, Any]]:
    counted: list[dict[str, Any]] = rows.group_by(keys, use_threads=False).aggregate([([], "count_all")]).to_pylist()
    return counted


def headline_of(parts: Iterable[Headline]) -> Headline:
    """Return the sums over parts."""
    sums = dict.fromkeys(_COUNTS, 0)
    for part in parts:
        for name in _COUNTS:
            sums[name] += getattr(part, name)
    return Headline(**sums)


def _headline(row: Mapping[str, Any], damaged: int, incomplete: int, held_up: int, undetermined: int) -> Headline:
    known = row["content"] + row["ephemeral"] + row["missing"]
    return Headline(
        known=known,
        readable=known - row["missing"] - incomplete,
        lost=row["missing"] - damaged,
        damaged=damaged,
        incomplete=incomplete,
        held_up=held_up,
        undetermined=undetermined,
    )


def _by_channel(counts: Counter[Sender]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for (channel_id, _), number in counts.items():
        sums[channel_id] += number
    return sums


_COUNTS: Final = tuple(field.name for field in fields(Headline))


_Z: Final = 1.96
"""Of 95 % certainty."""


def least_share(part: int, whole: int) -> float:
    """Return the lower bound of a share (Wilson score interval, 95 %), so that 1 of 1 is not worse than 90 of 100."""
    if not whole:
        return 0.0
    share, slack = part / whole, _Z * _Z / whole
    spread = _Z * math.sqrt(max(share * (1 - share) + slack / 4, 0.0) / whole)
    return max((share + slack / 2 - spread) / (1 + slack), 0.0)


def lost_share(told: Headline) -> float:
    """Return the share of the messages known that is lost or incomplete, as far as it is certain."""
    return least_share(told.lost + told.incomplete, told.known)


def worst_first(told: Headline, *names: object) -> tuple[Any, ...]:
    """Return what orders channels or senders from the worst to the best, by the lost share that is certain."""
    return (-lost_share(told), -told.known, *map(str, names))
