"""`WebOrigins`: which web pages may open a WebSocket to a node (RFC 6455, section 10.2).

A browser opens a WebSocket for any page to any address that it reaches, also on this machine, and sends the page's
origin (RFC 6454). Programs send none. Invariant: a page of another site may connect only if its origin is configured;
an invalid header raises no error.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from fairway.errors import ConfigurationError

_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^\s/?#@]+")
"""An origin as browsers write it (RFC 6454): without a path or a slash at the end."""
_MAX_TOLD: Final = 32
_SHOWN_CHARACTERS: Final = 200
_LOG: Final = logging.getLogger(__name__)


def checked_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Return origins, or raise `ConfigurationError` for an invalid one."""
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(
                f"{origin!r} is no origin of a page; give one like https://app.example.org, without a path, or '*'"
            )
    return tuple(origins)


class WebOrigins:
    """The pages that may connect: those of this machine, of the node's own IP address, and of the given origins."""

    def __init__(self, named: Sequence[str] = ()) -> None:
        """Raise `ConfigurationError` for an invalid origin."""
        self._named: Final = frozenset(checked_origins(named))
        self._told: set[str] = set()

    def admit(self, origins: Sequence[str], host: str) -> bool:
        """Return whether a page may connect, by the ``Origin`` headers and the ``Host`` header of its request."""
        if not origins or "*" in self._named or (len(origins) == 1 and origins[0] in self._named):
            return True
        page = _host_of(origins[0]) if len(origins) == 1 else None
        # The owner of a DNS name can let it point to this machine while the page is open; an IP address is safe.
        if page is not None and (is_loopback(page) or (_is_address(page) and page == _host_of(f"//{host}"))):
            return True
        if origins[0] not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(origins[0])
            shown = origins[0][:_SHOWN_CHARACTERS]
            _LOG.warning("a web page of %r was refused; --ws-origin with its name admits it", shown)
        return False


def _host_of(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _is_address(host: str) -> bool:
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
