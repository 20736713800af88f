"""The options of a REST server: its address and its access."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fairway.errors import ConfigurationError
from fairway.libp2p.transports.web_origins import checked_origins
from fairway.nodes.rest.address import checked_token
from fairway.type_checks import check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RestOptions:
    """The options of a `RestServer`."""

    host: str = "127.0.0.1"
    """Address to listen on; loopback by default. Without tokens every program that reaches the address can use the
    API."""
    port: int = 0
    """Port to listen on; 0: any free port."""
    token: str | None = field(default=None, repr=False)
    """Bearer token for all calls except the pages; None: none."""
    admin_token: str | None = field(default=None, repr=False)
    """Bearer token for calls under ``/admin``, valid for all other calls too; None: none, and no ``/admin`` if there is
    a ``token``."""
    allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may use the API, such as ``https://example.org``, or ``*`` for all."""
    tls_cert: Path | None = None
    """Certificate of the server with the chain of its authorities, in PEM form: the API is at ``https://`` then."""
    tls_key: Path | None = None
    """Key of that certificate, in PEM form without a password."""

    def __post_init__(self) -> None:
        check_fields(self)
        checked_origins(self.allowed_origins)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigurationError(
                "the certificate of the REST API and its key go together: give tls_cert and tls_key, or neither"
            )
        for name in ("token", "admin_token"):
            if (token := getattr(self, name)) is not None:
                checked_token(token, name)
        if self.token is not None and self.token == self.admin_token:
            raise ConfigurationError("token and admin_token are the same; give two, so that only one opens /admin")
