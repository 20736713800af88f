"""A simulated Waku network inside one process.

``connect("local:")`` joins a `LocalNetwork` as a `LocalNode` (`process_network` returns that network). Tests of
programs use them as well. `NetworkFaults` sets the faults of the network.
"""

from fairway.nodes.local.faults import NO_FAULTS, NetworkFaults
from fairway.nodes.local.network import LocalNetwork, LocalNode, NetworkStatistics, process_network

__all__ = ["NO_FAULTS", "LocalNetwork", "LocalNode", "NetworkFaults", "NetworkStatistics", "process_network"]
