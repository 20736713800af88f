"""The options of a REST server: addresses and origins; `bounds` has its limits."""

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
    """Address to listen on; loopback by default, because the API has no accounts."""
    port: int = 0
    """0 for any free one."""
    admin: bool = True
    """Whether there is ``/admin``."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages that may use the API, like ``https://example.org``, or ``*``; a browser names its page's origin."""
    cache_messages: int = NWAKU_CACHE_MESSAGES
    """Messages that wait to be fetched, in each of the two caches (relay and filter); the oldest gives way."""

    def __post_init__(self) -> None:
        if self.cache_messages < 1:
            raise ConfigurationError("a message cache holds at least one message")
        checked_origins(self.allowed_origins)
