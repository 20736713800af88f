"""`StoreLock`: lets one process use a store, by a lock of the operating system, which ends with the process.

The lock file is not removed when the lock is released, because that could remove the lock of the next process. It holds
the id of the process that has, or last had, the lock, for the error message.

The lock is a POSIX record lock, not flock(2): a forked child does not inherit it, so that it cannot keep the store
locked after the end of this process. Such a lock does not exclude its own process; `_REGISTER` does.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

from fairway.errors import StoreLockedError

if sys.platform == "win32":
    import msvcrt

    # Other processes cannot read locked bytes, so the locked byte is far after the process id.
    _LOCKED_AT: Final = 1 << 30

    def _acquire(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_AT, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)
else:
    import fcntl

    def _acquire(descriptor: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_REGISTER: Final[dict[Path, int]] = {}
"""Lock file -> id of the process that holds it: a forked child has a copy of this."""
_REGISTER_LOCK: Final = threading.Lock()


class StoreLock:
    """The lock of a store, held from the constructor until `release`."""

    def __init__(self, store: Path, *, user: str = "channel", kind: str = "store") -> None:
        """Take the lock of a store at a resolved path; ``user`` and ``kind`` are words for the errors.

        Raises `StoreLockedError` if it is held already, and `OSError` if the lock file cannot be created.
        """
        self._path = store.with_name(f"{store.name}.lock")
        with _REGISTER_LOCK:
            if _REGISTER.get(self._path) == os.getpid():
                raise StoreLockedError(
                    f"{store} is open already in this process ({os.getpid()}): close the other {user} first, "
                    f"or give each {user} {_article(kind)} of its own"
                )
            advice = f"end that process or close its {user}, or give this {user} {_article(kind)} of its own"
            self._descriptor = _open_locked(self._path, store, advice)
            _REGISTER[self._path] = os.getpid()

    def release(self) -> None:
        """Release the lock."""
        with _REGISTER_LOCK:
            _REGISTER.pop(self._path, None)
            # Closing the file releases the lock. It must not be opened and closed for anything else meanwhile.
            os.close(self._descriptor)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def _open_locked(path: Path, store: Path, advice: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        try:
            _acquire(descriptor)
        except OSError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "of unknown number"
            raise StoreLockedError(f"{store} is used by process {holder}: {advice}") from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
