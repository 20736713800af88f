"""The local networks that every part of a program can join by name, ``local:`` and ``local:NAME``.

Invariant: within one process a name means one network for as long as the process lives. Whoever wants faults, an
archive or a network of their own makes a `LocalNetwork`; the faults of these can be set as well.
"""

from __future__ import annotations

from typing import Final

from fairway.waku.local.network import LocalNetwork

_NETWORKS: Final[dict[str, LocalNetwork]] = {}


def process_network(name: str = "") -> LocalNetwork:
    """Return the network that ``connect("local:NAME")`` joins, a new one if nobody joined it yet."""
    network = _NETWORKS.get(name)
    if network is None or network.closed:
        network = _NETWORKS[name] = LocalNetwork()
    return network
