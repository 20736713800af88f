"""Worlds for tests of campaigns: what a process imports that is to run one, with nothing that takes long to import."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace

from fairway.simulation.invariants import Invariant, Violation
from fairway.simulation.plan import SimulationPlan
from fairway.simulation.report import SimulationReport
from fairway.simulation.runner import simulate


@dataclass(frozen=True)
class Worlds:
    """Worlds that end as they are told to, each with the report of one that was run before: not again in each process.

    That one was given no time to come to rest, which would take most of the time that these tests take.
    """

    report: SimulationReport

    @classmethod
    def after_one(cls):
        plan = SimulationPlan(participants=2, duration_ms=1_000, leaves=0, joins=0, partitions=0, settle_ms=0)
        return cls(simulate(plan))

    def fine(self, plan):
        return replace(self.report, plan=plan, violations=())

    def broken(self, plan, invariant=Invariant.ORDER):
        violation = Violation(
            invariant=invariant, at_ms=None, participant="p00", request_id=None, sentence=f"seed {plan.seed} overtook"
        )
        return replace(self.fine(plan), violations=(violation,))

    def breaks_in_every_third_world(self, plan):
        return self.broken(plan) if plan.seed % 3 == 0 else self.fine(plan)

    def breaks_with_loss_in_company(self, plan):
        if plan.participants >= 4 and plan.loss > 0:
            return self.broken(plan)
        return self.broken(plan, Invariant.LOGS) if plan.participants < 4 else self.fine(plan)

    def finds_what_ran_before(self, plan):
        _ran.append(plan.seed)
        return self.fine(plan) if _ran == [plan.seed] else self.broken(plan)

    def kills_its_process(self, plan):
        if plan.seed == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        return self.fine(plan)

    def fine_but_for_one(self, plan):
        return never_ends(plan) if plan.seed == 1 else self.fine(plan)


_ran = []


def raises(plan):
    raise LookupError(f"nobody called {plan.seed}")


def never_ends(plan):
    while True:
        try:
            hash(plan)
        except Exception:  # noqa: BLE001 - what swallows all errors swallows no interrupt
            hash(plan)


def sleeps_for_ever(plan):
    signal.pause()
