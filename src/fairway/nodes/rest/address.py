"""The address of a node's REST API (``http://127.0.0.1:8645``), and the bearer tokens of such an API (RFC 6750).

Invariant: no error, name or ``repr`` shows a token or a password.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from fairway.errors import ConfigurationError

MIN_CHARACTERS: Final = 16
"""Shorter tokens can be guessed."""
MAX_CHARACTERS: Final = 4_096
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, "Authorization Request Header Field"."""


def checked_token(token: str, whose: str) -> str:
    """Return a token; raise `ConfigurationError` if it cannot be one. ``whose`` names its origin, for the error."""
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{whose} is no token: it has other characters than letters, digits and -._~+/=, or none; "
            "'openssl rand -hex 32' makes one"
        )
    if not MIN_CHARACTERS <= len(token) <= MAX_CHARACTERS:
        raise ConfigurationError(
            f"{whose} has {len(token)} characters, a token has {MIN_CHARACTERS} to {MAX_CHARACTERS}; "
            "'openssl rand -hex 32' makes one"
        )
    return token


def token_in(path: Path) -> str:
    """Return the token in a file, its first line; raise `ConfigurationError` if there is none."""
    try:
        with path.open(encoding="ascii") as file:
            text = file.read(MAX_CHARACTERS + 2)
    except OSError as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error.strerror}); give a file that holds the token"
        ) from error
    except UnicodeDecodeError:
        text = ""
    return checked_token(text.strip(), f"the content of {path}")


def authorization(token: str) -> dict[str, str]:
    """Return the header of a request with a token."""
    return {"Authorization": f"Bearer {token}"}


_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=~"
"""Characters of a path besides letters, digits and ``_.-`` (RFC 3986); others are written as ``%XX``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestAddress:
    """The parts of an address."""

    secure: bool
    """Whether to use TLS."""
    host: str
    """Host name in ASCII, as DNS and HTTP use it."""
    port: int | None
    """Port; None for the default of http or https."""
    base_path: str
    """Prefix of every path, without a slash at its end."""
    name: str
    """The address without credentials, for people."""
    headers: dict[str, str] = field(repr=False)
    """Headers of every request, with the credentials."""
    peer: str | None
    """Multiaddr of the store node that the node queries (``?peerAddr=``)."""

    @classmethod
    def parse(cls, address: str, *, token: str | None = None) -> Self:
        """Return the parts of an address, or raise `ConfigurationError`.

        ``token`` is a bearer token for all requests; ``?tokenFile=PATH`` in the address names a file that holds it.
        """
        try:
            parts = urlsplit(address)
            # A name that DNS cannot hold, like a..b, is an error here as well.
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
            base_path = quote(parts.path.rstrip("/"), safe=_PATH_CHARACTERS)
        except ValueError:
            parts, host, port, base_path = urlsplit(""), "", None, ""
        if parts.scheme not in {"http", "https"} or not host or not host.isprintable():
            raise ConfigurationError("not the address of a node's REST API; an example is http://127.0.0.1:8645")
        query = parse_qs(parts.query)
        if (file := query.get("tokenFile", [None])[0]) is not None:
            token = token_in(Path(file))
        if token is not None and parts.username is not None:
            raise ConfigurationError("the node's REST API is given a user and a token; give one of the two")
        return cls(
            secure=parts.scheme == "https",
            host=host,
            port=port,
            base_path=base_path,
            name=f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{base_path}",
            headers=_basic(parts.username, parts.password) if token is None else authorization(token),
            peer=query.get("peerAddr", [None])[0],
        )


def _basic(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    credentials = f"{unquote(user)}:{unquote(password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}
