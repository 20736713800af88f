"""Files that are replaced as a whole: a reader finds the old or the new one, and one process at a time changes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairway.storage.sqlite_errors import typed_errors
from fairway.storage.store_lock import StoreLock

_FOR_ALL: Final = 0o666
_PRIVATE: Final = 0o600


@contextmanager
def changing(path: Path) -> Iterator[None]:
    """Keep other processes from changing a file inside the block.

    Raises `StoreLockedError` while another process does, `StorageError` if the disk does not do what it is asked.
    """
    with typed_errors(path, "writing"):
        lock = StoreLock(path)
        try:
            yield
        finally:
            lock.release()


def replace_whole(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file: after a crash there is the old one or the new one. Only its owner may read it if ``private``."""
    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE if private else _FOR_ALL)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
