"""The protocol under a virtual clock, on a seeded network that loses, delays and copies.

A `World` holds participants, each a `fairway.protocol.stack.Stack`, and a `LossyNetwork` between them. Nothing reads a
clock: hours pass in moments, and the same seed gives the same run, message for message.
"""

from fairway.simulation.network import LossyNetwork, NetworkFaults
from fairway.simulation.world import World

__all__ = ["LossyNetwork", "NetworkFaults", "World"]
