"""What a REST server is told when it starts: where it listens, and how much it gives to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError
from fairway.waku.libp2p.transports.web_origins import checked_origins

NWAKU_CACHE_MESSAGES: Final = 50
"""What nwaku's message caches hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOptions:
    """How the API is served."""

    host: str = "127.0.0.1"
    """Address to listen on, loopback unless told otherwise: the API has no accounts."""
    port: int = 0
    """0 for any free one."""
    admin: bool = True
    """Whether there is ``/admin``."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may use the API, like ``https://example.org``, or ``*``; a browser names its page's origin."""
    cache_messages: int = NWAKU_CACHE_MESSAGES
    """Messages that wait to be fetched, in each of the two caches (relay and filter); the oldest gives way."""
    cache_topics: int = 10_000
    """Topics that each of the caches is subscribed to."""
    max_body_bytes: int = 1_048_576
    """Of a request; longer ones are 413."""
    max_header_bytes: int = 65_536
    """Of a request; longer ones are 400."""
    max_connections: int = 1_000
    """Beyond it one on which no request is under way gives way to a new one."""
    max_requests: int = 64
    """Under way at once, event streams aside; beyond it the one whose body has been awaited longest gives way (408),
    and where no body is awaited the new one is 503."""
    max_event_streams: int = 256
    """At once; beyond it is 503."""
    event_stream_bytes: int = 8_388_608
    """Messages that wait for one reader of an event stream; the oldest give way, and an event says so."""
    heartbeat_s: float = 15.0
    """An event stream on which nothing happens says so this often."""
    request_timeout_s: float = 10.0
    """To receive a request, and to answer it."""
    stall_s: float = 30.0
    """How long a client may leave an answer unread."""

    def __post_init__(self) -> None:
        if self.cache_messages < 1 or self.cache_topics < 1:
            raise ConfigurationError("a message cache holds at least one message and one topic")
        if min(self.max_connections, self.max_requests, self.max_event_streams, self.max_body_bytes) < 1:
            raise ConfigurationError("the limits of the REST API must be at least 1")
        if min(self.heartbeat_s, self.request_timeout_s, self.stall_s) <= 0:
            raise ConfigurationError("the times of the REST API must be above 0")
        checked_origins(self.allowed_origins)
