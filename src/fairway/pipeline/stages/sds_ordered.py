"""From ``sds_messages`` to ``sds_ordered``: each channel's log in causal order, and which messages wait.

The order of SDS is (Lamport timestamp, message id), ascending: the specification's local log. It is causal if senders
keep their clocks as specified. A channel has broken clocks if a message cites another whose timestamp is not below its
own. In such a channel every message follows all messages that it cites, whatever its timestamp.

Whether a message waits depends on all its ancestors, which may be the whole channel. So one task orders each channel,
in parts if it is large (`ordered_logs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from fairway.errors import ConfigurationError
from fairway.pipeline.exchange import Bucket, Cut, bucketed, filtered
from fairway.pipeline.stages.channel_log import ABSENT, LOGGED, SDS_ORDERED
from fairway.pipeline.stages.citations import parents_in
from fairway.pipeline.stages.ordered_logs import MAX_CHANNEL_BYTES, ordered_logs
from fairway.pipeline.stages.reassembled import COMPUTED_INPUT, computed_segments_in

__all__ = [
    "COMPUTED_COLUMNS",
    "LOGGED_COLUMNS",
    "absent_of",
    "computed_in",
    "logged_in",
    "sds_ordered",
]

LOGGED_COLUMNS: Final = (*(name for name in LOGGED.names if name != "parents"), "kind", "causal_history")
"""The columns of ``sds_messages`` that the log is made of."""
_BY_CHANNEL: Final = ("channel_id",)
COMPUTED_COLUMNS: Final = ("channel_id", "message_id", "told_by")
"""The columns of ``computed_segments`` that are read."""


def sds_ordered(
    sds_messages: DataFrame,
    missing_messages: DataFrame,
    reassembled: DataFrame | None = None,
    *,
    max_channel_bytes: int = MAX_CHANNEL_BYTES,
) -> DataFrame:
    """Return the content messages of each channel with their place in its log.

    Columns: those of `SDS_ORDERED`. ``position`` counts from 1; ``missing_parents`` counts the missing messages that it
    cites. ``status`` is one of `DependencyStatus`. ``waits_for`` is the missing message, of all that it depends on,
    with the latest first citation; null for none. A live participant gives up that one last.

    ``missing_messages`` must not contain segments that were computed from parity. ``reassembled`` has these segments.
    Without it no message waits for messages that they cite. A worker orders at most ``max_channel_bytes`` of ids and
    citations at once. Raises `ConfigurationError` for a limit below 1.
    """
    if max_channel_bytes < 1:
        raise ConfigurationError(f"max_channel_bytes must be positive, not {max_channel_bytes}")

    def work(bucket: Bucket) -> Iterator[pa.Table]:
        messages, absent = bucket.table("logged", LOGGED), bucket.table("absent", ABSENT)
        yield from ordered_logs(messages, absent, max_bytes=max_channel_bytes)

    cuts = [
        Cut(
            frame=sds_messages.select(*LOGGED_COLUMNS),
            by=_BY_CHANNEL,
            prepare=lambda table: {"logged": logged_in(table)},
        ),
        Cut(
            frame=missing_messages.select("channel_id", "message_id", "first_cited_ns"),
            by=_BY_CHANNEL,
            prepare=lambda table: {"absent": absent_of(table)},
        ),
    ]
    if reassembled is not None:
        frame = reassembled.select(*COMPUTED_INPUT)
        cuts.append(
            Cut(
                frame=frame,
                by=_BY_CHANNEL,
                prepare=lambda table: {"absent": computed_in(computed_segments_in(table))},
            )
        )
    return bucketed(cuts, work, SDS_ORDERED)


def logged_in(sds_messages: pa.Table) -> pa.Table:
    """Return the content messages (`LOGGED`) among some messages, of which `LOGGED_COLUMNS` are read."""
    content = filtered(sds_messages, pc.equal(sds_messages.column("kind"), "content"))
    columns = {name: content.column(name) for name in LOGGED.names if name != "parents"}
    return pa.table({**columns, "parents": parents_in(content)}, schema=LOGGED)


def absent_of(missing_messages: pa.Table) -> pa.Table:
    """Return missing messages as logs need them (`ABSENT`)."""
    columns = [missing_messages.column(name) for name in ("channel_id", "message_id", "first_cited_ns")]
    return pa.table([*columns, pa.nulls(missing_messages.num_rows, pa.string())], schema=ABSENT)


def computed_in(computed_segments: pa.Table) -> pa.Table:
    """Return the lost segments that were computed (`ABSENT`), whether their ids are known or guessed."""
    channel_id, message_id, told_by = (computed_segments.column(name) for name in COMPUTED_COLUMNS)
    return pa.table([channel_id, message_id, pa.nulls(len(message_id), pa.int64()), told_by], schema=ABSENT)
