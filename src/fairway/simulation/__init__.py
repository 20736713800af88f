"""Whole channels under virtual time, on a seeded network that loses, delays and copies.

A `World` holds participants, each a program on a `ReliableChannel`, as applications are. Hours pass in moments, and the
same seed gives the same run, message for message. `simulate` runs a whole `SimulationPlan` in one, holds the run
against the invariants and returns a `SimulationReport`.
"""

from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.simulation.report import SimulationReport
from fairway.simulation.runner import simulate
from fairway.simulation.world import World
from fairway.waku.local import NetworkFaults

__all__ = [
    "NetworkFaults",
    "SimulationPlan",
    "SimulationReport",
    "World",
    "replay_command",
    "simulate",
]
