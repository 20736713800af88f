"""The protocol under a virtual clock, on a seeded network that loses, delays and copies.

A `World` holds participants, each a `fairway.protocol.stack.Stack`, and a `LossyNetwork` between them. Nothing reads a
clock: hours pass in moments, and the same seed gives the same run, message for message. `simulate` runs a whole
`SimulationPlan` in one, holds the run against the invariants and returns a `SimulationReport`.
"""

from fairway.simulation.network import LossyNetwork, NetworkFaults
from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.simulation.report import SimulationReport
from fairway.simulation.runner import simulate
from fairway.simulation.world import World

__all__ = [
    "LossyNetwork",
    "NetworkFaults",
    "SimulationPlan",
    "SimulationReport",
    "World",
    "replay_command",
    "simulate",
]
