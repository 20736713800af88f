"""What the tables of figures must say about a generated archive, told by the facts alone.

Acknowledgements and their latency, the rate limit, stores, participants, channels and bytes. Each is one query over the
facts, written anew and in SQL, so that a mistake of the pipeline's own stages is not made twice; nothing is collected.

Percentiles of latencies are the one figure that the pipeline approximates: of `_EXACT_UP_TO` latencies or more, that
of a rank which is off by at most one in `_ACCURACY`. `with_percentiles_told` turns any of those into the exact one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame

from fairway.options import RateLimitConfig

_SENDER: Final = "channel_id, sender_id"
_CHANNEL: Final = "channel_id"
_ACCURACY: Final = 10_000
_EXACT_UP_TO: Final = 5_000
"""Up to half of the accuracy no two values fall into one interval of the summary."""

_ACK_LATENCY: Final = """
    WITH heard AS (
        SELECT channel_id, message_id, acknowledged_by, timestamp AS acked_at,
            row_number() OVER (PARTITION BY channel_id, message_id ORDER BY timestamp, acknowledged_by) AS place,
            count(*) OVER (PARTITION BY channel_id, message_id) AS ackers
        FROM {facts} WHERE fact = 'acknowledged'
    )
    SELECT sent.channel_id, sent.message_id, sent.sender_id, sent.timestamp AS sent_at,
        coalesce(heard.ackers, 0) AS ackers, heard.acknowledged_by AS first_by, heard.acked_at,
        CASE WHEN heard.acked_at < sent.timestamp THEN 0 ELSE (heard.acked_at - sent.timestamp) div 1000000 END
            AS latency_ms
    FROM {facts} AS sent
    LEFT JOIN heard
        ON heard.channel_id = sent.channel_id AND heard.message_id = sent.message_id AND heard.place = 1
    WHERE sent.fact = 'carrier' AND sent.kind = 'content' AND NOT sent.is_retransmission
"""

_STATS: Final = """
    SELECT {who}, {senders}
        count_if(is_first AND kind = 'content') AS content,
        count_if(is_first AND kind = 'sync') AS sync,
        count_if(is_first AND kind = 'ephemeral') AS ephemeral,
        count_if(fact = 'carrier' AND is_retransmission) AS repeats,
        coalesce(sum(payload_bytes) FILTER (WHERE is_first), 0) AS payload_bytes,
        count(DISTINCT CASE WHEN fact = 'acknowledged' THEN message_id END) AS acknowledged,
        count_if(fact = 'delivered') AS delivered,
        coalesce(sum(size_bytes) FILTER (WHERE fact = 'delivered'), 0) AS delivered_bytes,
        count_if(fact = 'delivered' AND segments > 1) AS reassembled,
        count_if(fact = 'delivered' AND is_recovered) AS recovered,
        count_if(fact = 'incomplete') AS incomplete,
        count_if(fact = 'missing') AS missing,
        min(timestamp) FILTER (WHERE is_first) AS first_seen,
        max(timestamp) FILTER (WHERE is_first) AS last_seen
    FROM (SELECT *, fact = 'carrier' AND NOT is_retransmission AS is_first FROM {facts})
    WHERE fact IN ('acknowledged', 'delivered', 'incomplete')
        OR (fact = 'carrier' AND status = 'ok') OR (fact = 'missing' AND NOT is_rebuilt)
    GROUP BY {who}
"""
