"""`GossipsubOptions`: the size of meshes, how messages are spread, and how many bytes may wait.

Source: gossipsub 1.0 ("Parameters") and 1.1. The other parameters are constants in the modules that use them. All have
the values of Waku nodes (29/WAKU2-CONFIG, nwaku's relay). Times are seconds of a steady clock.
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
    d_score: int = 6
    """Peers with the best scores that stay when a mesh prunes."""
    d_out: int = 3
    """Peers dialled by this node that stay when a mesh prunes; an attacker cannot choose these."""
    heartbeat_interval_s: float = 1.0
    unsubscribe_backoff_s: int = 5
    """Time for which peers must not graft again after this node has unsubscribed; whole seconds, at least 1."""
    flood_publish: bool = True
    """Whether messages of this node go to all peers of the topic and not only to the mesh."""
    max_data_bytes: int = 1_048_576
    """Largest size of the data of a message. A message whose RPC is longer is delivered and not sent to peers: nwaku
    reads no longer RPC than the longest message of its network, and resets the stream."""
    max_outbox_bytes: int = 16_777_216
    """Size of the messages that wait for one peer; beyond it the oldest are dropped."""
    max_waiting_bytes: int = 134_217_728
    """Size of the messages that wait for any peer, each counted once; beyond it the longest queue is dropped."""

    def __post_init__(self) -> None:
        if not 0 <= self.d_low <= self.d <= self.d_high:
            raise ConfigurationError(
                f"a mesh needs 0 <= d_low <= d <= d_high, not {self.d_low}, {self.d} and {self.d_high}"
            )
        if self.unsubscribe_backoff_s < 1:
            raise ConfigurationError(
                f"unsubscribe_backoff_s is {self.unsubscribe_backoff_s}; a prune carries whole seconds, at least 1"
            )
        if self.d and not (self.d_out < max(self.d_low, 1) and self.d_out <= self.d // 2):
            raise ConfigurationError(f"d_out must be below d_low and at most d/2, not {self.d_out}")
