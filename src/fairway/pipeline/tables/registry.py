"""The registry of the tables that a run of the pipeline writes.

Each is a `Table`: its name, the columns and types in Spark's DDL, the key columns, the layout of its files, and the
meaning of a row. docs/tables.md has the same list. A time is in two columns: ``NAME`` is an instant (Spark's
TimestampType, UTC, microseconds), ``NAME_ns`` or ``NAME_ms`` the exact integer since the Unix epoch. Hashes are binary,
ids are text; names and ids are unchanged from the senders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError
from fairway.pipeline.schema import columns_of
from fairway.pipeline.stages.acknowledgements import ACK_LATENCY, ACKNOWLEDGEMENTS
from fairway.pipeline.stages.bandwidth import BANDWIDTH
from fairway.pipeline.stages.channel_log import SDS_ORDERED
from fairway.pipeline.stages.deduplicated import WAKU_TABLE
from fairway.pipeline.stages.delivered import DELIVERED, INCOMPLETE
from fairway.pipeline.stages.missing_messages import MISSING_MESSAGES
from fairway.pipeline.stages.quarantine import QUARANTINE
from fairway.pipeline.stages.rate_utilisation import RATE_UTILISATION
from fairway.pipeline.stages.reassembled import COMPUTED_SEGMENTS
from fairway.pipeline.stages.sds_messages import REPEATS, SDS_MESSAGES
from fairway.pipeline.stages.statistics import CHANNEL_STATS, SENDER_STATS
from fairway.pipeline.stages.store_completeness import STORE_COMPLETENESS

SCHEMA_VERSION: Final = 6
"""Version of the tables: increases if a column changes its meaning or is removed; other versions are not read."""

BY_HASH: Final = "by message_hash"
BY_MESSAGE: Final = "by hash of (channel_id, message_id)"
BY_SET: Final = "by range of (channel_id, lamport), or by hash of (channel_id, sender_id, segment_hash)"
ONE_FILE: Final = "small"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table."""

    name: str
    schema: str
    """Columns and types, as Spark's DDL."""
    keys: tuple[str, ...]
    """The columns of the unique key."""
    layout: str
    """The layout of its rows in files."""
    meaning: str
    """The meaning of a row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return columns_of(self.schema)


TABLES: Final[tuple[Table, ...]] = (
    Table(
        name="waku_messages",
        schema=WAKU_TABLE,
        keys=("message_hash",),
        layout=BY_HASH + " when there are several sources, else as the source gives them",
        meaning="a WakuMessage, its channel, the stores that had it, and in how many rows of the input it was",
    ),
    Table(
        name="sds_messages",
        schema=SDS_MESSAGES,
        keys=("channel_id", "message_id"),
        layout=BY_MESSAGE + ", or as the source gives them",
        meaning="an SDS message, with the first WakuMessage that carried it",
    ),
    Table(
        name="repeats",
        schema=REPEATS,
        keys=("message_hash",),
        layout=BY_MESSAGE,
        meaning="a further WakuMessage with an SDS message: a retransmission, or the same sending on another shard",
    ),
    Table(
        name="quarantine",
        schema=QUARANTINE,
        keys=("message_hash",),
        layout=BY_HASH,
        meaning="a WakuMessage that is no SDS message, a forged one, or one on a wrong topic, and why",
    ),
    Table(
        name="delivered",
        schema=DELIVERED,
        keys=("channel_id", "sds_ids"),
        layout="by range of (channel_id, lamport), sorted",
        meaning="a message as an application gets it: sent whole, or put together from segments",
    ),
    Table(
        name="incomplete",
        schema=INCOMPLETE,
        keys=("channel_id", "first_id", "outcome"),
        layout=BY_SET,
        meaning="a set of segments that gives no message, and why",
    ),
    Table(
        name="computed_segments",
        schema=COMPUTED_SEGMENTS,
        keys=("channel_id", "message_id", "told_by"),
        layout=BY_SET,
        meaning="a segment that was lost and computed from parity: its id, and whether that is known or a guess",
    ),
    Table(
        name="missing_messages",
        schema=MISSING_MESSAGES,
        keys=("channel_id", "message_id"),
        layout=BY_MESSAGE,
        meaning="an SDS message that others cite, and that is in no store and was not computed from parity",
    ),
    Table(
        name="sds_ordered",
        schema=SDS_ORDERED,
        keys=("channel_id", "message_id"),
        layout="by range of (channel_id, position), sorted",
        meaning="a content message at its place in the channel's log, and whether it waits for missing ones",
    ),
    Table(
        name="acknowledgements",
        schema=ACKNOWLEDGEMENTS,
        keys=("channel_id", "message_id", "acknowledged_by"),
        layout=BY_MESSAGE,
        meaning="a participant that has another's message, how that is known (cited, descendant, bloom), since when",
    ),
    Table(
        name="ack_latency",
        schema=ACK_LATENCY,
        keys=("channel_id", "message_id"),
        layout=BY_MESSAGE,
        meaning="a content message, how many acknowledged it, who was first and how soon",
    ),
    Table(
        name="sender_stats",
        schema=SENDER_STATS,
        keys=("channel_id", "sender_id"),
        layout="by hash of (channel_id, sender_id)",
        meaning="a participant of a channel, what it sent and lost; sender_id is null where citations name no author",
    ),
    Table(
        name="channel_stats",
        schema=CHANNEL_STATS,
        keys=("channel_id",),
        layout="by hash of channel_id",
        meaning="a channel: what was sent in it, lost and acknowledged",
    ),
    Table(
        name="bandwidth",
        schema=BANDWIDTH,
        keys=("channel_id", "part"),
        layout="by hash of channel_id",
        meaning=(
            "a part of a channel's bytes (content, history, bloom, sync, repair, retransmission, other-shard,"
            " envelope); the parts add up to the payloads of sds_messages and repeats"
        ),
    ),
    Table(
        name="rate_utilisation",
        schema=RATE_UTILISATION,
        keys=("channel_id", "sender_id", "epoch_start_ms"),
        layout="by hash of (channel_id, sender_id)",
        meaning="a sender of a channel in an epoch in which it sent, what it was charged, and the share of the limit",
    ),
    Table(
        name="store_completeness",
        schema=STORE_COMPLETENESS,
        keys=("source",),
        layout=ONE_FILE,
        meaning="a store, and how much it had of what any of them had",
    ),
)
"""All tables, in the order in which a run writes them."""

_BY_NAME: Final = {table.name: table for table in TABLES}


def table_named(name: str) -> Table:
    """Return a table, or raise `ConfigurationError` with the known names."""
    try:
        return _BY_NAME[name]
    except KeyError:
        raise ConfigurationError(f"there is no table {name!r}; there are: {', '.join(_BY_NAME)}") from None
