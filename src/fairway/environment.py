"""The services of the machine: the wall clock, the monotonic clock, random bytes, and threads.

Code outside the protocol calls this module, not `time` or `os`. `fairway.testing` can then run it on virtual machines:
several in one process, each with its own wall clock.
"""

from __future__ import annotations

import os
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Environment:
    """The real machine."""

    @property
    def only_loop(self) -> AbstractEventLoop | None:
        """The event loop of a virtual machine, which has no threads; None if threads can be used."""
        return None

    def time_ns(self) -> int:
        """Return nanoseconds since the Unix epoch; the clock may be set forwards or backwards."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Return nanoseconds of the monotonic clock, whose start is arbitrary."""
        return time.monotonic_ns()

    def random_bytes(self, count: int) -> bytes:
        """Return ``count`` cryptographically random bytes."""
        return os.urandom(count)


_CURRENT: Final[ContextVar[Environment]] = ContextVar("fairway.environment", default=Environment())  # noqa: B039 - it has no state


def environment() -> Environment:
    """Return the machine of the running context."""
    return _CURRENT.get()


def set_environment(machine: Environment) -> None:
    """Set the machine for this context and for tasks that are created in it."""
    _CURRENT.set(machine)


def time_ns() -> int:
    """Return nanoseconds since the Unix epoch by the wall clock of this context's machine."""
    return _CURRENT.get().time_ns()


def monotonic_s() -> float:
    """Return seconds of the monotonic clock of this context's machine."""
    return _CURRENT.get().monotonic_ns() / 1_000_000_000


def random_bytes(count: int) -> bytes:
    """Return ``count`` cryptographically random bytes of this context's machine."""
    return _CURRENT.get().random_bytes(count)


def new_uuid() -> str:
    """Return a random UUID (RFC 9562, version 4) as text."""
    return str(UUID(bytes=random_bytes(16), version=4))
