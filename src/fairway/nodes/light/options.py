"""The options of a light client; the defaults are those that WAKU-P2P-RELIABILITY recommends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fairway.errors import ConfigurationError
from fairway.type_checks import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class LightOptions:
    """The options of a light client."""

    cluster_id: int | None = None
    """Disconnect peers of another cluster; None: accept any cluster."""
    peers_to_use: int = 2
    """Light push and filter peers used at once."""
    request_timeout_s: float = 10.0
    """Longest wait for a response. A push takes at most `fairway.nodes.node.SEND_TIMEOUT_S`, even if this is longer."""
    tls_ca_file: Path | None = None
    """File with certificate authorities, in PEM form, to trust beside the system's for nodes at ``/tls/ws``."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.peers_to_use < 1:
            raise ConfigurationError(f"peers_to_use must be at least 1, not {self.peers_to_use}")
        if self.request_timeout_s <= 0:
            raise ConfigurationError(f"request_timeout_s must be above 0, not {self.request_timeout_s}")

    def of_cluster(self, cluster_id: int) -> LightOptions:
        """Return these options for a cluster; raise `ConfigurationError` if they name another one."""
        if self.cluster_id not in {None, cluster_id}:
            raise ConfigurationError(
                f"the options are for cluster {self.cluster_id}, the network is cluster {cluster_id}"
            )
        return replace(self, cluster_id=cluster_id)
