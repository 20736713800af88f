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
from typing import Final, NoReturn

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


class StoreLock:
    """The lock of a store, held from the constructor until `release`."""

    def __init__(self, store: Path, *, user: str = "channel", kind: str = "store", wait_s: float = 0.0) -> None:
        """Take the lock of a store at a resolved path; ``user`` and ``kind`` are words for the errors.

        Raises `StoreLockedError` if it is still held after ``wait_s`` seconds, and `OSError` if the lock file cannot be
        created.
        """
        self._descriptor = Descriptor(store.with_name(f"{store.name}.lock"), os.O_RDWR | os.O_CREAT)
        until_s = time.monotonic() + wait_s
        try:
            while not self._acquire():
                if time.monotonic() >= until_s:
                    self._refuse(store, user, kind)
                time.sleep(_POLL_S)
            os.ftruncate(self._descriptor.number, 0)
            os.write(self._descriptor.number, f"{os.getpid()}\n".encode())
        except BaseException:
            self._descriptor.close()
            raise

    def release(self) -> None:
        """Release the lock."""
        self._descriptor.close()

    def _acquire(self) -> bool:
        try:
            _lock(self._descriptor.number)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _refuse(self, store: Path, user: str, kind: str) -> NoReturn:
        holder = os.read(self._descriptor.number, 32).decode("ascii", "replace").strip() or "of unknown number"
        advice = f"or give each {user} its own {kind}"
        if holder == str(os.getpid()):
            raise StoreLockedError(
                f"{store} is open already in this process ({holder}): close the other {user} first, {advice}"
            )
        raise StoreLockedError(f"{store} is used by process {holder}: end that process or close its {user}, {advice}")
