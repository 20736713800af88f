"""The options of a light client; the defaults are those that WAKU-P2P-RELIABILITY recommends."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from fairway.errors import ConfigurationError
from fairway.libp2p.limits import HostLimits
from fairway.type_checks import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvancedLightOptions:
    """Intervals and limits that few programs change."""

    ping_interval_s: float = 60.0
    """Interval between filter pings (WAKU-P2P-RELIABILITY, "Filter": "we RECOMMEND 1 minute")."""
    max_failed_pings: int = 2
    """Failed pings in a row after which a filter peer is replaced."""
    confirm_after_s: float = 1.5
    """Time from sending a message to the first store query for it; the second one follows after twice that time."""
    host_limits: HostLimits = field(default_factory=HostLimits)
    """Limits of the libp2p host."""

    def __post_init__(self) -> None:
        check_fields(self)
        _require_positive(self, "ping_interval_s", "confirm_after_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class LightOptions:
    """The options of a light client."""

    cluster_id: int | None = None
    """Disconnect peers of another cluster; None: accept any cluster."""
    peers_to_use: int = 2
    """Light push and filter peers used at once."""
    request_timeout_s: float = 10.0
    """Longest wait for a response. A push takes at most `fairway.nodes.node.SEND_TIMEOUT_S`, whatever this is."""
    tls_ca_file: Path | None = None
    """File with certificate authorities, in PEM form, to trust beside the system's for nodes at ``/tls/ws``."""
    advanced: AdvancedLightOptions = field(default_factory=AdvancedLightOptions)
    """Intervals and limits that few programs change."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.peers_to_use < 1:
            raise ConfigurationError(f"peers_to_use must be at least 1, not {self.peers_to_use}")
        _require_positive(self, "request_timeout_s")

    def of_cluster(self, cluster_id: int) -> LightOptions:
        """Return these options for a cluster; raise `ConfigurationError` if they name another one."""
        if self.cluster_id not in {None, cluster_id}:
            raise ConfigurationError(
                f"the options are for cluster {self.cluster_id}, the network is cluster {cluster_id}"
            )
        return replace(self, cluster_id=cluster_id)


def _require_positive(options: object, *names: str) -> None:
    for name in names:
        if getattr(options, name) <= 0:
            raise ConfigurationError(f"{name} must be above 0, not {getattr(options, name)}")
