"""`LogGuard`: keeps the write-ahead log of an SQLite file in place while this process uses the file.

SQLite marks a file in use with POSIX locks. A process loses its POSIX locks on a file when it closes any descriptor of
that file (fcntl(2)), for example after a copy or a checksum. Another program that then opens and closes the file
removes the log. Later writes of this process go to a file without a name, and are lost when the process ends.

So a guard holds two of SQLite's locks once more, by open file descriptions of its own (F_OFD_SETLK):

* SHARED on the database file: no program can remove the log (https://sqlite.org/lockingv3.html);
* the "dead man's switch" on the file ``-shm``: no program truncates the index of the log
  (https://sqlite.org/walformat.html, "WAL Locks", and unixLockSharedMemory in os_unix.c).

All guards of a file in a process share these descriptors, because closing one of them drops POSIX locks as well. Linux
has such locks. On other systems a guard only detects the removal of the log, by `check` after each commit.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from fairway.errors import StorageError, StoreLockedError
from fairway.storage.descriptors import FORK_LOCK, Descriptor

if sys.platform != "win32":
    import fcntl

_SHARED: Final = (0x4000_0002, 510)
"""First byte and number of the bytes that SQLite locks to read a database file (SHARED_FIRST, SHARED_SIZE)."""
_DEAD_MAN_SWITCH: Final = (128, 1)
"""The same for the dead man's switch (UNIX_SHM_DMS)."""
_VERSIONS_AT: Final = 18
_VERSIONS_WITH_LOG: Final = b"\x02\x02"
"""Write and read version of a database with a write-ahead log (https://sqlite.org/fileformat2.html, 1.3.3)."""
_WAIT_S: Final = 5.0
"""Longest wait for a program with an exclusive lock, as SQLite takes to remove a log."""
_POLL_S: Final = 0.005

_HAS_LOCKS: Final = sys.platform == "linux"

_FileId = tuple[int, int]


class _Locks:
    """The locks of this process on one file, which its guards share."""

    def __init__(self, path: Path) -> None:
        self.database = Descriptor(path, os.O_RDONLY)
        self.users = 0
        self._index: Descriptor | None = None

    def lock_index(self, path: Path) -> None:
        """Lock the index of the log, if it exists and is not locked."""
        found = _file_id(path)
        if found is None or (self._index is not None and found == _id_of(os.fstat(self._index.number))):
            return
        try:
            index = Descriptor(path, os.O_RDONLY)
        except OSError:
            return
        if self._index is not None:
            self._index.close()
        self._index = index
        with suppress(OSError):
            _set_lock(index, fcntl.F_RDLCK, _DEAD_MAN_SWITCH)

    def close(self) -> None:
        self.database.close()
        if self._index is not None:
            self._index.close()


_TAKEN: Final[dict[_FileId, _Locks]] = {}


class LogGuard:
    """Guards the log of one file from the constructor on, or from `hold` on if the file has no log before."""

    def __init__(self, path: Path) -> None:
        """Guard a file before SQLite opens it.

        Raises `StoreLockedError` if another program holds an exclusive lock.
        """
        self._path = path.resolve()
        self._log = self._path.with_name(f"{self._path.name}-wal")
        self._log_id: _FileId | None = None
        self._key: _FileId = (0, 0)
        self._locks: _Locks | None = None
        self._lock_database()

    def __del__(self) -> None:
        """Close the descriptors, if the connection was dropped without being closed."""
        self.close()

    def hold(self) -> None:
        """Guard the log that SQLite has open now."""
        self._lock_database()
        with FORK_LOCK:
            if self._locks is not None:
                self._locks.lock_index(self._path.with_name(f"{self._path.name}-shm"))
        self._log_id = _file_id(self._log)

    def check(self, save: Callable[[], object]) -> None:
        """Raise `StorageError` if the log at its path is not the one that SQLite has open.

        If it was removed, ``save`` is called first, which copies the log into the file.
        """
        if self._log_id is None:
            return
        found = _file_id(self._log)
        if found == self._log_id:
            return
        if found is None:
            save()
        raise StorageError(
            f"{self._path}: another program {'removed' if found is None else 'replaced'} {self._log.name}, the log of "
            "this file, while it was in use: leave the files beside it alone, and open it again"
        )

    def unlock(self) -> None:
        """Let SQLite remove the log when it closes the last connection."""
        with FORK_LOCK:
            if self._locks is not None and self._locks.database.is_open and self._locks.users == 1:
                _set_lock(self._locks.database, fcntl.F_UNLCK, _SHARED)

    def close(self) -> None:
        """Release the locks. Can be called twice."""
        with FORK_LOCK:
            locks, self._locks = self._locks, None
            if locks is None:
                return
            locks.users -= 1
            if locks.users == 0:
                if _TAKEN.get(self._key) is locks:
                    del _TAKEN[self._key]
                locks.close()

    def _lock_database(self) -> None:
        until_s = time.monotonic() + _WAIT_S
        while _HAS_LOCKS:
            with FORK_LOCK:
                if self._locks is None:
                    self._join()
                if self._locks is None or _is_locked(self._locks.database):
                    return
            if time.monotonic() > until_s:
                raise StoreLockedError(f"{self._path}: another program holds it: close that program")
            time.sleep(_POLL_S)

    def _join(self) -> None:
        key = _file_id(self._path) if self._path.is_file() else None
        if key is None:
            return
        locks = _TAKEN.get(key)
        if locks is None or not locks.database.is_open:
            try:
                locks = _Locks(self._path)
            except OSError:
                return  # SQLite names the fault
            _TAKEN[key] = locks
        locks.users += 1
        self._key, self._locks = key, locks


def _is_locked(database: Descriptor) -> bool:
    """Lock a database, if it has a log; return False while another program holds an exclusive lock."""
    if os.pread(database.number, len(_VERSIONS_WITH_LOG), _VERSIONS_AT) != _VERSIONS_WITH_LOG:
        return True
    try:
        _set_lock(database, fcntl.F_RDLCK, _SHARED)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        return True  # the system has no such locks; `LogGuard.check` remains
    return True


def _set_lock(descriptor: Descriptor, kind: int, area: tuple[int, int]) -> None:
    # struct flock: l_type, l_whence, l_start, l_len, l_pid
    fcntl.fcntl(descriptor.number, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, *area, 0))


def _file_id(path: Path) -> _FileId | None:
    """Return the identity of a file; None if the file is missing."""
    try:
        return _id_of(path.stat())
    except OSError:
        return None


def _id_of(found: os.stat_result) -> _FileId:
    return found.st_dev, found.st_ino
