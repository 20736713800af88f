"""What a program gets from the machine that it runs on: the wall clock, a steady clock, and random bytes.

The shells ask here, never `time` and `os` themselves, so that `fairway.testing` can put a virtual machine in the place
of the real one: several of them in one process, each with a wall clock of its own.
"""

from __future__ import annotations

import os
import time
from contextvars import ContextVar
from typing import Final


class Environment:
    """The real machine."""

    def time_ns(self) -> int:
        """Return nanoseconds since the Unix epoch, by a clock that somebody may set."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return nanoseconds by a clock that nobody sets."""
        return time.monotonic_ns()

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that nobody can guess."""
        return os.urandom(count)


_CURRENT: Final[ContextVar[Environment]] = ContextVar("fairway.environment", default=Environment())  # noqa: B039 - it has no state


def environment() -> Environment:
    """Return the machine that the running code is on."""
    return _CURRENT.get()


def set_environment(machine: Environment) -> None:
    """Run whatever follows in this context, and the tasks that begin there, on a machine."""
    _CURRENT.set(machine)


def time_ns() -> int:
    """Return nanoseconds since the Unix epoch by the wall clock of the machine that the running code is on."""
    return _CURRENT.get().time_ns()
