"""`VirtualLoop`: an event loop under virtual time; `Process` and `Machine`: the programs in it.

The clock stands still while a callback is ready, then jumps to the next timer: waiting takes no time. The same seed
gives the same run. There are no threads and no sockets: an executor runs a function at once, a
`fairway.storage.sqlite_store.SqliteStore` writes on the loop, and connections are those of a `SimulatedInternet`. A
call from another thread ends the run (`ForeignThread`), because virtual time does not wait for threads.

Callbacks run in the order in which they were scheduled, as in asyncio. The seed draws the order of tasks that are ready
together, because asyncio does not define it.

A `Process` is one of several programs in a loop. Killing it, as with kill -9, makes the loop skip all its callbacks.
"""

from __future__ import annotations

import asyncio
import heapq
import inspect
import random
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

from fairway.environment import Environment, environment, set_environment
from fairway.testing.internet import LOOPBACK, SimulatedInternet, SimulatedServer
from fairway.units import NS_PER_MS, NS_PER_S

Result = TypeVar("Result")

START_NS: Final = 1_760_000_000_000_000_000
"""Wall-clock time at the start of virtual time, in Unix nanoseconds: 2025-10-09 08:53:20 UTC."""
_MAX_TURNS: Final = 1_000_000
"""Turns of the loop at one moment before `Deadlock` is raised."""
_MAX_CLEAN_UPS: Final = 100
"""Parts of the clean-up code of one task, such as one ``finally`` within another."""
_SHOWN: Final = 5


class Deadlock(RuntimeError):  # noqa: N818 - the term of the field
    """All tasks wait and no timer is set, or tasks run without end at one moment."""


class ForeignThread(RuntimeError):  # noqa: N818 - as `Deadlock`
    """Another thread called the loop, and virtual time does not wait for threads."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs tasks in virtual time."""

    _ready: deque[asyncio.Handle]
    _thread_id: int | None

    def __init__(self, seed: int = 0) -> None:
        """Make a loop whose clock shows 0 s. Close it after use."""
        super().__init__()
        self.random = random.Random(f"loop/{seed}")  # noqa: S311 - reproducible, not secret
        """Draws the order of tasks, and the random bytes of the programs."""
        self.errors: list[dict[str, Any]] = []
        """The contexts of `call_exception_handler`: errors that no code awaited."""
        self.internet = SimulatedInternet(self, seed)
        """The network between its machines."""
        self._now_ns = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """A heap of the times of timers, the order in which they were set, and the timers."""
        self._timers_set = 0
        self._turns = 0
        self._until: Callable[[], bool] | None = None
        self._foreign: ForeignThread | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __repr__(self) -> str:
        state = "closed" if self.is_closed() else f"at {self.time():.3f} s"
        return f"<VirtualLoop {state}, {len(self._tasks)} tasks, {len(self._timers)} timers>"

    def time(self) -> float:
        """Return seconds since the loop was made."""
        return self._now_ns / NS_PER_S

    def time_ns(self) -> int:
        """Return nanoseconds since the loop was made."""
        return self._now_ns

    @property
    def tasks(self) -> tuple[asyncio.Task[Any], ...]:
        """The tasks that are not done, without those of killed programs, in the order of their start."""
        return tuple(self._tasks)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> asyncio.Task[Any]:
        """Run a coroutine; the task belongs to the process of ``context``, or of the running code."""
        task: asyncio.Task[Any] = super().create_task(coro, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        process = process_of(context)
        if process is not None:
            process.adopt(task)
        return task

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call a function when the loop's time is ``when``, in seconds; of equal times, in the order of the calls."""
        self._check_closed()  # type: ignore[attr-defined]
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_set += 1
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002 - there are no threads
        func: Callable[..., Result],
        *args: Any,
    ) -> asyncio.Future[Result]:
        """Run a function at once, on this thread, and return a future of its result."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - the awaiting code gets it
            future.set_exception(error)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Call a function in the next turn; raise `ForeignThread` in another thread, and later in the loop."""
        if self._thread_id not in {None, threading.get_ident()}:
            name = threading.current_thread().name
            self._foreign = ForeignThread(
                f"the thread {name!r} called the loop, but virtual time does not wait for threads: give the work to "
                "asyncio.to_thread, which runs it at once, and open stores in the test itself"
            )
            raise self._foreign
        return super().call_soon_threadsafe(callback, *args, context=context)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        **_: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a server in `internet`, from the machine of the running program; there is no TLS."""
        if ssl is not None:
            raise OSError("there is no TLS under virtual time: connect without ssl")
        return await self.internet.connect(_address(), host, port or 0, protocol_factory)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        **_: Any,
    ) -> SimulatedServer:
        """Serve in `internet`, at the machine of the running program; port 0: any free port."""
        if ssl is not None:
            raise OSError("there is no TLS under virtual time: serve without ssl")
        return self.internet.listen(_address(), host, port or 0, protocol_factory)

    def run_for(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let virtual time pass, up to ``seconds``; return True as soon as ``until`` holds, else False."""
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
        """Add an error that no code awaits to `errors`."""
        self.errors.append(context)

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """End a task without a report. Each part of its clean-up code runs up to its first ``await``."""
        self._tasks.pop(task, None)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        _end(task.get_coro())

    def close(self) -> None:
        """Close the loop; tasks that are not done end where they are."""
        if not self.is_running():
            for task in self.tasks:
                self.abandon(task)
            self._timers.clear()
        super().close()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def _run_once(self) -> None:
        """Do one turn, as `asyncio.BaseEventLoop` requires: if nothing is ready let time pass, then run callbacks."""
        if self._foreign is not None:
            raise self._foreign
        if not self._ready:
            self._jump()
        self._turns += 1
        if self._turns > _MAX_TURNS:
            raise Deadlock(
                f"{_MAX_TURNS:,} turns of the loop at one moment: {self._waiting()} run without end; make them "
                "await something that takes time"
            )
        batch = list(self._ready)
        self._ready.clear()
        if len(batch) > 1:
            self._mix(batch)
        for handle in batch:
            process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]
            if not handle._cancelled and (process is None or process.is_alive):
                handle._run()
        if self._until is not None and self._until():
            self.stop()

    def _jump(self) -> None:
        """Let time pass until the next timer."""
        timers = self._timers
        while timers and timers[0][-1].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(
                f"no timer is set and no callback is ready, but these tasks wait: {self._waiting()}; "
                "virtual time waits for no thread"
            )
        when = timers[0][0]
        self._now_ns = max(self._now_ns, round(when * NS_PER_S))
        self._turns = 0
        while timers and timers[0][0] <= when:
            self._ready.append(heapq.heappop(timers)[-1])

    def _mix(self, batch: list[asyncio.Handle]) -> None:
        """Shuffle the tasks among the ready callbacks; other callbacks keep their positions."""
        places = [place for place, handle in enumerate(batch) if _is_task(handle)]
        if len(places) > 1:
            steps = [batch[place] for place in self.random.sample(places, len(places))]
            for place, step in zip(places, steps, strict=True):
                batch[place] = step

    def _waiting(self) -> str:
        names = [task.get_name() for task in self._tasks]
        return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")

    def _write_to_self(self) -> None:
        """Do nothing: there is only one thread."""


def _is_task(handle: asyncio.Handle) -> bool:
    """Return whether a handle is a step of a task."""
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


class Machine(Environment):
    """A machine under virtual time, with a wall clock that can be set."""

    def __init__(
        self, loop: VirtualLoop, *, start_ns: int = START_NS, skew_ms: int = 0, address: str = LOOPBACK
    ) -> None:
        self.address = address
        """Its IP address in the loop's `internet`."""
        self.skew_ms = skew_ms
        """Milliseconds by which the wall clock is ahead; can be set at any time."""
        self.loop = loop
        self._start_ns = start_ns

    @property
    def only_loop(self) -> VirtualLoop:
        """The loop, which replaces threads."""
        return self.loop

    def time_ns(self) -> int:
        """Return the time of the wall clock, in Unix nanoseconds."""
        return self._start_ns + self.loop.time_ns() + self.skew_ms * NS_PER_MS

    def monotonic_ns(self) -> int:
        """Return the loop's time."""
        return self.loop.time_ns()

    def random_bytes(self, count: int) -> bytes:
        """Return ``count`` bytes drawn from the loop's seed."""
        return self.loop.random.randbytes(count)


class Process:
    """One simulated program. Tasks and timers that it starts belong to it."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.is_alive = True
        """False once the program was killed."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._context = copy_context()
        self._context.run(_PROCESS.set, self)
        self._context.run(set_environment, machine)

    def __repr__(self) -> str:
        return f"<Process {self.name!r}, {'alive' if self.is_alive else 'killed'}, {len(self._tasks)} tasks>"

    def spawn(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run a coroutine in the program."""
        return asyncio.get_running_loop().create_task(work, name=self.name, context=self._context.copy())

    def run(self, call: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function in the program."""
        return self._context.copy().run(call, *arguments)

    def kill(self) -> None:
        """End the program at once: none of its callbacks runs again. The program itself must not call this.

        The caller first closes its node and its store.
        """
        self.is_alive = False
        while self._tasks:
            # Tasks that its clean-up starts belong to the killed program, too, and never run.
            task = next(iter(self._tasks))
            del self._tasks[task]
            self._context.copy().run(self.machine.loop.abandon, task)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Add a task that the program started."""
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))


def _end(coroutine: Any) -> None:
    """End a coroutine, beginning with the innermost coroutine that it awaits.

    Otherwise a coroutine that awaits something in its clean-up would remain.
    """
    for _ in range(_MAX_CLEAN_UPS):
        awaited = getattr(coroutine, "cr_await", None)
        if inspect.iscoroutine(awaited):
            _end(awaited)
        with suppress(Exception, asyncio.CancelledError):
            coroutine.close()
            return


def _address() -> str:
    """Return the address of the machine that runs the calling code."""
    machine = environment()
    return machine.address if isinstance(machine, Machine) else LOOPBACK


_PROCESS: Final[ContextVar[Process | None]] = ContextVar("fairway.testing.process", default=None)


def process_of(context: Context | None) -> Process | None:
    """Return the program of a context; for None the program of the running code."""
    return _PROCESS.get() if context is None else context.get(_PROCESS)
