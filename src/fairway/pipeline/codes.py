"""Numbers in place of values: rows have the same number exactly where they are equal.

NumPy sorts and counts numbers much faster than Arrow does text. No hash decides: two values never share one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Codes = NDArray[np.int64]

_MAX_CODE: Final = 2**62


def codes_of(*columns: pa.Array | pa.ChunkedArray) -> Codes:
    """Return a number of each row, from 0: the same where all of the columns are equal; null equals null only."""
    codes: Codes | None = None
    bound = 1
    for column in columns:
        own, count = _of_one(column)
        if codes is None:
            codes, bound = own, count
            continue
        if bound * count > _MAX_CODE:
            codes, bound = dense(codes)
        codes = codes * count + own
        bound *= count
    if codes is None:
        raise ValueError("codes are of one column at least")
    return codes


def dense(codes: Codes) -> tuple[Codes, int]:
    """Return the codes without holes, from 0 in the order in which they come first, and how many there are."""
    encoded = pa.array(codes).dictionary_encode()
    return np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary)


def _of_one(column: pa.Array | pa.ChunkedArray) -> tuple[Codes, int]:
    """Return the codes of a column, and a number that is above all of them."""
    chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    parts = chunked.dictionary_encode().unify_dictionaries().chunks
    if not parts:
        return np.zeros(0, np.int64), 1
    nothing = len(parts[0].dictionary)
    own = [np.asarray(part.indices.fill_null(nothing)).astype(np.int64) for part in parts]
    return np.concatenate(own), nothing + 1
