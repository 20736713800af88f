"""What may differ between gossipsub routers: the size of a mesh, how messages are spread, and how much may wait.

Source: gossipsub 1.0 ("Parameters") and 1.1. All other parameters are constants of the modules that use them;
the values of both are those that Waku nodes use (29/WAKU2-CONFIG, nwaku's relay). Times are seconds of a steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairway.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipsubOptions:
    """Parameters of a router, under the names of the specification."""

    d: int = 6
    """Peers that a mesh should have."""
    d_low: int = 4
    """With fewer a mesh takes in more."""
    d_high: int = 8
    """With more a mesh lets some go."""
    d_score: int = 6
    """Of those that stay when some are let go, so many are the best ones."""
    d_out: int = 3
    """Of those that stay, so many are peers that this node dialled: they are harder to arrange for an attacker."""
    heartbeat_interval_s: float = 1.0
    unsubscribe_backoff_s: float = 5.0
    """How long a peer must wait before it grafts again after this node unsubscribed."""
    flood_publish: bool = True
    """Whether own messages go to all peers of the topic rather than to the mesh alone."""
    max_data_bytes: int = 1_048_576
    """Length of the data of a message."""
    max_outbox_bytes: int = 16_777_216
    """Messages that wait for one peer; beyond it the oldest give way."""
    max_waiting_bytes: int = 134_217_728
    """Messages that wait for all peers together, each counted once; beyond it those for the slowest peer give way."""

    def __post_init__(self) -> None:
        if not 0 <= self.d_low <= self.d <= self.d_high:
            raise ConfigurationError(
                f"a mesh needs 0 <= d_low <= d <= d_high, not {self.d_low}, {self.d} and {self.d_high}"
            )
        if self.d and not (self.d_out < max(self.d_low, 1) and self.d_out <= self.d // 2):
            raise ConfigurationError(f"d_out must be below d_low and at most d/2, not {self.d_out}")
