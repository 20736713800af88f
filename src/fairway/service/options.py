"""The options of a service node. With the defaults, the node is a network of its own.

Sizes and clock tolerances follow 64/WAKU2-NETWORK, ports and page sizes follow nwaku.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from fairway.errors import ConfigurationError
from fairway.libp2p.limits import HostLimits
from fairway.libp2p.transports.web_origins import checked_origins
from fairway.nodes.discovery.network import Network
from fairway.nodes.protocols.request_limiter import RequestRate
from fairway.nodes.protocols.rules import MAX_RELAYED_BYTES
from fairway.service.archives import MAX_AGE_S, Retention
from fairway.type_checks import check_fields
from fairway.wire.topics import SHARDS_PER_CLUSTER, autoshard, pubsub_topic

DEFAULT_CLUSTER: Final = 1
"""Cluster id of The Waku Network (64/WAKU2-NETWORK)."""
DEFAULT_SHARD_COUNT: Final = 8
"""Network shards of The Waku Network; autosharding maps content topics to them."""

PEERS_TO_FIND: Final = 8
"""Peers of the option ``network`` that a node stays connected to."""
DEFAULT_CONNECTIONS: Final = 2_048
"""Connections of a service node, most of them with light clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSyncOptions:
    """How the archive is synchronized with those of other store nodes; the defaults are those of nwaku."""

    interval_s: float = 300.0
    """Time between two sessions, each with one peer."""
    range_s: float = 3_600.0
    """Age of the oldest messages that are compared."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not (0 < self.interval_s <= MAX_AGE_S and 0 < self.range_s <= MAX_AGE_S):
            raise ConfigurationError(
                f"interval and range of a synchronization must be above 0 s and at most {MAX_AGE_S:g} s, not "
                f"{self.interval_s} s and {self.range_s} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """The options of a `ServiceNode`."""

    cluster_id: int = DEFAULT_CLUSTER
    """Cluster of the node."""
    shards: tuple[int, ...] = tuple(range(DEFAULT_SHARD_COUNT))
    """Network shards that the node relays and serves."""
    shard_count: int = DEFAULT_SHARD_COUNT
    """Network shards of the cluster, for autosharding; 0: no autosharding, each message names its shard."""
    host: str = "127.0.0.1"
    """IP address to listen on."""
    tcp_port: int | None = 0
    """TCP port to listen on; 0: any free port, None: no TCP."""
    ws_port: int | None = 0
    """Port for WebSocket; 0: any free port, None: no WebSocket."""
    ws_origins: tuple[str, ...] = ()
    """Origins of web pages that may connect, such as ``https://example.org``, or ``*`` for all. Pages of this machine
    and of the node's own IP address may always connect, and so may programs, which send no origin."""
    tls_cert: Path | None = None
    """File with the certificate of the WebSocket port and its chain, in PEM form: the port then speaks TLS, and only
    that. It is read again when it changes."""
    tls_key: Path | None = None
    """File with the certificate's key, in PEM form, without a password."""
    tls_ca_file: Path | None = None
    """File with certificate authorities, in PEM form, that the node trusts beside the system's when it dials others."""
    announce: tuple[str, ...] = ()
    """Multiaddrs at which others reach the node, for example behind a NAT or a proxy. By default those that it listens
    on; the machine's own addresses replace 0.0.0.0 and ::."""
    peers: tuple[str, ...] = ()
    """Multiaddrs of nodes to stay connected to."""
    network: Network | None = None
    """Network whose nodes are found and connected to; its cluster is ``cluster_id``."""
    peer_memory: Path | None = None
    """File for the found peers; None: they are not stored."""
    archive: str | None = field(default="memory:", repr=False)  # a URI may hold a password
    """Address of the archive for store queries (`open_archive`); None: no store service."""
    retention: Retention = field(default_factory=Retention)
    """Limits on the age and size of the archive."""
    store_sync: StoreSyncOptions | None = None
    """Synchronize the archive with those of connected store nodes (WAKU-SYNC); None: do not."""
    max_message_bytes: int = MAX_RELAYED_BYTES
    """Longer encoded messages are refused with 413."""
    request_rate: RequestRate | None = field(default_factory=lambda: RequestRate(per_second=200.0, burst=400))
    """Requests of each peer to each service; further ones are refused with 429. None: no limit."""
    host_limits: HostLimits = field(default_factory=lambda: HostLimits(max_connections=DEFAULT_CONNECTIONS))
    """Limits of the libp2p host."""
    loss: float = 0.0
    """For tests: share of messages, 0 to 1, that the node does not pass to relay peers and to each subscriber."""
    seed: int | None = None
    """For tests: seed of these losses."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.loss <= 1:
            raise ConfigurationError(f"loss is a share and must lie in 0..1, not {self.loss}")
        checked_origins(self.ws_origins)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigurationError("a certificate and its key go together: give tls_cert and tls_key, or neither")
        if self.tls_cert is not None and self.ws_port is None:
            raise ConfigurationError("TLS is for the WebSocket port: give a ws_port, or no tls_cert")
        if self.store_sync is not None and self.archive is None:
            raise ConfigurationError("store_sync needs an archive to synchronize: give one")
        if self.network is not None and self.network.cluster != self.cluster_id:
            raise ConfigurationError(f"the network is cluster {self.network.cluster}, cluster_id is {self.cluster_id}")
        if not self.shards:
            raise ConfigurationError("a service node serves at least one shard; none was given")
        count = self.shard_count or SHARDS_PER_CLUSTER
        if beyond := [shard for shard in self.shards if not 0 <= shard < count]:
            raise ConfigurationError(
                f"shards lie in 0..{count - 1} in this cluster, not {beyond[0]}; "
                "if it has more, set shard_count (--shards)"
            )

    @property
    def needs_peers(self) -> bool:
        """Whether the node is meant to have peers; without ``peers`` and ``network`` it is a network of its own."""
        return bool(self.peers) or self.network is not None

    @property
    def pubsub_topics(self) -> tuple[str, ...]:
        """The pubsub topics of ``shards``."""
        return tuple(pubsub_topic(self.cluster_id, shard) for shard in self.shards)

    def pubsub_topic_of(self, content_topic: str) -> str:
        """Return the pubsub topic of a content topic by autosharding; raise `ConfigurationError` if it has none."""
        if not self.shard_count:
            raise ConfigurationError("this network has no autosharding: name the pubsub topic")
        return autoshard(content_topic, self.cluster_id, self.shard_count)
