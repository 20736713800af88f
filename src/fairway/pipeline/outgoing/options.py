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
"""In ``run.json``: whose tables a folder holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendOptions:
    """Options of a batch. Raises `ConfigurationError` for invalid values."""

    channel_id: str | None = None
    """The channel of payloads that do not name one."""
    sender_id: str | None = None
    """The sender of payloads that do not name one."""
    content_topic: str | None = None
    """The topic of payloads that do not name one; None is ``/fairway/1/CHANNEL/proto``."""
    channel: ReliableChannelOptions = field(default_factory=ReliableChannelOptions)
    """The options of all channels: cluster, shards, profile, segmentation, SDS, sizes."""
    shard: int | None = None
    """The network shard of all messages; None: for each content topic the one that autosharding gives."""
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
        """Return the options as JSON knows them."""
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
    """Return a profile's options, with those that are given in their place.

    ``network`` is the name or the file of a network (`network_of`), and gives cluster, number of shards and the longest
    message. Raises `ConfigurationError` if a cluster or a number of shards is given beside it.
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
