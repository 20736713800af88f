"""Which web pages may open a WebSocket to a node (RFC 6455, section 10.2).

A browser opens a WebSocket for any page to any address that the browser reaches, also to this machine's own, and names
the page's origin (RFC 6454). Programs name none. Invariant: a page that somebody else serves is let in only if it was
named; whatever stands in the header is an answer, never an error.
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
"""As browsers write it (RFC 6454): no path, and no slash at the end."""
_MAX_TOLD: Final = 32
_SHOWN_CHARACTERS: Final = 200
_LOG: Final = logging.getLogger(__name__)


def checked_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Return origins, or raise `ConfigurationError` for one that no browser would write."""
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigurationError(
                f"{origin!r} is no origin of a page; give one like https://app.example.org, without a path, or '*'"
            )
    return tuple(origins)


class WebOrigins:
    """The pages that may connect: those of this machine, those of the node's own IP address, and those named."""

    def __init__(self, named: Sequence[str] = ()) -> None:
        """Raise `ConfigurationError` for what is no origin."""
        self._named: Final = frozenset(checked_origins(named))
        self._told: set[str] = set()

    def admit(self, origins: Sequence[str], host: str) -> bool:
        """Return whether a page may connect that has these ``Origin`` headers and connects to this ``Host``."""
        if not origins or "*" in self._named or (len(origins) == 1 and origins[0] in self._named):
            return True
        page = _host_of(origins[0]) if len(origins) == 1 else None
        # A name can be made to point here while the page is open; an address cannot.
        if page is not None and (is_loopback(page) or (_is_address(page) and page == _host_of(f"//{host}"))):
            return True
        if origins[0] not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(origins[0])
            shown = origins[0][:_SHOWN_CHARACTERS]
            _LOG.warning("a web page of %r was not let in; --ws-origin with its name lets it in", shown)
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
    """Return whether only this machine reaches what listens at an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
