"""`Access`: which requests the REST API answers, by their bearer tokens (RFC 6750).

There are two tokens, each of which may be missing: one for all calls but those under ``/admin``, and one for all. A
token is compared in constant time. With the first token alone nothing under ``/admin`` is answered.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from starlette.datastructures import Headers

from fairway.service.rest.answers import RefusedError
from fairway.service.rest.options import RestOptions

OPEN_TAG: Final = "docs"
"""Calls that say nothing of the node, such as the pages: they need no token."""
ADMIN_TAG: Final = "admin"
NO_ADMIN: Final = "/admin endpoints are not available. Please check your configuration: --rest-admin=true"
_NEEDED: Final = 'Bearer realm="fairway"'


class Access:
    """The tokens of one server."""

    def __init__(self, options: RestOptions) -> None:
        self._token: Final = _digest(options.token)
        self._admin_token: Final = _digest(options.admin_token)
        self.admin: Final = options.admin and (self._admin_token is not None or self._token is None)
        """Whether calls under ``/admin`` are answered at all."""

    def check(self, tag: str, headers: Headers) -> None:
        """Let a request pass to a call with this tag, or raise `RefusedError`: 401, 403, or 404 for no ``/admin``."""
        if tag == OPEN_TAG:
            return
        if tag == ADMIN_TAG and not self.admin:
            raise RefusedError(404, NO_ADMIN)
        needed = self._admin_token if tag == ADMIN_TAG else self._token
        if needed is None:
            return
        given = _digest(_token_of(headers))
        if given is None:
            raise RefusedError(401, "this call needs a token: Authorization: Bearer ...", {"WWW-Authenticate": _NEEDED})
        # Both comparisons are made in any case, so that the time says nothing.
        is_general, is_admin = _same(given, self._token), _same(given, self._admin_token)
        if is_admin or (is_general and tag != ADMIN_TAG):
            return
        if is_general:
            insufficient = {"WWW-Authenticate": f'{_NEEDED}, error="insufficient_scope"'}
            raise RefusedError(403, "this call needs the token for /admin", insufficient)
        raise RefusedError(401, "the token is wrong", {"WWW-Authenticate": f'{_NEEDED}, error="invalid_token"'})


def _token_of(headers: Headers) -> str | None:
    found = headers.getlist("authorization")
    scheme, _, token = found[0].partition(" ") if len(found) == 1 else ("", "", "")
    return (token.strip() or None) if scheme.lower() == "bearer" else None


def _digest(token: str | None) -> bytes | None:
    """Return a digest, whose length does not tell that of the token."""
    return None if token is None else hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _same(given: bytes, known: bytes | None) -> bool:
    return hmac.compare_digest(given, known or bytes(len(given)))
