"""`HashSet`: a large set of message hashes with 32 bytes for each, a third of the memory of a Python set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from fairway.storage.archive import HASH_BYTES

_HASH: Final = np.dtype(f"S{HASH_BYTES}")


class HashSet:
    """Sorted runs of hashes, each more than twice as long as the next: logarithmically many."""

    def __init__(self, hashes: Iterable[bytes] = ()) -> None:
        self._runs: list[np.ndarray[Any, np.dtype[np.bytes_]]] = []
        self.add(hashes)

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def add(self, hashes: Iterable[bytes]) -> None:
        """Add hashes of 32 bytes."""
        new = list(hashes)
        known = self.found(new)
        run = np.unique(np.array([each for each in new if each not in known], dtype=_HASH))
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate([self._runs.pop(), run])
            run.sort(kind="stable")
        if len(run):
            self._runs.append(run)

    def found(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Return the hashes that the set has."""
        found: set[bytes] = set()
        wanted = np.array(list(hashes), dtype=_HASH)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, wanted), len(run) - 1)
            found.update(message_hash for message_hash, same in zip(hashes, run[places] == wanted, strict=True) if same)
        return found
