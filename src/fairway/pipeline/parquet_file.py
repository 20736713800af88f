"""`opened_parquet`: opens a Parquet file for reading, with buffers that suit the storage.

By default Arrow reads all wanted columns of a row group before it decodes the first row. This suits a storage in which
each read is a request. On a disk it needs memory for the whole row group, some 400 MB for 20,000 messages in segments.
Allocating this memory takes more time than decoding.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

_READ_BYTES: Final = 1_048_576
"""Bytes of a column in one read from a disk."""


def opened_parquet(
    source: Any,
    filesystem: FileSystem,
    metadata: pq.FileMetaData | None = None,
    *,
    dictionaries: Collection[str] = (),
) -> pq.ParquetFile:
    """Return an open file of a file system as a Parquet file; ``metadata``, if known, saves the read of its footer.

    Columns in ``dictionaries`` are read as dictionary arrays, which is faster for few distinct values in many rows.
    Raises `OSError` or `pyarrow.ArrowInvalid` if it is not a Parquet file.
    """
    told = {"metadata": metadata, "read_dictionary": list(dictionaries)}
    if isinstance(filesystem, LocalFileSystem):
        return pq.ParquetFile(source, pre_buffer=False, buffer_size=_READ_BYTES, **told)
    return pq.ParquetFile(source, **told)
