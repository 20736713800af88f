"""`opened_parquet`: opens a Parquet file for reading, with as much memory as the storage needs.

Arrow by default reads all wanted columns of a row group before it decodes the first row. Where each read takes a
request it is the right thing. On a disk it takes memory for the whole row group, some 400 MB for 20,000 messages in
segments, and to get that memory takes more time than to decode it.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

_READ_BYTES: Final = 1_048_576
"""So much of a column is read at once from a disk."""


def opened_parquet(source: Any, filesystem: FileSystem, metadata: pq.FileMetaData | None = None) -> pq.ParquetFile:
    """Return an open file of a file system as a Parquet file; its footer need not be read if it is known.

    Raises `OSError` or `pyarrow.ArrowInvalid` if it is none.
    """
    if isinstance(filesystem, LocalFileSystem):
        return pq.ParquetFile(source, metadata=metadata, pre_buffer=False, buffer_size=_READ_BYTES)
    return pq.ParquetFile(source, metadata=metadata)
