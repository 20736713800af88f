"""What a service node is told when it starts. Every field has a default; together they make a node of its own network.

Sources of the defaults: 64/WAKU2-NETWORK for sizes and clocks, nwaku's for ports and page sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from fairway.errors import ConfigurationError
from fairway.service.archives import Retention
from fairway.waku.libp2p.limits import HostLimits
from fairway.waku.libp2p.transports.web_origins import checked_origins
from fairway.waku.protocols.filter_service import FilterLimits
from fairway.waku.protocols.request_limiter import RequestRate
from fairway.waku.protocols.rules import MAX_RELAYED_BYTES, MessageRules
from fairway.wire.topics import autoshard, pubsub_topic

DEFAULT_CLUSTER: Final = 1
"""The Waku Network."""
DEFAULT_SHARD_COUNT: Final = 8
"""Shards of The Waku Network; autosharding spreads content topics over them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """How a service node is set up."""

    cluster_id: int = DEFAULT_CLUSTER
    shards: tuple[int, ...] = tuple(range(DEFAULT_SHARD_COUNT))
    """The shards that this node relays and serves."""
    shard_count: int = DEFAULT_SHARD_COUNT
    """Shards of the whole cluster, which autosharding needs to know."""
    host: str = "127.0.0.1"
    """Address to listen on, loopback unless told otherwise."""
    tcp_port: int | None = 0
    """0 for any free one, None for none."""
    ws_port: int | None = 0
    """The same for WebSocket."""
    ws_origins: tuple[str, ...] = ()
    """Web pages that may connect to it, like ``https://example.org``, or ``*``. Those of this machine and of the node's
    own IP address may in any case, and programs, which name no origin."""
    peers: tuple[str, ...] = ()
    """Multiaddrs of nodes to stay connected to."""
    archive: str | None = field(default="memory:", repr=False)  # a URI may hold a password
    """Where messages are kept for store queries, see `open_archive`; None: no store service."""
    retention: Retention = field(default_factory=Retention)
    max_message_bytes: int = MAX_RELAYED_BYTES
    """Longer encoded messages are refused with 413."""
    request_rate: RequestRate | None = field(default_factory=lambda: RequestRate(per_second=200.0, burst=400))
    """What each peer may ask of each service; beyond it is 429."""
    filter_limits: FilterLimits = field(default_factory=FilterLimits)
    host_limits: HostLimits = field(default_factory=HostLimits)
    loss: float = 0.0
    """For tests: share of messages that the node loses on each way out of it, to relay peers and to each subscriber."""
    seed: int | None = None
    """For tests: what the losses follow from."""

    def __post_init__(self) -> None:
        checked_origins(self.ws_origins)
        if not 0 <= self.loss <= 1:
            raise ConfigurationError(f"loss is a share and must lie in 0..1, not {self.loss}")
        if not self.shards:
            raise ConfigurationError("a service node serves at least one shard; none was given")
        if beyond := [shard for shard in self.shards if not 0 <= shard < max(self.shard_count, 1)]:
            raise ConfigurationError(f"shards lie in 0..{self.shard_count - 1} in this cluster, not {beyond[0]}")

    @property
    def pubsub_topics(self) -> tuple[str, ...]:
        """The pubsub topics of the shards."""
        return tuple(pubsub_topic(self.cluster_id, shard) for shard in self.shards)

    def pubsub_topic_of(self, content_topic: str) -> str:
        """Return the shard of a content topic; raise `ConfigurationError` if it does not parse."""
        return autoshard(content_topic, self.cluster_id, self.shard_count)

    @property
    def rules(self) -> MessageRules:
        """What passes."""
        from_network = MessageRules.of_network(self.cluster_id, self.pubsub_topics)
        return MessageRules(
            pubsub_topics=from_network.pubsub_topics,
            max_message_bytes=self.max_message_bytes,
            max_clock_offset_ns=from_network.max_clock_offset_ns,
        )
