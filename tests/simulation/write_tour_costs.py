"""Write anew what the worlds of the first tour are known to cost: ``python -m tests.simulation.write_tour_costs``.

Each world is run so many times with other chances. Worlds that break an invariant are named: what is wrong is no
measure of what is right.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

from rich.console import Console

import fairway.simulation
from fairway.simulation.known_costs import FILE, KnownCosts
from fairway.simulation.runner import simulate
from fairway.simulation.tour import KINDS, tour_plan
from fairway.simulation.workers import run_worlds

_WORLD_S = 300.0


def main() -> None:
    """Run the tours and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12, help="tours with other chances")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worlds side by side")
    parser.add_argument("--keep", type=Path, help="also write each tour to this file, a line each")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True, markup=False, highlight=False)
    runs: list[dict[int, dict[str, int]]] = []
    broken = 0
    for chances in range(arguments.runs):
        plans = (tour_plan(seed) for seed in range(1, len(KINDS) + 1))
        world = partial(simulate, chances=chances)
        costs: dict[int, dict[str, int]] = {}
        with closing(
            run_worlds(plans, jobs=arguments.jobs, limit_s=_WORLD_S, wall_s=10 * _WORLD_S, world=world)
        ) as outcomes:
            for outcome in outcomes:
                for invariant, sentence in outcome.violations[:1]:
                    broken += 1
                    console.print(f"world {outcome.plan.seed} with chances {chances} broke: {invariant}: {sentence}")
                if outcome.report is not None:
                    costs[outcome.plan.seed] = dict(outcome.report.costs)
        if len(costs) < len(KINDS):
            sys.exit("a world did not come to its end")
        runs.append(costs)
        if arguments.keep is not None:
            with arguments.keep.open("a") as kept:
                kept.write(json.dumps(costs) + "\n")
        console.print(f"tour {chances + 1} of {arguments.runs}")
    path = Path(fairway.simulation.__path__[0]) / FILE
    path.write_text(KnownCosts.of_runs(runs).as_text(), encoding="utf-8")
    console.print(f"{path.name} is written" + (f"; {broken} worlds broke" if broken else ""))


if __name__ == "__main__":
    main()
