"""Files that are replaced as a whole: a reader finds the old or the new one, and one process at a time changes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.store_lock import StoreLock

BESIDE: Final = ".new"
"""Suffix of a file that is being written; a crash may leave one."""
_FOR_ALL: Final = 0o666
_PRIVATE: Final = 0o600


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file inside the block.

    Raises `StoreLockedError` while another process does, `StorageError` if the disk fails.
    """
    with typed_errors(path, "writing"):
        lock = StoreLock(path)
        try:
            yield
        finally:
            lock.release()


def replace_whole(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file, durably: after a crash the old or the new file exists.

    Only its owner may read it if ``private``. Raises `OSError` if the disk fails; then the old file remains.
    """
    beside = path.with_name(f".{path.name}{BESIDE}")
    beside.unlink(missing_ok=True)
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE if private else _FOR_ALL)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    make_durable(path.parent)


def make_durable(folder: Path) -> None:
    """Make the names in a folder durable, if the system supports it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
