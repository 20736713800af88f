"""The address of a node's REST API: ``http://127.0.0.1:8645``, ``https://user:password@example.org/waku``."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from fairway.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class RestAddress:
    """Where requests go, and what goes with each of them."""

    secure: bool
    """Whether over TLS."""
    host: str
    port: int | None
    """None for the usual one of http or https."""
    base_path: str
    """Goes before every path; without a slash at its end."""
    name: str
    """The address for people, without credentials."""
    headers: dict[str, str] = field(repr=False)
    """Of every request; with the credentials."""
    peer: str | None
    """Multiaddr of the store node that the node shall ask (``?peerAddr=``)."""

    @classmethod
    def parse(cls, address: str) -> Self:
        """Return the parts of an address, or raise `ConfigurationError`."""
        try:
            parts = urlsplit(address)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in {"http", "https"} or not host:
            raise ConfigurationError("not the address of a node's REST API; an example is http://127.0.0.1:8645")
        base_path = parts.path.rstrip("/")
        return cls(
            secure=parts.scheme == "https",
            host=host,
            port=port,
            base_path=base_path,
            name=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{base_path}",
            headers=_authorization(parts.username, parts.password),
            peer=parse_qs(parts.query).get("peerAddr", [None])[0],
        )


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    credentials = f"{unquote(user)}:{unquote(password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}
