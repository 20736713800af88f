"""`opened_parquet`: opens a Parquet file for reading, with as much memory as the storage needs.

Arrow by default reads all wanted columns of a row group before it decodes the first row. Where each read takes a
request it is the right thing. On a disk it takes memory for the whole row group, some 400 MB for 20,000 messages in
segments, and to get that memory takes more time than to decode it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

_READ_BYTES: Final = 1_048_576
"""So much of a column is read at once from a disk."""


def opened_parquet(
    source: Any,
    filesystem: FileSystem,
    metadata: pq.FileMetaData | None = None,
    *,
    dictionaries: Collection[str] = (),
) -> pq.ParquetFile:
    """Return an open file of a file system as a Parquet file; its footer need not be read if it is known.

    Columns among ``dictionaries`` are read as such, which is quicker where values are few and rows many.
    Raises `OSError` or `pyarrow.ArrowInvalid` if it is none.
    """
    told = {"metadata": metadata, "read_dictionary": list(dictionaries)}
    if isinstance(filesystem, LocalFileSystem):
        return pq.ParquetFile(source, pre_buffer=False, buffer_size=_READ_BYTES, **told)
    return pq.ParquetFile(source, **told)
