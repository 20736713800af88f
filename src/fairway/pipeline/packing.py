"""Columns of binary as `Packed`: their values one behind the other in one buffer, which NumPy reads at any place."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fairway.wire.columnar.cursor import SPARE_BYTES, Packed


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
        # Arrow allows bytes behind null.
        ends = np.where(payloads.is_valid().to_numpy(zero_copy_only=False), ends, starts)
    return Packed(data, starts, ends)


def packed_bytes(payloads: list[bytes]) -> Packed:
    """Return payloads in one buffer."""
    data = np.frombuffer(b"".join([*payloads, bytes(SPARE_BYTES)]), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, payloads), np.int64, len(payloads)))
    return Packed(data, np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1]]), ends)
