"""Worlds of light clients: the `LightNode` that ships, over streams under virtual time, with service nodes that ship.

`LightNetwork` takes the place of a `LocalNetwork`: it has as many service nodes as are wanted, each on a machine of its
own, and gives each participant a `LightSeat`, whose light client is started with its program and dies with it.
"""

from fairway.simulation.light.network import LightNetwork
from fairway.simulation.light.seat import LightSeat

__all__ = ["LightNetwork", "LightSeat"]
