"""The network of a world: `LocalNetwork` under virtual time, as bad as its `NetworkFaults` say."""

from fairway.waku.local import LocalNetwork, LocalNode, NetworkFaults

__all__ = ["LocalNetwork", "LocalNode", "NetworkFaults"]
