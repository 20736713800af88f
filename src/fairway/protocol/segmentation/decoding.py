"""Computing lost data shards, in the one of two ways that takes less work.

In both, each lost shard is a sum of products of source shards with coefficients from `cauchy.Recovery`. The sources are

* either all shards that are left, which is less work when one or two are lost;
* or the syndromes: the parity shards less the parity of the present data alone. That takes one transform of the present
  data, but there are only as many sources as lost shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from fairway.protocol.segmentation.cauchy import Recovery
from fairway.protocol.segmentation.matrix import Matrix
from fairway.protocol.segmentation.stripes import Words, make_rows
from fairway.protocol.segmentation.transform import ParityTransform, cost_in_products
from fairway.protocol.segmentation.workspace import workspace_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _Solver(Protocol):
    def solve(self, data: Sequence[Words | None], parity: Sequence[Words], recovered: Sequence[Words]) -> None:
        """Write a stripe of each lost shard, given that stripe of all data and of the parity rows used."""


class _Direct:
    """Sums of products of all shards that are left."""

    def __init__(self, recovery: Recovery, present: Sequence[int], word_count: int) -> None:
        coefficients = np.concatenate([recovery.of_data(present), recovery.of_parity()])
        self._coefficients: list[list[int]] = coefficients.tolist()
        (self._source,) = make_rows(recovery.field_bits, 1, word_count)
        self._targets = make_rows(recovery.field_bits, coefficients.shape[1], word_count)

    def solve(self, data: Sequence[Words | None], parity: Sequence[Words], recovered: Sequence[Words]) -> None:
        for target in self._targets:
            target.is_zero = True
        present = [stripe for stripe in (*data, *parity) if stripe is not None]
        for stripe, constants in zip(present, self._coefficients, strict=True):
            self._source.load(stripe)
            for target, constant in zip(self._targets, constants, strict=True):
                target.add_product(constant, self._source)
        for target, stripe in zip(self._targets, recovered, strict=True):
            target.store(stripe)


class _Syndromes:
    """Sums of products of the parity shards less the parity of the present data alone."""

    def __init__(self, recovery: Recovery, rows: Sequence[int], transform: ParityTransform) -> None:
        self._rows = rows
        self._transform = transform
        self._matrix = Matrix(recovery.field_bits, recovery.of_parity())

    def solve(self, data: Sequence[Words | None], parity: Sequence[Words], recovered: Sequence[Words]) -> None:
        of_present = self._transform.parity(data, self._rows)
        for row, given, syndrome in zip(self._rows, parity, recovered, strict=True):
            of_present[row].store(syndrome)
            np.bitwise_xor(syndrome, given, out=syndrome)
        self._matrix.multiply(recovered)


def decode(data: Sequence[Words | None], parity: Mapping[int, Words], parity_count: int) -> dict[int, bytes]:
    """Return the data shards that are None, found with as many parity shards, given by index."""
    lost = [index for index, shard in enumerate(data) if shard is None]
    present = [index for index, shard in enumerate(data) if shard is not None]
    workspace = workspace_for(len(data), parity_count, len(next(iter(parity.values()))))
    recovery = Recovery(len(data), parity_count, lost, list(parity))
    solver: _Solver
    if len(lost) * len(present) <= cost_in_products(len(data), workspace.size):
        solver = _Direct(recovery, present, workspace.stripe_words)
    else:
        solver = _Syndromes(recovery, list(parity), workspace.transform)
    recovered = workspace.results[: len(lost)]
    for stripe in workspace.stripes:
        solver.solve(
            [None if shard is None else shard[stripe] for shard in data],
            [shard[stripe] for shard in parity.values()],
            [shard[stripe] for shard in recovered],
        )
    return {index: shard.tobytes() for index, shard in zip(lost, recovered, strict=True)}
