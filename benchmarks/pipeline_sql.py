"""The SQL parts of the pipeline in DuckDB, over the same ``sds_messages`` that Spark wrote.

Deduplication, gaps, order and acknowledgements; not decoding and reassembly, which no SQL engine does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

_UNIQUE = "CREATE OR REPLACE VIEW unique_messages AS SELECT * FROM read_parquet('{sds}') WHERE sighting = 1"

_CITATIONS = """
CREATE OR REPLACE VIEW citations AS
SELECT channel_id, entry.message_id AS message_id, entry.sender_id AS sender_id, entry.retrieval_hint AS retrieval_hint,
       message_id AS citing_id, sender_id AS citing_sender_id, timestamp_ns AS cited_at
FROM (SELECT channel_id, message_id, sender_id, timestamp_ns, unnest(list_distinct(causal_history)) AS entry
      FROM unique_messages WHERE kind <> 'ephemeral')
WHERE entry.message_id <> message_id
"""

_QUERIES = {
    "waku_messages": """
SELECT message_hash, any_value(payload) AS payload, list_sort(list(DISTINCT source)) AS sources, count(*) AS copies
FROM read_parquet('{archive}') GROUP BY message_hash
""",
    "missing_messages": """
SELECT channel_id, message_id, max(sender_id), max(retrieval_hint), count(*), min(cited_at), max(cited_at)
FROM citations
WHERE NOT EXISTS (SELECT 1 FROM unique_messages AS present WHERE present.kind = 'content'
                  AND present.channel_id = citations.channel_id AND present.message_id = citations.message_id)
GROUP BY channel_id, message_id
""",
    "sds_ordered": """
SELECT channel_id, message_id, sender_id, lamport, timestamp_ns, message_hash,
       row_number() OVER (PARTITION BY channel_id ORDER BY lamport, message_id) AS position
FROM unique_messages WHERE kind = 'content'
""",
    "acknowledgements": """
SELECT sent.channel_id, sent.message_id, sent.sender_id, citing_sender_id AS acknowledged_by, min(cited_at) AS at
FROM unique_messages AS sent JOIN citations USING (channel_id, message_id)
WHERE sent.kind = 'content' AND citing_sender_id <> sent.sender_id GROUP BY ALL
""",
}


def run_sql(duckdb: Any, archive: Path, sds_messages: Path, out: Path) -> Iterator[tuple[str, int]]:
    """Write the tables one after the other, yielding each one's name and rows. ``duckdb`` is the module."""
    with duckdb.connect() as database:
        database.execute(_UNIQUE.format(sds=sds_messages / "*.parquet"))
        database.execute(_CITATIONS)
        for name, query in _QUERIES.items():
            select = query.format(archive=archive / "*.parquet")
            written = database.execute(f"COPY ({select}) TO '{out / name}.parquet' (FORMAT parquet, COMPRESSION zstd)")
            (count,) = written.fetchone()
            yield name, count
