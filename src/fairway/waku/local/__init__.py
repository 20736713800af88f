"""A Waku network without the network: inside one process, or between processes of one machine.

`LocalNetwork` and its `LocalNode`s are what ``connect("local:")`` joins (`process_network` gives that one) and what
programs that use channels are tested with; `NetworkFaults` says how bad the network is. `NetworkServer` offers a
network to other processes over a loopback socket, and `RemoteNode` is a node there.
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
