"""The cost of decoding a row in columns, beside row by row: ``python -m benchmarks "pipeline decoding"``.

One process without Spark decodes the batches of a generated archive both ways, in turn. Both must give the same
columns. Figures are CPU time, so that other work on the machine disturbs them less.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter, process_time
from typing import Any

from benchmarks.figures import Figure
from benchmarks.session import Benchmark, Session

from fairway.options import Profile
from fairway.protocol.encryption import AesGcm
from fairway.protocol.encryption.hook import encrypt_at_once

_BATCH_ROWS = 1_000
_BATCH_BYTES = 20_000_000
"""Bytes of payloads that a batch has at most, as rows with a long history are large."""
_BATCHES = 3
_TOPIC = "/bench/1/messages/proto"
_KEY = {"cipher": "aes-256-gcm", "key": "07" * 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The rows of one figure."""

    profile: Profile = Profile.WAKU
    history: int = 2
    batch_rows: int = _BATCH_ROWS
    corruption: float = 0.002
    encrypted: bool = False


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    shapes: dict[str, _Shape] = {}
    for profile in Profile:
        for history in (2, 10, 50, 200):
            shapes[f"{profile.value}, history {history}"] = _Shape(profile=profile, history=history)
        shapes[f"{profile.value}, 20 % damaged"] = _Shape(profile=profile, corruption=0.2)
        shapes[f"{profile.value}, encrypted"] = _Shape(profile=profile, encrypted=True)
    for rows in (64, 256, 4_000, 16_000):
        shapes[f"batches of {rows:,}"] = _Shape(batch_rows=rows)
    return [
        Benchmark(name=f"pipeline decoding: {label}", measure=partial(_measure, shape=shape))
        for label, shape in shapes.items()
    ]


def _measure(session: Session, *, shape: _Shape) -> Figure:
    # PySpark and PyArrow are an extra.
    import pyarrow as pa  # noqa: PLC0415

    from fairway.pipeline.keys import ChannelKeys  # noqa: PLC0415
    from fairway.pipeline.stages.decoding import BatchDecoder  # noqa: PLC0415

    batches = _batches(shape, count=1 if session.quick else _BATCHES)
    keys = ChannelKeys.from_mapping({_TOPIC: _KEY}) if shape.encrypted else None
    decoders = [BatchDecoder(None, None, keys, few_rows=few) for few in (1, sys.maxsize)]
    columns, rows = ([decoder.batch(batch) for batch in batches] for decoder in decoders)
    if not pa.Table.from_batches(columns).equals(pa.Table.from_batches(rows)):
        raise SystemExit(f"{shape}: decoding in columns and row by row give different tables")
    ours_s, peer_s = _shortest(decoders, batches, session.budget_s)
    count = sum(batch.num_rows for batch in batches)
    ours, peer = (1e6 * seconds / count for seconds in (ours_s, peer_s))
    remark = f"batches of {batches[0].num_rows:,}; less is better"
    return Figure(ours=ours, unit="CPU-us a row", peer=peer, peer_name="row by row", remark=remark)


def _batches(shape: _Shape, count: int) -> list[Any]:
    """Return Arrow batches of a generated archive."""
    import pyarrow as pa  # noqa: PLC0415

    from fairway.testing.archives import GeneratorPlan, rows_mapper  # noqa: PLC0415

    # An entry has an id of 64 bytes, a hint of 32, and the id of its sender.
    rows = min(shape.batch_rows, _BATCH_BYTES // (500 + 110 * shape.history))
    plan = GeneratorPlan(
        messages=count * rows,
        channels=max(1, count * rows // 1_000),
        history=shape.history,
        logos_share=float(shape.profile is Profile.LOGOS),
        corruption=shape.corruption,
    )
    table = pa.Table.from_batches(rows_mapper(plan, 1)(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
    if shape.encrypted:
        cipher = AesGcm(bytes.fromhex(_KEY["key"]))
        payloads = [encrypt_at_once(cipher, payload) for payload in table.column("payload").to_pylist()]
        topics = pa.repeat(pa.scalar(_TOPIC), table.num_rows)
        table = table.set_column(table.schema.get_field_index("payload"), "payload", pa.array(payloads, pa.binary()))
        table = table.set_column(table.schema.get_field_index("content_topic"), "content_topic", topics)
    batches: list[Any] = table.combine_chunks().to_batches(max_chunksize=rows)[:count]
    return batches


def _shortest(decoders: Sequence[Any], batches: Sequence[Any], budget_s: float) -> list[float]:
    """Return the least CPU time in which each decoded all batches."""
    shortest = [float("inf") for _ in decoders]
    end = perf_counter() + budget_s * len(decoders)
    while True:
        for number, decoder in enumerate(decoders):
            began = process_time()
            for batch in batches:
                decoder.batch(batch)
            shortest[number] = min(shortest[number], process_time() - began)
        if perf_counter() >= end:
            return shortest
