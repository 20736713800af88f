"""`StoreLock`: lets one process use a store, by a lock of the operating system, which ends with the process.

The lock file is not removed when the lock is released, because that could remove the lock of the next process. It holds
the id of the process that has, or last had, the lock, for the error message.

The lock is flock(2), which a process keeps when it reads the lock file, for example to copy the folder
(`fairway.storage.descriptors`). It also excludes a second lock in the same process. On Windows a lock belongs to the
handle that took it, with the same effect.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Final

from fairway.errors import StoreLockedError
from fairway.storage.descriptors import Descriptor

if sys.platform == "win32":
    import msvcrt

    # Other processes cannot read locked bytes, so the locked byte is far after the process id.
    _LOCKED_AT: Final = 1 << 30

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_AT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_POLL_S: Final = 0.002
_HELD: Final[dict[Path, Descriptor]] = {}
"""Lock file -> its descriptor, which a forked child finds closed."""


class StoreLock:
    """The lock of a store, held from the constructor until `release`."""

    def __init__(self, store: Path, *, user: str = "channel", kind: str = "store", wait_s: float = 0.0) -> None:
        """Take the lock of a store at a resolved path; ``user`` and ``kind`` are words for the errors.

        Raises `StoreLockedError` if it is still held after ``wait_s`` seconds, and `OSError` if the lock file cannot be
        created.
        """
        self._path = store.with_name(f"{store.name}.lock")
        self._descriptor = Descriptor(self._path, os.O_RDWR | os.O_CREAT)
        try:
            self._acquire(store, user, f"an {kind}" if kind[0] in "aeiou" else f"a {kind}", wait_s)
            os.ftruncate(self._descriptor.number, 0)
            os.write(self._descriptor.number, f"{os.getpid()}\n".encode())
        except BaseException:
            self._descriptor.close()
            raise
        _HELD[self._path] = self._descriptor

    def release(self) -> None:
        """Release the lock."""
        if _HELD.get(self._path) is self._descriptor:
            del _HELD[self._path]
        self._descriptor.close()

    def _acquire(self, store: Path, user: str, store_of_its_own: str, wait_s: float) -> None:
        until_s = time.monotonic() + wait_s
        while True:
            try:
                _lock(self._descriptor.number)
            except (BlockingIOError, PermissionError) as error:
                if time.monotonic() >= until_s:
                    raise StoreLockedError(self._refusal(store, user, store_of_its_own)) from error
                time.sleep(_POLL_S)
            else:
                return

    def _refusal(self, store: Path, user: str, store_of_its_own: str) -> str:
        held = _HELD.get(self._path)
        if held is not None and held.is_open:
            return (
                f"{store} is open already in this process ({os.getpid()}): close the other {user} first, "
                f"or give each {user} {store_of_its_own} of its own"
            )
        holder = os.read(self._descriptor.number, 32).decode("ascii", "replace").strip() or "of unknown number"
        return (
            f"{store} is used by process {holder}: end that process or close its {user}, "
            f"or give this {user} {store_of_its_own} of its own"
        )
