"""Archives in steps, with forged, repeated and odd messages, and the runs that grow over them; without Spark."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from fairway.errors import DecodeError
from fairway.options import Profile
from fairway.pipeline.run import RunOptions, RunTables
from fairway.pipeline.run.folder import RunFolder, TableResult
from fairway.pipeline.run.growth.growing import grow
from fairway.pipeline.run.running import rows_since
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.run.summary import RunSummary, balance_json, balance_of
from fairway.pipeline.run.summing import balance_terms
from fairway.pipeline.run.topics import CountedTopics
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.tables import TABLES
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import element
from fairway.rln.proof import SignalProof
from fairway.testing.archives import GeneratorPlan, rows_mapper
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.waku_message import WakuMessage, message_hash

PLAN = GeneratorPlan(
    messages=400,
    channels=4,
    largest_share=0.5,
    logos_share=0.3,
    history=3,
    content_bytes=40,
    long_share=0.08,
    segment_size_bytes=256,
    parity_rate=0.5,
    sync_share=0.05,
    ephemeral_share=0.03,
    loss=0.1,
    corruption=0.03,
    retransmission=0.05,
    stores=2,
    store_loss=0.2,
    duplication=0.05,
)
OTHER_SHARD = "/waku/2/rs/1/9"
OPTIONS = RunOptions(rate_limit=10, parity_rate=PLAN.parity_rate)


def generated(plan: GeneratorPlan) -> pa.Table:
    """Return the rows of an archive in the order of their times, forged and repeated ones among them."""
    rows = pa.Table.from_batches(list(rows_mapper(plan)(iter([pa.RecordBatch.from_pydict({"id": [0]})]))))
    rng = random.Random(plan.seed)
    found = [odd(row, rows, rng) if rng.random() < 0.02 else row for row in rows.to_pylist()]
    added = []
    for row in rng.sample(found, len(found) // 20):
        said = said_again(row, rng)
        again = hashed(row | {"payload": said, "timestamp_ns": row["timestamp_ns"] + late(rng)})
        added.append(again if rng.random() < 0.9 else again | {"message_hash": rng.randbytes(32)})
    added += [hashed(row | {"pubsub_topic": OTHER_SHARD}) for row in rng.sample(found + added, len(found) // 40)]
    rows_with_proofs = [row | {"rate_limit_proof": proof_for(row)} for row in found + added]
    return pa.Table.from_pylist(rows_with_proofs, schema=ARROW_SCHEMA).sort_by("timestamp_ns")


def proof_for(row: dict[str, Any]) -> bytes | None:
    """Return the proof of a message, the same for each of its copies: some under nullifiers of others, some garbage."""
    digest = row["message_hash"]
    if digest[0] % 2:
        return None if digest[0] % 4 == 1 else digest[:9]
    return proof(epoch=digest[1] % 3, nullifier=digest[2] % 40, share_x=digest[3] % 3).encode()


def proof(*, epoch: int, nullifier: int, share_x: int) -> SignalProof:
    """Return a proof that decodes but is not valid."""
    return SignalProof(
        proof=bytes(128),
        root=element(1),
        epoch=epoch,
        share_x=element(share_x),
        share_y=element(2),
        nullifier=element(nullifier),
        identifier=RlnNetwork().padded_identifier,
    )


def decoded(row: dict[str, Any]) -> SdsMessage | None:
    """Return the message of a row, None for garbage."""
    try:
        return Profile.of_marker(row["meta"]).codec.decode(row["payload"])
    except DecodeError:
        return None


def odd(row: dict[str, Any], rows: pa.Table, rng: random.Random) -> dict[str, Any]:
    """Return the row with an altered Lamport timestamp, or with a citation of any other message."""
    message = decoded(row)
    other_row = rows.slice(rng.randrange(rows.num_rows), 1).to_pylist()[0]
    other = decoded(other_row)
    if message is None or other is None or not message.content:
        return row
    if rng.random() < 0.3:
        changed = replace(message, lamport_timestamp=max(0, (message.lamport_timestamp or 0) - rng.randrange(20_000)))
    else:
        cited = (*message.causal_history, HistoryEntry(other.message_id, None, other.sender_id))
        changed = replace(message, channel_id=other.channel_id, causal_history=cited)
        row = row | {"content_topic": other_row["content_topic"]}
    codec = Profile.of_marker(row["meta"]).codec
    return hashed(row | {"payload": codec.encode(changed)})


def said_again(row: dict[str, Any], rng: random.Random) -> bytes:
    """Return the payload of a message once more: the same, or with other content under the same id."""
    message = decoded(row)
    if message is None or not message.content or rng.random() < 0.5:
        return bytes(row["payload"])
    codec = Profile.of_marker(row["meta"]).codec
    return codec.encode(replace(message, content=b"forged %d" % rng.randrange(3)))


def hashed(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the hash of its message."""
    names = ("payload", "content_topic", "timestamp_ns", "meta")
    return row | {"message_hash": message_hash(row["pubsub_topic"], WakuMessage(**{name: row[name] for name in names}))}


def late(rng: random.Random) -> int:
    return rng.choice([-1, 1]) * rng.randrange(20_000_000_000)


def write(folder: Path, name: str, rows: pa.Table) -> None:
    folder.mkdir(exist_ok=True, parents=True)
    pq.write_table(rows, folder / name)


def empty_run(out: str | Path, source: Path | str, options: RunOptions = OPTIONS) -> None:
    """Write the tables of a run over a source without rows: a URI, or a folder, which is made if it is missing."""
    if isinstance(source, Path) and not source.is_dir():
        write(source, "part-none.parquet", ARROW_SCHEMA.empty_table())
    uri = f"parquet:{source}" if isinstance(source, Path) else source
    described = [one.described() for one in parse_sources([uri])]
    folder = RunFolder.open_for(out, described, options.as_json(), None)
    folder.finish_job("tables", [TableResult.of(table.name, (), 0.0) for table in TABLES], {})
    folder.finish_job("read", [], {"topics": CountedTopics().as_json()})
    folder.finish_job("statistics", [], balance_terms([]))
    nothing = balance_of(balance_terms([]), {table.name: 0 for table in TABLES})
    folder.finish({"balance": balance_json(nothing), "seconds": 0.0})
    folder.close()


def grown(out: str | Path, sources: Sequence[str], options: RunOptions = OPTIONS) -> RunSummary:
    """Add all new rows to a finished run; a full run instead of that is an error."""
    parsed = [source.listed(options.selection) for source in parse_sources(sources)]
    described = [source.described() for source in parsed]
    folder = RunFolder.open_for(out, described, options.as_json(), None)
    assert folder.held is not None, "there is a finished run with these options"
    new = partial(rows_since, folder.held, parsed, described, None)
    stores = [source.label for source in parsed if source.label]
    try:
        return grow(folder, new, options, None, stores=stores, most_grown=inf)
    finally:
        folder.close()


def content(tables: RunTables, name: str) -> list[str]:
    return sorted(map(repr, tables.all(name)))


def assert_same(one: str | Path, other: str | Path) -> None:
    tables, others = RunTables(one), RunTables(other)
    for table in TABLES:
        assert content(tables, table.name) == content(others, table.name), table.name
        keys = [tuple(map(str, row.values())) for row in tables.all(table.name, table.keys)]
        assert len(set(keys)) == len(keys), table.name
        assert tables.rows(table.name) == len(tables.all(table.name)) == others.rows(table.name), table.name
    assert tables.balance == others.balance
    assert tables.balance.adds_up
