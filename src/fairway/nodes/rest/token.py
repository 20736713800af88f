"""Bearer tokens of a REST API (RFC 6750): the words that a client sends, and the file that holds them.

Invariant: no error, name or ``repr`` shows a token.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fairway.errors import ConfigurationError

MIN_CHARACTERS: Final = 16
"""Shorter tokens can be guessed."""
MAX_CHARACTERS: Final = 4_096
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, "Authorization Request Header Field"."""


def checked_token(token: str, whose: str) -> str:
    """Return a token; raise `ConfigurationError` if it cannot be one. ``whose`` says where it comes from."""
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
        raise ConfigurationError(f"{path}: no token can be read: {error.strerror}") from error
    except UnicodeDecodeError:
        text = ""
    return checked_token(text.strip(), f"the content of {path}")


def authorization(token: str) -> dict[str, str]:
    """Return the header of a request with a token."""
    return {"Authorization": f"Bearer {token}"}
