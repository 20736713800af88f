"""How a REST client of a node behaves: the endpoints it uses, how often it asks, how long it waits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairway.errors import ConfigurationError

NWAKU_CACHE_MESSAGES: Final = 50
"""What nwaku's message caches hold, over all topics together."""
LONGEST_POLL_INTERVAL_S: Final = 1.0


class SendWay(Enum):
    """How a message leaves."""

    LIGHTPUSH = "lightpush"
    """``/lightpush/v3``, whose answer says what became of the message."""
    RELAY = "relay"
    """``/relay/v1``."""
    LIGHTPUSH_V1 = "lightpush-v1"
    """``/lightpush/v1``, which go-waku and older nodes have."""


class ReceiveWay(Enum):
    """How messages come in."""

    EVENTS = "events"
    """``/events``, a stream, which nodes of ours have."""
    RELAY = "relay"
    """``/relay/v1``, asked again and again."""
    FILTER = "filter"
    """``/filter/v2``, the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestNodeOptions:
    """How a `RestNode` behaves."""

    send: tuple[SendWay, ...] = (SendWay.LIGHTPUSH, SendWay.RELAY, SendWay.LIGHTPUSH_V1)
    """In this order, the next one if the node does not offer one."""
    receive: tuple[ReceiveWay, ...] = (ReceiveWay.EVENTS, ReceiveWay.RELAY, ReceiveWay.FILTER)
    """The same."""
    shard_count: int = 8
    """Shards of the cluster, to know which shard the node's autosharding means."""
    poll_interval_s: float = 1.0
    """Between two questions for messages while there are none; at most 1 s."""
    busy_poll_interval_s: float = 0.1
    """The same after an answer that had some."""
    cache_messages: int = NWAKU_CACHE_MESSAGES
    """So many messages at once mean that others may have given way to them."""
    check_interval_s: float = 5.0
    """When messages are asked for, the store is looked through this often for some that were never there to be fetched:
    other programs that use the same node empty the same cache."""
    overlap_s: float = 30.0
    """How much before a gap a look through the store begins: clocks differ and messages are under way for a while."""
    request_timeout_s: float = 10.0
    silence_s: float = 45.0
    """An event stream on which nothing comes for so long, not even a sign of life, is dead."""
    health_interval_s: float = 5.0
    """Between two questions how the node is."""
    first_pause_s: float = 0.2
    """Before a second attempt to reach the node; each further pause is twice as long."""
    longest_pause_s: float = 10.0
    max_connections: int = 8
    """Connections for requests; each content topic that is received as a stream has another one."""

    def __post_init__(self) -> None:
        if not self.send or not self.receive:
            raise ConfigurationError("a REST client needs at least one way to send and one to receive")
        if not 0 < self.poll_interval_s <= LONGEST_POLL_INTERVAL_S:
            raise ConfigurationError(
                f"poll_interval_s must lie in (0, {LONGEST_POLL_INTERVAL_S:g}], not {self.poll_interval_s}: "
                "a node's cache is small"
            )
        times = (self.busy_poll_interval_s, self.check_interval_s, self.request_timeout_s, self.silence_s)
        if min(*times, self.health_interval_s, self.first_pause_s, self.longest_pause_s) <= 0 or self.overlap_s < 0:
            raise ConfigurationError("the times of a REST client must be above 0")
        if self.max_connections < 1 or self.cache_messages < 1:
            raise ConfigurationError("max_connections and cache_messages must be at least 1")
