"""Binary columns as `Packed`: all values in one buffer, which NumPy reads at any position.

`dense_columns` finds columns that compression does not make smaller, such as encrypted or random ones.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from fairway.pipeline.columnar.cursor import SPARE_BYTES, Packed

_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 4_096
"""Samples of a column: the number of values, and the bytes of each."""
_SAVED_SHARE: Final = 0.05
"""Least saving that is worth the time for compression."""
_QUICK: Final = pa.Codec("lz4")


def dense_columns(table: pa.Table) -> list[str]:
    """Return the binary columns that compression does not make smaller by `_SAVED_SHARE`, by a sample of their values.

    Such columns have hashes, encrypted contents, or compressed files.
    """
    return [
        field.name for field in table.schema if pa.types.is_binary(field.type) and _is_dense(table.column(field.name))
    ]


def _is_dense(column: pa.ChunkedArray) -> bool:
    places = np.linspace(0, len(column) - 1, min(len(column), _SAMPLES)).astype(np.int64)
    values = [column[place].as_buffer() for place in places.tolist()]
    sample = b"".join(memoryview(value)[:_SAMPLE_BYTES] for value in values if value is not None)
    compressed_bytes = len(_QUICK.compress(sample, asbytes=True))
    return compressed_bytes > (1 - _SAVED_SHARE) * len(sample)


def packed(payloads: pa.Array) -> Packed:
    """Return a column of binary or large binary in one buffer; null is empty."""
    offset_type = np.int32 if pa.types.is_binary(payloads.type) else np.int64
    _, offsets_buffer, values = payloads.buffers()
    if not len(payloads):
        return packed_bytes([])
    first, behind = payloads.offset, payloads.offset + len(payloads) + 1
    offsets = np.frombuffer(offsets_buffer, offset_type)[first:behind].astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    data = np.zeros(end - begin + SPARE_BYTES, np.uint8)
    if end > begin:
        data[: end - begin] = np.frombuffer(values, np.uint8)[begin:end]
    starts, ends = offsets[:-1] - begin, offsets[1:] - begin
    if payloads.null_count:
        # Arrow allows bytes in the buffer for a null.
        ends = np.where(payloads.is_valid().to_numpy(zero_copy_only=False), ends, starts)
    return Packed(data, starts, ends)


def packed_bytes(payloads: list[bytes]) -> Packed:
    """Return payloads in one buffer."""
    data = np.frombuffer(b"".join([*payloads, bytes(SPARE_BYTES)]), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
    return Packed(data, np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1]]), ends)
