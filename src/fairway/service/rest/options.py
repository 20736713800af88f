"""The options of a REST server: where it listens, and which web pages may use it."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.errors import ConfigurationError
from fairway.waku.libp2p.transports.web_origins import checked_origins
from fairway.waku.rest.options import NWAKU_CACHE_MESSAGES


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOptions:
    """The options of a `RestServer`."""

    host: str = "127.0.0.1"
    """Address to listen on; loopback by default, because the API has no accounts."""
    port: int = 0
    """Port to listen on; 0: any free port."""
    admin: bool = True
    """Whether ``/admin`` is served."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use the API, such as ``https://example.org``, or ``*`` for all."""
    cache_messages: int = NWAKU_CACHE_MESSAGES
    """Size of each of the two caches (relay and filter); a message beyond it replaces the oldest."""

    def __post_init__(self) -> None:
        if self.cache_messages < 1:
            raise ConfigurationError("a message cache holds at least one message")
        checked_origins(self.allowed_origins)
