"""`GossipsubOptions`: the size of meshes, and the longest message.

Source: gossipsub 1.0 ("Parameters") and 1.1. The other parameters are constants in the modules that use them. All have
the values of Waku nodes (29/WAKU2-CONFIG, nwaku's relay).
"""

from __future__ import annotations

from dataclasses import dataclass

from fairway.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipsubOptions:
    """Parameters of a router, with the names of the specification."""

    d: int = 6
    """Wanted size of a mesh."""
    d_low: int = 4
    """A mesh with fewer peers grafts more."""
    d_high: int = 8
    """A mesh with more peers prunes some."""
    d_out: int = 3
    """Peers dialled by this node that stay when a mesh prunes; an attacker cannot choose these."""
    flood_publish: bool = True
    """Whether messages of this node go to all peers of the topic and not only to the mesh."""
    max_data_bytes: int = 1_048_576
    """Largest size of the data of a message. A message whose RPC is longer is delivered and not sent to peers: nwaku
    reads no longer RPC than the longest message of its network, and resets the stream."""

    def __post_init__(self) -> None:
        if not 0 <= self.d_low <= self.d <= self.d_high:
            raise ConfigurationError(
                f"a mesh needs 0 <= d_low <= d <= d_high, not {self.d_low}, {self.d} and {self.d_high}"
            )
        if self.d and not (self.d_out < max(self.d_low, 1) and self.d_out <= self.d // 2):
            raise ConfigurationError(f"d_out must be below d_low and at most d/2, not {self.d_out}")
