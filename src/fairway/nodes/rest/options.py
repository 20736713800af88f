"""The options of a REST client of a node."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from fairway.errors import ConfigurationError
from fairway.nodes.rest.address import checked_token
from fairway.type_checks import check_fields

LONGEST_POLL_INTERVAL_S: Final = 1.0
NWAKU_CACHE_MESSAGES: Final = 50
"""Messages in nwaku's message cache, over all topics together: a poll that returns as many may have missed others."""


class ReceiveWay(Enum):
    """The endpoint that returns received messages."""

    EVENTS = "events"
    """``/events``, a stream, which ``fairway node`` has."""
    RELAY = "relay"
    """``/relay/v1``, by polling."""
    FILTER = "filter"
    """``/filter/v2``, by polling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestNodeOptions:
    """The options of a `RestNode`."""

    receive: tuple[ReceiveWay, ...] = (ReceiveWay.EVENTS, ReceiveWay.RELAY, ReceiveWay.FILTER)
    """Endpoints to try in this order; the first that the node offers is used."""
    token: str | None = field(default=None, repr=False)
    """Bearer token of the API (RFC 6750); None sends none."""
    tls_ca_file: Path | None = None
    """File with certificate authorities, in PEM form, to trust beside the system's for an ``https`` address."""
    shard_count: int = 8
    """Network shards of the cluster, for autosharding."""
    poll_interval_s: float = 1.0
    """Interval between polls that return no messages; at most 1 s."""
    request_timeout_s: float = 10.0
    """Longest wait for a response. A send takes at most `fairway.nodes.node.SEND_TIMEOUT_S`, even if this is longer."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.token is not None:
            checked_token(self.token, "token")
        if not self.receive:
            raise ConfigurationError("a REST client needs at least one way to receive")
        if not 0 < self.poll_interval_s <= LONGEST_POLL_INTERVAL_S:
            raise ConfigurationError(
                f"poll_interval_s must lie in (0, {LONGEST_POLL_INTERVAL_S:g}], not {self.poll_interval_s}: "
                "a node's cache is small"
            )
        if self.request_timeout_s <= 0:
            raise ConfigurationError(f"request_timeout_s must be above 0, not {self.request_timeout_s}")
