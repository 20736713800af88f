"""An event loop under virtual time, and the programs in it: it never waits, and the same seed gives the same run.

The clock stands still while anything is ready to run, then jumps to the next timer, so an hour of waiting costs what is
done in it. There are no threads and no sockets: what is given to an executor runs at once, on this thread.

asyncio promises that callbacks run in the order in which they were scheduled, and this loop keeps that. It promises no
order among tasks that are ready together; the seed draws it, so that a program that relies on one is found out.

A `Process` is one of several programs in a loop, on a `Machine` of its own. What runs in it can be ended at once, as by
kill -9: the loop passes over its callbacks from then on.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

from fairway.environment import Environment, set_environment
from fairway.units import NS_PER_MS, NS_PER_S

Result = TypeVar("Result")

START_NS: Final = 1_760_000_000_000_000_000
"""What a wall clock shows where virtual time begins, in nanoseconds since the Unix epoch: 2025-10-09 08:53:20 UTC."""
_MAX_TURNS: Final = 1_000_000
"""Turns of the loop at one moment, after which it counts as a program that runs in circles."""
_SHOWN: Final = 5


class Deadlock(RuntimeError):  # noqa: N818 - the term of the field
    """Every task waits for something that nobody is going to do, or runs without ever letting time pass."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs tasks in virtual time."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, seed: int = 0) -> None:
        """Make a loop whose clock shows 0 s. Close it after use."""
        super().__init__()
        self.random = random.Random(f"loop/{seed}")  # noqa: S311 - reproducible, and guards nothing
        """Draws the order of tasks, and the random bytes of the programs."""
        self.errors: list[dict[str, Any]] = []
        """What nobody else was told of, as `call_exception_handler` was."""
        self._now_ns = 0
        self._turns = 0
        self._until: Callable[[], bool] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __repr__(self) -> str:
        state = "closed" if self.is_closed() else f"at {self.time():.3f} s"
        return f"<VirtualLoop {state}, {len(self._tasks)} tasks, {len(self._scheduled)} timers>"

    def time(self) -> float:
        """Return seconds since the loop was made."""
        return self._now_ns / NS_PER_S

    def time_ns(self) -> int:
        """Return nanoseconds since the loop was made."""
        return self._now_ns

    @property
    def tasks(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks that are not done, without those of killed programs, in the order in which they began."""
        return tuple(self._tasks)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        """Run a coroutine, as part of the program whose code or context asks for it."""
        task: asyncio.Task[Any] = super().create_task(coro, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        process = process_of(context)
        if process is not None:
            process.adopt(task)
        return task

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002 - there are no threads
        func: Callable[..., Result],
        *args: Any,
    ) -> asyncio.Future[Result]:
        """Run a function at once, on this thread, and return a future of what it returned."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whoever awaits it is to have it
            future.set_exception(error)
        return future

    def run_for(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let so much time pass, and return True as soon as ``until`` holds, else False."""
        if until is not None and until():
            return True
        end = self.call_later(seconds, self.stop)
        self._until = until
        try:
            self.run_forever()
        finally:
            self._until = None
            end.cancel()
        return until is not None and until()

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep in `errors` what nobody waits for."""
        self.errors.append(context)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """Let a task never go on, and tell nobody of it. Its clean-up is done up to the first ``await``."""
        self._tasks.pop(task, None)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        with suppress(Exception, asyncio.CancelledError):
            task.get_coro().close()

    def close(self) -> None:
        """Let go of everything; tasks that are not done never go on."""
        if not self.is_running():
            for task in self.tasks:
                self.abandon(task)
        super().close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def _run_once(self) -> None:
        """Do one turn, as `asyncio.BaseEventLoop` asks of its children: let time pass if nothing is ready, then run."""
        if not self._ready:
            self._jump()
        self._turns += 1
        if self._turns > _MAX_TURNS:
            raise Deadlock(
                f"{_MAX_TURNS:,} turns of the loop without time passing: {self._waiting()} run in circles; let them "
                "await something that takes time"
            )
        batch = list(self._ready)
        self._ready.clear()
        if len(batch) > 1:
            self._mix(batch)
        for handle in batch:
            process = process_of(handle._context)  # type: ignore[attr-defined]
            if not handle.cancelled() and (process is None or process.is_alive):
                handle._run()
        if self._until is not None and self._until():
            self.stop()

    def _jump(self) -> None:
        """Let time pass until the next timer."""
        timers = self._scheduled
        while timers and timers[0].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(f"nothing will ever happen any more, but these tasks wait: {self._waiting()}")
        when = timers[0].when()
        self._now_ns = max(self._now_ns, round(when * NS_PER_S))
        self._turns = 0
        while timers and timers[0].when() <= when:
            timer = heapq.heappop(timers)
            if not timer.cancelled():
                self._ready.append(timer)

    def _mix(self, batch: list[asyncio.Handle]) -> None:
        """Exchange the places of tasks; other callbacks keep theirs."""
        places = [place for place, handle in enumerate(batch) if _is_task(handle)]
        if len(places) > 1:
            steps = [batch[place] for place in self.random.sample(places, len(places))]
            for place, step in zip(places, steps, strict=True):
                batch[place] = step

    def _waiting(self) -> str:
        names = [task.get_name() for task in self._tasks]
        return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")

    def _write_to_self(self) -> None:
        """Wake nobody: under virtual time there is one thread, which is awake."""


def _is_task(handle: asyncio.Handle) -> bool:
    """Return whether a handle is a step of a task."""
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


class Machine(Environment):
    """A machine under virtual time, whose wall clock is as wrong as it is told to be."""

    def __init__(self, loop: VirtualLoop, *, start_ns: int = START_NS, skew_ms: int = 0) -> None:
        self.skew_ms = skew_ms
        """How far the wall clock is ahead; may be set at any time, as somebody sets a clock."""
        self.loop = loop
        self._start_ns = start_ns

    def time_ns(self) -> int:
        """Return what the wall clock shows."""
        return self._start_ns + self.loop.time_ns() + self.skew_ms * NS_PER_MS

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
