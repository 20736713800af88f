"""`run_worlds` runs many worlds, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final

from fairway.simulation.plan import Plan
from fairway.simulation.report import Report
from fairway.simulation.world import simulate

LIMIT_S: Final = 300.0
"""Default CPU time of a world, in seconds; a world that needs more counts as hung."""
_WORLDS_OF_A_PROCESS: Final = 10
"""Worlds of one process, because the C library keeps the memory of a large world."""


def run_worlds(plans: Iterable[Plan], *, jobs: int, limit_s: float = LIMIT_S) -> Generator[Report]:
    """Run worlds in ``jobs`` processes, and yield their reports as they end.

    A world that needs more CPU time than ``limit_s`` is ended, and violates an invariant. Closing the generator ends
    the running worlds.
    """
    rest = iter(plans)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(jobs, context, initializer=_ignore_interrupts, max_tasks_per_child=_WORLDS_OF_A_PROCESS)
    begin = partial(pool.submit, partial(_simulate, limit_s=limit_s))
    running: set[Future[Report]] = set()
    try:
        while True:
            running |= {begin(plan) for plan in islice(rest, jobs - len(running))}
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()
    finally:
        for process in list((pool._processes or {}).values()) if running else ():  # noqa: SLF001 - terminate_workers is of Python 3.14
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _simulate(plan: Plan, *, limit_s: float) -> Report:
    with _limited(limit_s):
        return simulate(plan)


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raise `SystemExit` after ``limit_s`` of CPU time; an event loop passes it on."""

    def expired(_signal: int, _frame: object) -> None:
        raise SystemExit(f"it took more than {limit_s:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which all processes of a terminal get; the command handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
