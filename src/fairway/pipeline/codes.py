"""Codes for values: two rows have the same number if and only if they are equal.

NumPy sorts and counts numbers much faster than Arrow does text. The codes are exact, not hashes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Codes = NDArray[np.int64]

NOTHING: Final = -1
"""The code of a missing value."""

_MAX_CODE: Final = 2**62


def codes_of(*columns: pa.Array | pa.ChunkedArray) -> Codes:
    """Return a code of each row, from 0; rows have the same code if all columns are equal. Null equals only null."""
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
    """Return the codes renumbered without holes, from 0 in order of first occurrence, and their number."""
    encoded = pa.array(codes).dictionary_encode()
    return np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary)


def codes_of_pairs(few: pa.Array | pa.ChunkedArray, many: pa.Array | pa.ChunkedArray) -> tuple[Codes, int]:
    """Return the codes of rows of two columns, from 0 without holes, and their number.

    Rows have the same code if both columns are equal; null equals only null. The function is fast if nearly every value
    of ``many`` occurs with only one value of ``few``, such as a message id with its channel.
    """
    codes, bound = _of_one(many)
    others, _ = _of_one(few)
    usual = np.full(bound, NOTHING, np.int64)
    usual[codes] = others
    count = int(np.count_nonzero(usual != NOTHING))  # the highest code is that of null, which may occur in no row
    further = np.flatnonzero(others != usual[codes])
    if len(further):
        own, added = dense(codes_of(pa.array(others[further]), pa.array(codes[further])))
        codes[further] = count + own
        count += added
    return codes, count


def starts_of_runs(codes: Codes) -> NDArray[np.intp]:
    """Return the positions at which runs of equal codes start."""
    return np.flatnonzero(np.diff(codes, prepend=NOTHING))


def ranked(*columns: pa.Array | pa.ChunkedArray) -> tuple[list[Codes], pa.Array]:
    """Return the ranks of each column's values among those of all, `NOTHING` for null, and the sorted values.

    Text is ordered by its bytes in UTF-8, as Spark orders it.
    """
    parts = _encoded(pa.chunked_array([chunk for column in columns for chunk in _chunks(column)], columns[0].type))
    values = parts[0].dictionary if parts else pa.array([], columns[0].type)
    order = pc.sort_indices(values)
    # One more place, for null.
    ranks = np.full(len(values) + 1, NOTHING, np.int64)
    ranks[np.asarray(order)] = np.arange(len(values))
    own = [ranks[np.asarray(part.indices.fill_null(len(values)))] for part in parts]
    whole = np.concatenate([np.zeros(0, np.int64), *own])
    ends = np.cumsum([len(column) for column in columns])
    return np.split(whole, ends[:-1]), values.take(order)


def _of_one(column: pa.Array | pa.ChunkedArray) -> tuple[Codes, int]:
    """Return the codes of a column, and a number above all of them."""
    parts = _encoded(pa.chunked_array(_chunks(column), column.type))
    nothing = len(parts[0].dictionary) if parts else 0
    own = [np.asarray(part.indices.fill_null(nothing)).astype(np.int64) for part in parts]
    return np.concatenate([np.zeros(0, np.int64), *own]), nothing + 1


def _encoded(column: pa.ChunkedArray) -> list[pa.DictionaryArray]:
    """Return the chunks of a column as codes of one dictionary."""
    encoded = column.dictionary_encode()
    # Arrow encodes all chunks with one dictionary, unless they are dictionary arrays already, which it unifies slowly.
    parts: list[pa.DictionaryArray] = (
        encoded.unify_dictionaries() if pa.types.is_dictionary(column.type) else encoded
    ).chunks
    return parts


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
