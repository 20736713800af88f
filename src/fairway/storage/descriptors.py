"""`Descriptor`: an open file that carries a lock, and that a forked child does not keep.

The locks of flock(2) and of F_OFD_SETLK (fcntl(2)) belong to an open file description. Closing another descriptor of
the same file does not release them, whereas it releases all POSIX locks of the process on that file. They last until
every copy of the descriptor is closed. A child of `os.fork` has copies, so it closes them at once: otherwise it would
hold the lock after the end of its parent. Programs that a process starts never have them.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

FORK_LOCK: Final = threading.RLock()
"""Held during a fork. Code that keeps descriptors and a table of them consistent holds it too."""
_OPEN: Final[set[Descriptor]] = set()


class Descriptor:
    """An open file, until `close`."""

    def __init__(self, path: Path, flags: int, mode: int = 0o600) -> None:
        """Open a file with ``flags`` of `os.open`; ``mode`` applies if that creates it. Raises `OSError`."""
        with FORK_LOCK:
            self.number = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), mode)
            """The number of the descriptor; -1 when it is closed."""
            _OPEN.add(self)

    @property
    def is_open(self) -> bool:
        """Whether this process has the file open."""
        return self.number >= 0

    def close(self) -> None:
        """Close the file. Does nothing if it is closed, or was opened by the parent process."""
        with FORK_LOCK:
            _OPEN.discard(self)
            number, self.number = self.number, -1
            if number >= 0:
                os.close(number)


def _close_in_child() -> None:
    for descriptor in tuple(_OPEN):
        descriptor.close()
    FORK_LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=FORK_LOCK.acquire, after_in_parent=FORK_LOCK.release, after_in_child=_close_in_child)
