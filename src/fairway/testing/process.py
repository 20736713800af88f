"""A simulated program: what runs in it, on a machine of its own, can be ended at once, as by kill -9."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fairway.environment import Environment, set_environment

if TYPE_CHECKING:
    from fairway.testing.loop import VirtualLoop

Result = TypeVar("Result")

START_NS: Final = 1_760_000_000_000_000_000
"""What a wall clock shows where virtual time begins, in nanoseconds since the Unix epoch: 2025-10-09 08:53:20 UTC."""


class Machine(Environment):
    """A machine under virtual time, whose wall clock is as wrong as it is told to be."""

    def __init__(self, loop: VirtualLoop, *, start_ns: int = START_NS, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms
        """How far the wall clock is ahead; may be set at any time, as somebody sets a clock."""
        self.loop = loop
        self._start_ns = start_ns

    def time_ns(self) -> int:
        """Return what the wall clock shows."""
        return self._start_ns + self.loop.time_ns() + self.skew_ms * 1_000_000

    def monotonic_ns(self) -> int:
        """Return the loop's time."""
        return self.loop.time_ns()

    def random_bytes(self, count: int) -> bytes:
        """Return bytes that follow from the loop's seed."""
        return self.loop.random.randbytes(count)


class Process:
    """One simulated program. Tasks and timers that begin in it belong to it."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.is_alive = True
        """Whether it has not been killed."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = copy_context()
        self._context.run(_PROCESS.set, self)
        self._context.run(set_environment, machine)

    def __repr__(self) -> str:
        return f"<Process {self.name!r}, {'alive' if self.is_alive else 'killed'}, {len(self._tasks)} tasks>"

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run a coroutine in it."""
        return asyncio.get_running_loop().create_task(work, name=self.name, context=self._context.copy())

    def run(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in it."""
        return self._context.copy().run(call, *arguments)

    def kill(self) -> None:
        """End it at once: nothing of it ever runs again, and nobody is told. Not to be called by the program itself.

        What it held outside, such as its node and its store, is for the caller to let go of, before.
        """
        self.is_alive = False
        tasks, self._tasks = list(self._tasks), {}
        for task in tasks:
            # Whatever its clean-up begins belongs to it, too, and never runs.
            self._context.copy().run(self.machine.loop.abandon, task)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Take note of a task that began in it."""
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))


_PROCESS: Final[ContextVar[Process | None]] = ContextVar("fairway.testing.process", default=None)


def process_of(context: Context | None) -> Process | None:
    """Return the program that a context belongs to; that of the running code for None."""
    return _PROCESS.get() if context is None else context.get(_PROCESS)
