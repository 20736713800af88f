"""`SendOptions`: the options of a batch, beside its payloads and keys."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Final

from fairway.errors import ConfigurationError
from fairway.nodes.discovery.network import network_of
from fairway.options import BloomPolicy, Profile, RateLimitConfig, ReliableChannelOptions
from fairway.pipeline.outgoing.scheduled import check_limit
from fairway.wire.topics import pubsub_topic

KIND: Final = "send"
"""Value in ``run.json`` for a folder with the tables of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """Options of a batch. Raises `ConfigurationError` for invalid values."""

    channel_id: str | None = None
    """Default channel of the payloads."""
    sender_id: str | None = None
    """Default sender of the payloads."""
    content_topic: str | None = None
    """Default topic of the payloads; None is ``/fairway/1/CHANNEL/proto``."""
    channel: ReliableChannelOptions = field(default_factory=ReliableChannelOptions)
    """The options of all channels: cluster, shards, profile, segmentation, SDS, sizes."""
    shard: int | None = None
    """The network shard of all messages; None: for each content topic its shard by autosharding."""
    rate_limit: int | None = None
    """Transmissions allowed in an epoch, by the node's membership; None: no limit."""
    epoch_ms: int = RateLimitConfig().epoch_ms
    """Length of an epoch."""
    start_ms: int | None = None
    """Time of the batch in Unix milliseconds; None: now, or in an existing folder the time of its first attempt."""
    after: str | None = None
    """The store of a live channel, or the folder of a run, from which the states of the channels are read."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for invalid values."""
        if self.shard is not None:
            pubsub_topic(self.channel.cluster_id, self.shard)
        check_limit(self.rate_limit, self.epoch_ms)

    def as_json(self, start_ms: int) -> dict[str, Any]:
        """Return the options as values for JSON."""
        told = json.loads(json.dumps(asdict(self), default=_json_value))
        return {**told, "start_ms": start_ms, "kind": KIND, "format": "parquet"}


def channel_options(
    profile: Profile,
    parity_rate: float | None,
    bloom_policy: BloomPolicy | None = None,
    *,
    network: str | None = None,
    cluster: int | None = None,
    shards: int | None = None,
) -> ReliableChannelOptions:
    """Return a profile's options, with the given options replaced.

    ``network`` is the name or the file of a network (`network_of`), which has the cluster, the number of shards and the
    longest message. Raises `ConfigurationError` if ``cluster`` or ``shards`` is given, too.
    """
    options = profile.options()
    if network is not None:
        if cluster is not None or shards is not None:
            raise ConfigurationError(f"--network {network} says what --cluster and --shards are; leave these out")
        known = network_of(network)
        cluster, shards = known.cluster, known.shards
        longest = min(options.advanced.max_wire_message_bytes, known.max_message_bytes)
        options = replace(options, advanced=replace(options.advanced, max_wire_message_bytes=longest))
    if cluster is not None:
        options = replace(options, cluster_id=cluster)
    if shards is not None:
        options = replace(options, shard_count=shards)
    if parity_rate is not None:
        options = replace(options, segmentation=replace(options.segmentation, parity_rate=parity_rate))
    if bloom_policy is not None:
        options = replace(options, sds=replace(options.sds, bloom_policy=bloom_policy))
    return options


def _json_value(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"an option of type {type(value).__name__} is not for JSON")
