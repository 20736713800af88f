"""The options of a light client; the defaults are those that WAKU-P2P-RELIABILITY recommends."""

from __future__ import annotations

from dataclasses import dataclass, field

from fairway.errors import ConfigurationError
from fairway.waku.libp2p.limits import HostLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class LightOptions:
    """How a light client behaves."""

    cluster_id: int | None = None
    """Peers of another cluster are parted with; None: whatever cluster the peers are of."""
    peers_to_use: int = 2
    """Light push and filter peers used at once."""
    request_timeout_s: float = 10.0
    """For a response."""
    ping_interval_s: float = 60.0
    """Between two filter pings (WAKU-P2P-RELIABILITY, "Filter": "we RECOMMEND 1 minute")."""
    max_failed_pings: int = 2
    """Failed pings in a row after which a filter peer is replaced."""
    presence_first_s: float = 1.5
    """How long after a message was sent store nodes are asked for it the first time; each further pause is twice as
    long."""
    presence_attempts: int = 5
    """How often they are asked; a message that they lack is sent again each time."""
    max_presence: int = 1_000
    """Messages that are looked after at once; beyond it the oldest are no longer."""
    host_limits: HostLimits = field(default_factory=HostLimits)

    def __post_init__(self) -> None:
        if self.peers_to_use < 1:
            raise ConfigurationError(f"peers_to_use must be at least 1, not {self.peers_to_use}")
        for name in ("request_timeout_s", "ping_interval_s", "presence_first_s"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"{name} must be above 0, not {getattr(self, name)}")
