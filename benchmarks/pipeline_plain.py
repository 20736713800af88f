"""The tables of the pipeline from one plain Python process, as a user without Spark would write it.

It decodes and reassembles with the functions of Spark's workers, and does the rest with dictionaries, with the whole
archive in memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.pipeline.stages.decoded import decoding_mapper
from fairway.pipeline.stages.reassembled import ARCHIVE_SEGMENTATION, reassembled_rows, segments_in

_EPOCH_MS = 600_000
_NANOSECONDS_PER_MILLISECOND = 1_000_000
_BATCH_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Message:
    """One row of the decoded table, without its bytes."""

    row: int
    message_hash: bytes
    timestamp_ns: int
    kind: str
    channel_id: str
    sender_id: str
    message_id: str
    lamport: int | None
    cited: tuple[tuple[str, str | None, bytes | None], ...]
    """Id, author and retrieval hint of each message that it cites."""


class PlainPipeline:
    """Makes one table after the other; `steps` says which in what order."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive
        self.rows: dict[str, int] = {}
        """Rows of each table."""
        self._made: dict[str, pa.Table] = {}

    def steps(self) -> Iterator[str]:
        """Do the work, yielding the name of each stage when it is done."""
        self._deduplicate()
        yield "waku_messages"
        self._decode()
        yield "decoded"
        self._sort_out()
        yield "sds_messages"
        self._reassemble()
        yield "reassembled"
        self._deliver()
        yield "delivered"
        self._miss()
        yield "missing_messages"
        self._order()
        yield "sds_ordered"
        self._acknowledge()
        yield "acknowledgements"
        self._sum_up()
        yield "statistics"

    def write(self, folder: Path) -> None:
        """Write all tables as Parquet."""
        for name, table in self._made.items():
            pq.write_table(table, folder / f"{name}.parquet", compression="zstd")

    def _keep(self, name: str, table: pa.Table) -> None:
        self._made[name] = table
        self.rows[name] = table.num_rows

    def _keep_rows(self, name: str, rows: list[dict[str, Any]]) -> None:
        self._made[name] = pa.Table.from_pylist(rows)
        self.rows[name] = len(rows)

    def _deduplicate(self) -> None:
        table = pq.read_table(self._archive)
        first: dict[bytes, int] = {}
        sources: dict[bytes, set[str]] = {}
        copies: Counter[bytes] = Counter()
        hashes = table.column("message_hash").to_pylist()
        for row, (message_hash, source) in enumerate(zip(hashes, table.column("source").to_pylist(), strict=True)):
            first.setdefault(message_hash, row)
            sources.setdefault(message_hash, set()).add(source)
            copies[message_hash] += 1
        table = table.take(list(first.values())).drop_columns(["source"])
        table = table.append_column("sources", pa.array([sorted(sources[key]) for key in first]))
        self._keep("waku_messages", table.append_column("copies", pa.array([copies[key] for key in first])))

    def _decode(self) -> None:
        batches = self._made["waku_messages"].to_batches(_BATCH_ROWS)
        self._decoded = pa.Table.from_batches(decoding_mapper()(iter(batches)))

    def _sort_out(self) -> None:
        is_ok = pa.compute.equal(self._decoded.column("status"), "ok")
        self._keep("quarantine", self._decoded.filter(pa.compute.invert(is_ok)))
        table = self._decoded.filter(is_ok)
        self._copies: Counter[tuple[str, str]] = Counter()
        best: dict[tuple[str, str], Message] = {}
        self._messages = list(_messages(table))
        for message in self._messages:
            key = (message.channel_id, message.message_id)
            self._copies[key] += 1
            other = best.setdefault(key, message)
            if (message.timestamp_ns, message.message_hash) < (other.timestamp_ns, other.message_hash):
                best[key] = message
        self._unique = best
        self._sds = table
        firsts = {message.row for message in best.values()}
        self._keep("sds_messages", table.take(sorted(firsts)))
        self._keep("repeats", table.take([row for row in range(table.num_rows) if row not in firsts]))

    def _reassemble(self) -> None:
        rows = [message.row for message in self._unique.values()]
        unique = self._sds.take(rows)
        parts = reassembled_rows(segments_in(unique), None, ARCHIVE_SEGMENTATION)
        self._reassembled = [row for part in parts for row in part.to_pylist()]
        whole = pa.compute.and_(
            pa.compute.is_null(unique.column("segment_hash")), pa.compute.not_equal(unique.column("kind"), "sync")
        )
        self._whole = unique.filter(whole)

    def _deliver(self) -> None:
        whole = self._whole
        payloads = whole.column("content").to_pylist()
        delivered = [
            {
                "channel_id": channel_id,
                "sender_id": sender_id,
                "message_id": hashlib.sha256(payload).hexdigest(),
                "lamport": lamport,
                "sds_ids": [message_id],
                "timestamp_ns": timestamp,
                "segments": 1,
                "recovered": False,
                "size_bytes": len(payload),
                "payload": payload,
            }
            for channel_id, sender_id, message_id, lamport, timestamp, payload in zip(
                *(
                    whole.column(name).to_pylist()
                    for name in ("channel_id", "sender_id", "message_id", "lamport", "timestamp_ns")
                ),
                payloads,
                strict=True,
            )
        ]
        incomplete = []
        for row in self._reassembled:
            if row["outcome"] == "complete":
                payload = row["payload"]
                delivered.append(
                    {
                        name: row[name]
                        for name in ("channel_id", "sender_id", "lamport", "sds_ids", "recovered", "payload")
                    }
                    | {
                        "message_id": hashlib.sha256(payload).hexdigest(),
                        "timestamp_ns": row["last_seen_ns"],
                        "segments": row["data_segments"],
                        "size_bytes": len(payload),
                    }
                )
            else:
                incomplete.append({name: value for name, value in row.items() if name != "payload"})
        delivered.sort(key=lambda row: (row["channel_id"], row["lamport"] or 0, row["sds_ids"]))
        self._keep_rows("delivered", delivered)
        self._keep_rows("incomplete", incomplete)

    def _miss(self) -> None:
        present = {key for key, message in self._unique.items() if message.kind == "content"}
        rebuilt = {(row["channel_id"], name) for row in self._reassembled for name in row["rebuilt_ids"]}
        missing: dict[tuple[str, str], dict[str, Any]] = {}
        for message in self._unique.values():
            for message_id, sender_id, hint in message.cited:
                key = (message.channel_id, message_id)
                if key in present or key in rebuilt:
                    continue
                at = message.timestamp_ns
                row = missing.setdefault(
                    key,
                    {
                        "channel_id": message.channel_id,
                        "message_id": message_id,
                        "sender_id": sender_id,
                        "retrieval_hint": hint,
                        "cited_by": 0,
                        "first_cited_ns": at,
                        "last_cited_ns": at,
                    },
                )
                row["cited_by"] += 1
                row["retrieval_hint"] = row["retrieval_hint"] or hint
                row["first_cited_ns"] = min(row["first_cited_ns"], at)
                row["last_cited_ns"] = max(row["last_cited_ns"], at)
        self._missing = missing
        self._keep_rows("missing_messages", list(missing.values()))

    def _order(self) -> None:
        logs: dict[str, list[Message]] = defaultdict(list)
        for message in self._unique.values():
            if message.kind == "content":
                logs[message.channel_id].append(message)
        ordered = []
        for log in logs.values():
            log.sort(key=lambda message: (message.lamport or 0, message.message_id))
            ordered += [
                {
                    "channel_id": message.channel_id,
                    "message_id": message.message_id,
                    "sender_id": message.sender_id,
                    "lamport": message.lamport,
                    "timestamp_ns": message.timestamp_ns,
                    "message_hash": message.message_hash,
                    "position": position,
                    "missing_parents": sum((message.channel_id, entry[0]) in self._missing for entry in message.cited),
                }
                for position, message in enumerate(log, 1)
            ]
        self._keep_rows("sds_ordered", ordered)

    def _acknowledge(self) -> None:
        first: dict[tuple[str, str, str], int] = {}
        unique = self._unique
        for message in unique.values():
            for message_id, _, _ in message.cited:
                cited = unique.get((message.channel_id, message_id))
                if cited is not None and cited.kind == "content" and cited.sender_id != message.sender_id:
                    key = (message.channel_id, message_id, message.sender_id)
                    first[key] = min(message.timestamp_ns, first.get(key, message.timestamp_ns))
        self._keep_rows(
            "acknowledgements",
            [
                {
                    "channel_id": key[0],
                    "message_id": key[1],
                    "acknowledged_by": key[2],
                    "how": "cited",
                    "acknowledged_at_ns": at,
                }
                for key, at in first.items()
            ],
        )
        latest: dict[tuple[str, str], tuple[int, int, str]] = {}
        for (channel_id, message_id, by), at in first.items():
            count, since, who = latest.get((channel_id, message_id), (0, at, by))
            latest[channel_id, message_id] = (count + 1, *min((since, who), (at, by)))
        latencies = []
        for sent, message in unique.items():
            if message.kind == "content":
                ackers, acked_at, first_by = latest.get(sent) or (0, None, None)
                latency = None
                if acked_at is not None:
                    latency = max(0, acked_at - message.timestamp_ns) // _NANOSECONDS_PER_MILLISECOND
                latencies.append(
                    {
                        "channel_id": sent[0],
                        "message_id": sent[1],
                        "sender_id": message.sender_id,
                        "sent_at_ns": message.timestamp_ns,
                        "ackers": ackers,
                        "first_by": first_by,
                        "acked_at_ns": acked_at,
                        "latency_ms": latency,
                    }
                )
        self._keep_rows("ack_latency", latencies)

    def _sum_up(self) -> None:
        senders: dict[tuple[str, str | None], Counter[str]] = defaultdict(Counter)
        for key, message in self._unique.items():
            figures = senders[message.channel_id, message.sender_id]
            figures[message.kind] += 1
            figures["repeats"] += self._copies[key] - 1
        for name in ("delivered", "incomplete", "missing_messages"):
            table = self._made[name]
            if table.num_rows:
                for who in zip(
                    table.column("channel_id").to_pylist(), table.column("sender_id").to_pylist(), strict=True
                ):
                    senders[who][name] += 1
        self._keep_rows(
            "sender_stats", [{"channel_id": c, "sender_id": s, **figures} for (c, s), figures in senders.items()]
        )
        channels: dict[str, Counter[str]] = defaultdict(Counter)
        for (channel_id, _), figures in senders.items():
            channels[channel_id].update(figures)
        self._keep_rows("channel_stats", [{"channel_id": name, **figures} for name, figures in channels.items()])
        epochs: Counter[tuple[str, str, int]] = Counter()
        for message in self._messages:
            at_ms = message.timestamp_ns // _NANOSECONDS_PER_MILLISECOND
            epochs[message.channel_id, message.sender_id, at_ms - at_ms % _EPOCH_MS] += 1
        self._keep_rows(
            "rate_utilisation",
            [
                {"channel_id": channel, "sender_id": sender, "epoch_start_ms": at, "messages": n}
                for (channel, sender, at), n in epochs.items()
            ],
        )
        stores = Counter(
            source for held in self._made["waku_messages"].column("sources").to_pylist() for source in held
        )
        self._keep_rows("store_completeness", [{"source": name, "messages": count} for name, count in stores.items()])


def _messages(table: pa.Table) -> Iterator[Message]:
    history = table.column("causal_history").combine_chunks()
    offsets = history.offsets.to_pylist()
    entries = list(
        zip(
            *(history.values.field(name).to_pylist() for name in ("message_id", "sender_id", "retrieval_hint")),
            strict=True,
        )
    )
    names = ("message_hash", "timestamp_ns", "kind", "channel_id", "sender_id", "message_id", "lamport")
    columns = (table.column(name).to_pylist() for name in names)
    for row, values in enumerate(zip(*columns, strict=True)):
        cited = tuple(entries[offsets[row] : offsets[row + 1]])
        yield Message(row, **dict(zip(names, values, strict=True)), cited=cited)
