"""Whole channels under virtual time, on a network that loses, delays and duplicates messages.

`simulate` runs the world of a `Plan` and returns a `Report`. Hours pass in seconds, and the same plan gives the same
run. `replay_command` returns the command that runs a plan again.
"""

from fairway.simulation.plan import Plan, Trouble, replay_command
from fairway.simulation.report import Furps, Report
from fairway.simulation.world import World, simulate

__all__ = ["Furps", "Plan", "Report", "Trouble", "World", "replay_command", "simulate"]
