"""Many worlds: `run_worlds` runs each in a process of its own, `shrink` makes a world that broke smaller."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from fairway.simulation.plan import MINUTE_MS, Plan
from fairway.simulation.report import Report
from fairway.simulation.world import simulate

LIMIT_S: Final = 300.0
"""Default CPU time of a world, in seconds; one that takes longer has hung."""
_WORLDS_OF_A_PROCESS: Final = 10
"""Worlds until a process ends, since the C library keeps the memory of a large world."""


def run_worlds(plans: Iterable[Plan], *, jobs: int, limit_s: float = LIMIT_S) -> Generator[Report]:
    """Run worlds in ``jobs`` processes, and yield their reports as they end.

    A plan is taken when its world can begin. A world that needs more CPU time than ``limit_s`` is ended, which violates
    an invariant. Closing the generator ends the worlds that run.
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


def shrink(broken: Report, *, until_s: float, limit_s: float = LIMIT_S) -> Report:
    """Return the report of the smallest plan found that breaks the same invariant, until ``time.monotonic()`` says so.

    A smaller plan draws other things from its seed, so that this is a search by trial.
    """
    invariant = broken.violations[0].invariant
    for plan in _smaller(broken.plan):
        if time.monotonic() >= until_s:
            return broken
        report = _simulate(plan, limit_s=limit_s)
        if any(violation.invariant is invariant for violation in report.violations):
            return shrink(report, until_s=until_s, limit_s=limit_s)
    return broken


def _smaller(plan: Plan) -> Iterator[Plan]:
    if plan.participants > 2:
        yield replace(plan, participants=max(2, plan.participants // 2))
    if plan.duration_ms > 2 * MINUTE_MS:
        yield replace(plan, duration_ms=plan.duration_ms // 2)
    if plan.loss:
        yield replace(plan, loss=0.0)
    for trouble in sorted(plan.troubles, key=lambda each: each.value):
        yield replace(plan, troubles=plan.troubles - {trouble})


def _simulate(plan: Plan, *, limit_s: float) -> Report:
    with _limited(limit_s):
        return simulate(plan)


@contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """Raise `SystemExit`, which an event loop lets through, after so much CPU time."""

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
    """Leave an interrupt of the keyboard, which all processes of a terminal get, to the command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
