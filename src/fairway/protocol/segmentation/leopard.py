"""Leopard-RS: Reed-Solomon shards, byte for byte those of the Leopard library (SEGMENTATION, "Reed-Solomon").

The reference implementation of segmentation uses Leopard through nim-leopard, so peers can use each other's
parity only if the code is the same. `cauchy` has the code in closed form. Parity is computed by a fast transform
(`transform`), lost data by the inverse in closed form (`decoding`).

Invariant: `recover`, given any ``len(data)`` shards of one encoding, returns the data. It does not check that the
shards are of one encoding: the caller verifies a hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from fairway.errors import ErasureCodeError, NotEnoughShardsError
from fairway.protocol.segmentation.decoding import decode
from fairway.protocol.segmentation.workspace import workspace_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairway.protocol.segmentation.stripes import Words

Shard: TypeAlias = bytes | bytearray | memoryview

SHARD_ALIGNMENT: Final = 64
"""Shards are a multiple of this many bytes long."""

MAX_SHARDS: Final = 65_536
"""Data and parity shards together."""


def encode(data: Sequence[Shard], parity_count: int) -> list[bytes]:
    """Return parity shards for data shards of one length.

    Raises `ErasureCodeError` unless there are 1 to ``len(data)`` parity shards, at most `MAX_SHARDS` in all,
    and the length is a positive multiple of `SHARD_ALIGNMENT`.
    """
    _check_counts(len(data), parity_count)
    shards = _as_words(data)
    if parity_count == 1:
        return [_sum(shards)]
    workspace = workspace_for(len(data), parity_count, len(shards[0]))
    for stripe in workspace.stripes:
        rows = workspace.transform.parity([shard[stripe] for shard in shards], range(parity_count))
        for row, shard in zip(rows, workspace.results, strict=False):
            row.store(shard[stripe])
    return [shard.tobytes() for shard in workspace.results]


def recover(data: Sequence[Shard | None], parity: Sequence[Shard | None]) -> dict[int, bytes]:
    """Return the data shards that are None, by index.

    Both sequences have the length that they had when encoded; None stands for a lost shard. Raises
    `NotEnoughShardsError` when fewer than ``len(data)`` shards are left, and `ErasureCodeError` as `encode`.
    """
    _check_counts(len(data), len(parity))
    lost_count = sum(shard is None for shard in data)
    if not lost_count:
        return {}
    used = {index: shard for index, shard in enumerate(parity) if shard is not None}
    if len(used) < lost_count:
        raise NotEnoughShardsError(
            f"{lost_count} of {len(data)} data shards are lost and only {len(used)} parity shards are left"
        )
    used = dict(list(used.items())[:lost_count])
    words = iter(_as_words([shard for shard in (*data, *used.values()) if shard is not None]))
    if len(parity) == 1:
        return {data.index(None): _sum(list(words))}
    data_words = [None if shard is None else next(words) for shard in data]
    return decode(data_words, dict(zip(used, words, strict=True)), len(parity))


def _sum(shards: Sequence[Words]) -> bytes:
    """Return the XOR of shards: with one parity shard every coefficient of the code is 1."""
    total = shards[0].copy()
    for shard in shards[1:]:
        np.bitwise_xor(total, shard, out=total)
    return total.tobytes()


def _check_counts(data_count: int, parity_count: int) -> None:
    if not 1 <= parity_count <= data_count or data_count + parity_count > MAX_SHARDS:
        raise ErasureCodeError(
            f"{data_count} data and {parity_count} parity shards: there must be at least 1 parity shard, "
            f"at most as many as data shards, and at most {MAX_SHARDS} in all"
        )


def _as_words(shards: Sequence[Shard]) -> list[Words]:
    sizes = {memoryview(shard).nbytes for shard in shards}
    size = max(sizes)
    if len(sizes) > 1 or size == 0 or size % SHARD_ALIGNMENT:
        raise ErasureCodeError(
            f"shards of {sorted(sizes)} bytes: all must have one length, a positive multiple of {SHARD_ALIGNMENT}"
        )
    return [np.frombuffer(shard, np.uint64) for shard in shards]
