"""From ``waku_messages`` to the same table with each message once, and the stores that had it.

A message may be in several stores, and a store node may return it on two pages. Rows with the same message hash
(14/WAKU2-MESSAGE, "Deterministic message hashing") are the same message; the hash covers everything except ``version``
and the RLN proof. If rows under one hash differ, a row whose contents match the hash is kept: the others were damaged.
Among several candidates, the first in the order of all columns is kept, in any order of the input. Its proof is the
least of all copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from fairway.pipeline.codes import Codes, codes_of, dense, ranked, starts_of_runs
from fairway.pipeline.exchange import PIECE_BYTES, Cut, bucketed, mapped, pieces
from fairway.pipeline.schema import columns_of, exact_ddl, exact_schema
from fairway.pipeline.stages.message_hashes import Fit, fits_of

DEDUPLICATED: Final = (
    "message_hash binary, pubsub_topic string, content_topic string, payload binary, version int,"
    " timestamp timestamp, timestamp_ns bigint, meta binary, rate_limit_proof binary, sources array<string>,"
    " damaged array<string>, copies bigint"
)
"""The result of `deduplicated`: messages, each once."""
WAKU_TABLE: Final = f"{DEDUPLICATED}, channel_id string"
"""The table ``waku_messages``: `DEDUPLICATED` with the channel that the SDS message of each names."""

_NAMES: Final = columns_of(exact_ddl(DEDUPLICATED))
_COLUMNS: Final = _NAMES[:-3]
_INPUT: Final = (*_COLUMNS, "source")
_STORES: Final = exact_schema(DEDUPLICATED).field("sources").type
_ORDER: Final = (
    "timestamp_ns",
    "source",
    "content_topic",
    "pubsub_topic",
    "version",
    "payload",
    "meta",
    "rate_limit_proof",
)


def deduplicated(waku_messages: DataFrame, *, unique: bool = False) -> DataFrame:
    """Return one row for each message hash.

    Columns: those of ``waku_messages`` with ``sources`` (the names of all stores that had the message as it is, sorted)
    instead of ``source``, ``damaged`` (the stores whose copy does not match its hash), and ``copies`` (the number of
    its rows in the input). A message without an intact copy has empty ``sources``. With ``unique`` the caller asserts
    that no hash occurs twice, as in a single archive, and nothing is shuffled.
    """
    if unique:
        return mapped(waku_messages.select(*_INPUT), lambda rows: as_one_copy(rows).select(_NAMES), DEDUPLICATED)
    rows = Cut(frame=waku_messages.select(*_INPUT), by=["message_hash"], prepare=lambda table: {"rows": table})
    return bucketed([rows], lambda bucket: each_once(bucket.tables["rows"]), DEDUPLICATED)


def each_once(waku_messages: pa.Table, *, piece_bytes: int = PIECE_BYTES) -> Iterator[pa.Table]:
    """Yield the rows of `deduplicated` for rows of ``waku_messages``, in tables of about ``piece_bytes``."""
    hashes, count = dense(codes_of(waku_messages["message_hash"]))
    parts = max(1, min(count, -(-waku_messages.nbytes // max(1, piece_bytes))))
    for part in range(parts):
        # All rows of some hashes. One message may have many rows.
        kept: list[pa.Table] = []
        done = 0
        for piece in pieces(waku_messages, piece_bytes):
            mask = hashes[done : done + piece.num_rows] % parts == part
            done += piece.num_rows
            kept.append(merged_copies(as_one_copy(piece if mask.all() else piece.filter(pa.array(mask)))))
        if kept:
            yield (merged_copies(pa.concat_tables(kept)) if len(kept) > 1 else kept[0]).select(_NAMES)


def as_one_copy(waku_messages: pa.Table) -> pa.Table:
    """Return rows with ``sources``, ``damaged`` and ``copies`` as if no hash occurred twice; ``source`` is kept."""
    is_damaged = fits_of(waku_messages) == Fit.DAMAGED
    copies = pa.array(np.ones(waku_messages.num_rows, np.int64))
    return (
        waku_messages.select(_INPUT)
        .append_column("sources", _alone(waku_messages["source"], ~is_damaged))
        .append_column("damaged", _alone(waku_messages["source"], is_damaged))
        .append_column("copies", copies)
    )


def with_channels(deduplicated: pa.Table, decoded: pa.Table) -> pa.Table:
    """Return the rows of ``waku_messages`` (`WAKU_TABLE`) of messages, each once.

    ``decoded`` has ``message_hash`` and ``channel_id`` of the messages that carry an SDS message.
    """
    place = pc.index_in(deduplicated["message_hash"], value_set=decoded["message_hash"].combine_chunks())
    return deduplicated.append_column("channel_id", decoded["channel_id"].take(place))


def is_damaged(deduplicated: pa.Table | pa.RecordBatch) -> NDArray[np.bool_]:
    """Return which messages have no intact copy in any store."""
    sources, damaged = (pc.fill_null(pc.list_value_length(deduplicated[name]), 0) for name in ("sources", "damaged"))
    mask: NDArray[np.bool_] = pc.and_(pc.equal(sources, 0), pc.greater(damaged, 0)).to_numpy(zero_copy_only=False)
    return mask


def holders(deduplicated: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
    """Return the stores that had each message: the stores with an intact copy or, without any, with a damaged one."""
    return pc.if_else(pa.array(is_damaged(deduplicated)), deduplicated["damaged"], deduplicated["sources"])


def merged_copies(rows: pa.Table) -> pa.Table:
    """Return each message hash once, from rows that may each represent several copies.

    Rows have the columns of `DEDUPLICATED` and ``source``.
    """
    hashes, count = dense(codes_of(rows["message_hash"]))
    if count == len(hashes):
        return rows
    several = np.flatnonzero(np.bincount(hashes)[hashes] > 1)
    those = rows.select(["message_hash", *_ORDER, "sources", "damaged"]).take(pa.array(several))
    those = those.append_column("code", pa.array(hashes[several])).append_column("fit", pa.array(_fits(those)))
    keys = [(name, "ascending", "at_start") for name in ("code", "fit", *_ORDER)]
    order = several[pc.sort_indices(those, keys).to_numpy()]
    kept = np.ones(len(hashes), np.bool_)
    kept[several] = False
    kept[order[np.flatnonzero(np.diff(hashes[order], prepend=-1))]] = True
    copies = np.zeros(count, np.int64)
    np.add.at(copies, hashes, rows["copies"].to_numpy())
    merged = rows.filter(pa.array(kept)).drop_columns(["sources", "damaged", "copies"])
    if rows["rate_limit_proof"].null_count < rows.num_rows:
        proofs = _least(rows["rate_limit_proof"], hashes, count).take(pa.array(hashes[kept]))
        merged = merged.set_column(merged.schema.get_field_index("rate_limit_proof"), "rate_limit_proof", proofs)
    for name in ("sources", "damaged"):
        stores = _together(rows[name].combine_chunks(), hashes, count)
        merged = merged.append_column(name, stores.take(pa.array(hashes[kept])))
    return merged.append_column("copies", pa.array(copies[hashes[kept]]))


def _alone(source: pa.ChunkedArray, chosen: NDArray[np.bool_]) -> pa.ListArray:
    """Return a list for each row: its store, or empty if it is not chosen or has no store."""
    chosen = chosen & source.is_valid().to_numpy()
    ends = np.cumsum(np.append(0, chosen))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), source.combine_chunks().filter(pa.array(chosen))).cast(
        _STORES
    )


def _fits(rows: pa.Table) -> NDArray[np.int8]:
    """Return the `Fit` of rows by their column ``damaged``; for rows without a topic it is computed."""
    fits = np.where(is_damaged(rows), np.int8(Fit.DAMAGED), np.int8(Fit.FITS))
    doubtful = pc.equal(pc.fill_null(rows["pubsub_topic"], ""), "").to_numpy()
    if doubtful.any():
        fits[doubtful] = fits_of(rows.filter(pa.array(doubtful)))
    return fits


def _least(values: pa.ChunkedArray, hashes: Codes, count: int) -> pa.Array:
    """Return the least non-null value of each message, so that a copy without a proof does not hide another's."""
    known = np.flatnonzero(values.is_valid().to_numpy())
    found = values.take(pa.array(known)).combine_chunks()
    order = pc.sort_indices(
        pa.table({"hash": hashes[known], "value": found}), [("hash", "ascending"), ("value", "ascending")]
    ).to_numpy()
    owners = hashes[known][order]
    firsts = starts_of_runs(owners)
    place = np.full(count, -1, np.int64)
    place[owners[firsts]] = order[firsts]
    return found.take(pa.array(place, mask=place < 0))


def _together(sources: pa.ListArray, hashes: Codes, count: int) -> pa.ListArray:
    """Return the stores of each message, sorted."""
    (ranks,), names = ranked(pc.list_flatten(sources))
    owners = hashes[pc.list_parent_indices(sources).to_numpy()]
    owner, rank = np.divmod(np.unique(owners * len(names) + ranks), max(1, len(names)))
    ends = np.cumsum(np.append(0, np.bincount(owner, minlength=count)))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), names.take(pa.array(rank))).cast(_STORES)
