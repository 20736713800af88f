"""Makes the rows of some channels in the tables of channels again, from all SDS messages of these channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from fairway.options import SdsConfig
from fairway.pipeline.run.growth.held_rows import HeldRows, of_channels
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.summing import SUMMED_COLUMNS, figures_of
from fairway.pipeline.stages.acknowledgements import acknowledgement_rows, latency_rows, sent_in
from fairway.pipeline.stages.citations import CITED, CITING_COLUMNS, citations_in
from fairway.pipeline.stages.keyed import keyed
from fairway.pipeline.stages.missing_messages import missing_rows, rebuilt_in
from fairway.pipeline.stages.ordered_logs import ordered_logs
from fairway.pipeline.stages.sds_ordered import LOGGED_COLUMNS, absent_of, computed_in, logged_in

CHANNEL_TABLES: Final = (
    "missing_messages",
    "acknowledgements",
    "ack_latency",
    "sds_ordered",
    "sender_stats",
    "channel_stats",
    "bandwidth",
    "rate_utilisation",
)
"""The tables of channels."""
_READ: Final = {
    **{name: SUMMED_COLUMNS[name] for name in ("repeats", "delivered", "incomplete")},
    "sds_messages": tuple(dict.fromkeys([*SUMMED_COLUMNS["sds_messages"], *CITING_COLUMNS, *LOGGED_COLUMNS])),
    "computed_segments": None,
}
"""The columns of each table that are read; None for all."""


def channel_tables(held: Mapping[str, HeldRows], channels: pa.Array, options: RunOptions) -> dict[str, pa.Table]:
    """Return all rows of some channels in each of `CHANNEL_TABLES`."""
    chosen = of_channels(channels)
    rows = {name: held[name].found(("channel_id",), chosen, columns) for name, columns in _READ.items()}
    messages, computed = rows["sds_messages"], rows["computed_segments"]
    sent, cited, rebuilt = keyed(sent_in(messages), citations_in(messages).select(CITED.names), rebuilt_in(computed))
    missing = missing_rows(sent, cited, rebuilt)
    threshold = SdsConfig().possible_acks_threshold
    acknowledged = acknowledgement_rows(sent, cited, possible_acks_threshold=threshold)
    latencies = latency_rows(sent, acknowledged)
    absent = pa.concat_tables([absent_of(missing), computed_in(computed)])
    logs = ordered_logs(logged_in(messages), absent, max_bytes=options.max_channel_bytes)
    rows |= {"missing_messages": missing, "ack_latency": latencies}
    return {
        "missing_messages": missing,
        "acknowledgements": acknowledged.table,
        "ack_latency": latencies,
        "sds_ordered": pa.concat_tables(logs),
        **figures_of(rows, options.epoch_ms, options.rate_limit),
    }
