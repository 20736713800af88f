"""Worlds for tests of campaigns: what a process imports that is to run one, with nothing that takes long to import."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import cache

from fairway.simulation.invariants import Invariant, Violation
from fairway.simulation.plan import SimulationPlan
from fairway.simulation.runner import simulate


@cache
def a_report():
    return simulate(SimulationPlan(participants=2, duration_ms=1_000, leaves=0, joins=0, partitions=0, settle_ms=0))


def fine(plan):
    # Its world was given no time to come to rest, which would take most of the time that these tests take.
    return replace(a_report(), plan=plan, violations=())


def broken(plan, invariant=Invariant.ORDER):
    violation = Violation(
        invariant=invariant, at_ms=None, participant="p00", request_id=None, sentence=f"seed {plan.seed} overtook"
    )
    return replace(fine(plan), violations=(violation,))


def breaks_in_every_third_world(plan):
    return broken(plan) if plan.seed % 3 == 0 else fine(plan)


def breaks_with_loss_in_company(plan):
    if plan.participants >= 4 and plan.loss > 0:
        return broken(plan)
    return broken(plan, Invariant.LOGS) if plan.participants < 4 else fine(plan)


def raises(plan):
    raise LookupError(f"nobody called {plan.seed}")


def never_ends(plan):
    while True:
        try:
            hash(plan)
        except Exception:  # noqa: BLE001 - what swallows all errors swallows no interrupt
            hash(plan)


_ran = []


def finds_what_ran_before(plan):
    _ran.append(plan.seed)
    return fine(plan) if _ran == [plan.seed] else broken(plan)


def kills_its_process(plan):
    if plan.seed == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    return fine(plan)


def sleeps_for_ever(plan):
    signal.pause()


def fine_but_for_one(plan):
    return never_ends(plan) if plan.seed == 1 else fine(plan)
