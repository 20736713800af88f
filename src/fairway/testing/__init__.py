"""For tests of your own programs: an hour of a lossy network in a second, repeatable by its seed.

::

    @fairway.testing.virtual_time(seed=7)
    async def test_a_message_arrives_over_a_lossy_network():
        with LocalNetwork(NetworkFaults(loss=0.3), seed=7) as network:
            ...
            await asyncio.sleep(3600)

`LocalNetwork` is a Waku network in this process. `virtual_time` and `run` run a coroutine on a `VirtualLoop`. A
`Process` is one of several programs in such a loop: it has a `Machine` with its own wall clock and address, and it can
be killed. A `SimulatedDisk` holds the stores of these programs, and a `SimulatedInternet` their connections: light
clients and service nodes run in it unchanged.
"""

from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.testing.disk import DiskFault, DiskFaults, SimulatedDisk
from fairway.testing.internet import SimulatedInternet
from fairway.testing.loop import Deadlock, ForeignThread, Machine, Process, VirtualLoop
from fairway.testing.running import run, virtual_time

__all__ = [
    "Deadlock",
    "DiskFault",
    "DiskFaults",
    "ForeignThread",
    "LocalNetwork",
    "Machine",
    "NetworkFaults",
    "Process",
    "SimulatedDisk",
    "SimulatedInternet",
    "VirtualLoop",
    "run",
    "virtual_time",
]
