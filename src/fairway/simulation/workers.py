"""Worlds in processes side by side: whatever a world does, hangs and crashes of its process included, is an outcome.

A world that raises, that takes longer than it may, or whose process ends has broken an invariant as much as one that
lost a message: the programs of participants must never do so.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any, Final

from fairway.simulation.plan import SimulationPlan
from fairway.simulation.report import SimulationReport
from fairway.simulation.runner import simulate

RAISES: Final = "nothing raises"
"""What a world broke that ended in an exception."""
ENDS: Final = "every world ends"
"""What a world broke that took too long."""

_CONTEXT: Final = multiprocessing.get_context("forkserver")
"""Forks of a process that has done nothing but imports: a fork of this one would share locks with its threads."""
_CONTEXT.set_forkserver_preload(["__main__", simulate.__module__])

World = Callable[[SimulationPlan], SimulationReport]
PATIENCE: Final = 10
"""How many times its CPU time a world may well take by the clock on the wall, which other programs slow down."""
_MANY: Final = 40
"""Participants of a world that may take longer than others, twice as long for twice as many."""
_MEMORY_BYTES: Final = 6 * 1024**3
"""What a process may take, lest a world that leaks takes the machine with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOutcome:
    """What came of one world."""

    plan: SimulationPlan
    report: SimulationReport | None
    """What happened in it; None if it did not come to its end."""
    violations: tuple[tuple[str, str], ...]
    """Which invariants were violated, and the sentence on each."""
    cpu_s: float
    """CPU time that it took."""

    @property
    def ok(self) -> bool:
        """Whether every invariant held."""
        return not self.violations


def run_worlds(
    plans: Iterable[SimulationPlan], *, jobs: int, limit_s: float, wall_s: float, world: World = simulate
) -> Generator[WorldOutcome]:
    """Run a world for each plan in a process of its own, so many side by side, and yield what comes of each as it ends.

    A plan is asked for when its world may begin and the outcome before it has been looked at, so that the caller can
    stop, or choose the next one. A world is ended that takes more CPU time than ``limit_s``, or more
    than ``wall_s`` without; one of more than 40 participants may take longer (`times_as_long`). To close the iterator
    ends what still runs.
    """
    rest = iter(plans)
    running: dict[Connection[Any, Any], _Process] = {}

    def begin(count: int) -> None:
        for plan in islice(rest, count):
            with _uninterrupted():
                process = _Process(plan, world, limit_s, wall_s)
                running[process.connection] = process

    try:
        begin(jobs)
        while running:
            earliest = min(process.until for process in running.values())
            ready = wait(running, max(0.0, earliest - time.monotonic()))
            late = [each for each, process in running.items() if time.monotonic() >= process.until]
            for connection in dict.fromkeys([*ready, *late]):
                outcome = running[connection].outcome()  # type: ignore[index]
                running.pop(connection).end()  # type: ignore[call-overload]
                yield outcome
                begin(1)
    finally:
        for process in running.values():
            process.end()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let an interrupt wait: one amid the start of a process leaves the server of processes with half a request."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def times_as_long(plan: SimulationPlan) -> float:
    """Return how many times as long as others a world may take because of its size."""
    return max(1.0, plan.participants / _MANY)


class _Process:
    """A process that runs one world: what it leaves behind in memory ends with it."""

    def __init__(self, plan: SimulationPlan, world: World, limit_s: float, wall_s: float) -> None:
        self.connection, theirs = _CONTEXT.Pipe(duplex=False)
        self._process = _CONTEXT.Process(target=_serve, args=(theirs, plan, world, limit_s), daemon=True)
        self._process.start()
        theirs.close()
        self._plan, self._wall_s = plan, wall_s * times_as_long(plan)
        self.until = time.monotonic() + self._wall_s

    def outcome(self) -> WorldOutcome:
        """Return what came of the plan, also where the process cannot say it any more."""
        try:
            if self.connection.poll():
                outcome: WorldOutcome = self.connection.recv()
                return outcome
        except (EOFError, ConnectionError):
            self._process.join()
            return _broken(self._plan, RAISES, f"the world's process ended with exit code {self._process.exitcode}")
        return _broken(self._plan, ENDS, f"the world was ended after {self._wall_s:g} s in which it did little")

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.connection.close()


class _TooLong(KeyboardInterrupt):
    """The world took longer than it may: nothing but an interrupt passes through an event loop."""


def _serve(connection: Connection[Any, Any], plan: SimulationPlan, world: World, limit_s: float) -> None:
    """Run a world, and send what came of it over a connection."""
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt is to end
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with suppress(ConnectionError):
        connection.send(_run(plan, world, limit_s))


def _end_with_parent() -> None:
    """End this process when the campaign that it works for is gone, in the midst of a world if need be."""
    campaign = multiprocessing.parent_process()
    if campaign is not None:
        campaign.join()
        os._exit(1)


def _run(plan: SimulationPlan, world: World, limit_s: float) -> WorldOutcome:
    began_s = time.process_time()
    limit_s *= times_as_long(plan)
    try:
        with _no_longer_than(limit_s):
            report = world(plan)
    except _TooLong:
        return _broken(
            plan, ENDS, f"the world was ended after {limit_s:g} s of CPU time:\n{traceback.format_exc()}", began_s
        )
    except (Exception, KeyboardInterrupt, SystemExit):  # noqa: BLE001 - whatever it is, it is what came of the world
        return _broken(plan, RAISES, traceback.format_exc(), began_s)
    return WorldOutcome(
        plan=plan,
        report=report,
        violations=tuple((violation.invariant.value, violation.sentence) for violation in report.violations),
        cpu_s=time.process_time() - began_s,
    )


def _broken(plan: SimulationPlan, invariant: str, sentence: str, began_s: float | None = None) -> WorldOutcome:
    cpu_s = 0.0 if began_s is None else time.process_time() - began_s
    return WorldOutcome(plan=plan, report=None, violations=((invariant, sentence.strip()),), cpu_s=cpu_s)


@contextmanager
def _no_longer_than(limit_s: float) -> Iterator[None]:
    """Raise within what runs once it took so much CPU time, and again should something have swallowed that."""

    def end(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, limit_s, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
