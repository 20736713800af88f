"""A simulated Waku network: inside one process, or between processes of one machine.

``connect("local:")`` joins a `LocalNetwork` as a `LocalNode` (`process_network` returns that network); tests of
programs use them, too. `NetworkFaults` sets the faults of the network. `NetworkServer` offers a network to other
processes over a loopback socket; `RemoteNode` is a node there.
"""

from fairway.waku.local.faults import NO_FAULTS, NetworkFaults
from fairway.waku.local.hub import NetworkServer, ServerStatistics
from fairway.waku.local.network import LocalNetwork, NetworkStatistics, process_network
from fairway.waku.local.node import LocalNode
from fairway.waku.local.remote import RemoteNode

__all__ = [
    "NO_FAULTS",
    "LocalNetwork",
    "LocalNode",
    "NetworkFaults",
    "NetworkServer",
    "NetworkStatistics",
    "RemoteNode",
    "ServerStatistics",
    "process_network",
]
