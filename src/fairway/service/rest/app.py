"""`make_app`: the ASGI application of the REST API.

Each of the `CALLS` is a route to its handler. `Access` checks the bearer tokens (RFC 6750); `Gate`
limits concurrent requests and the web pages that may use the API. All handlers have the same time limit, and their
errors become answers.

A ``HEAD`` request changes nothing (RFC 9110, 9.3.2): it is answered if ``GET`` changes nothing either, and otherwise
with 405. Only pages for people may be stored by a cache.

There are two optional tokens: one for all calls but those under ``/admin``, and one for all calls. Tokens are compared
in constant time. With the first token alone nothing under ``/admin`` is answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fairway.errors import FairwayError
from fairway.libp2p.transports.web_origins import is_loopback
from fairway.service.rest.admin import AdminEndpoints
from fairway.service.rest.answers import PlainText, RefusedError
from fairway.service.rest.context import Endpoints, RestContext
from fairway.service.rest.events import EventEndpoints
from fairway.service.rest.filter import FilterEndpoints
from fairway.service.rest.health import HealthEndpoints
from fairway.service.rest.lightpush import LightPushEndpoints
from fairway.service.rest.messaging import MessagingEndpoints
from fairway.service.rest.metrics import MetricsEndpoints
from fairway.service.rest.openapi import CALLS, Call
from fairway.service.rest.options import RestOptions
from fairway.service.rest.page_guard import is_from_own_page
from fairway.service.rest.pages import PageEndpoints
from fairway.service.rest.relay import RelayEndpoints
from fairway.service.rest.store import StoreEndpoints

MAX_REQUESTS: Final = 64
"""Requests under way at once, without event streams; a further one is answered with 503."""
ANSWER_TIMEOUT_S: Final = 20.0
"""Time to receive the body of a request and to answer it; after it the answer is 503."""

Handler = Callable[[Request], Awaitable[Response]]
_NO_ROUTE: Final = "this node has no such call; /docs lists those that it has"
_LOG: Final = logging.getLogger(__name__)
_ENDPOINTS: Final[dict[str, type[Endpoints]]] = {
    "node": HealthEndpoints,
    "relay": RelayEndpoints,
    "lightpush": LightPushEndpoints,
    "messaging": MessagingEndpoints,
    "filter": FilterEndpoints,
    "store": StoreEndpoints,
    "admin": AdminEndpoints,
    "events": EventEndpoints,
    "metrics": MetricsEndpoints,
    "docs": PageEndpoints,
}
"""The handlers of the calls with each tag."""
OPEN_TAG: Final = "docs"
"""Calls without data of the node, such as the pages; they need no token."""
ADMIN_TAG: Final = "admin"
NO_ADMIN: Final = "/admin endpoints are not available. Please check your configuration: --rest-admin=true"
_NEEDED: Final = 'Bearer realm="fairway"'


class Access:
    """The tokens of one server."""

    def __init__(self, options: RestOptions) -> None:
        self._token: Final = _digest(options.token)
        self._admin_token: Final = _digest(options.admin_token)
        self.admin: Final = self._admin_token is not None or self._token is None
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
        # Both comparisons always run, so that the time reveals nothing.
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
    """Return a digest, whose length is independent of the token's."""
    return None if token is None else hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _same(given: bytes, known: bytes | None) -> bool:
    return hmac.compare_digest(given, known or bytes(len(given)))


class _ShardConvertor(Convertor[str]):
    """A pubsub topic before another part of a path: paths are matched decoded, and a topic has slashes itself."""

    regex = "/waku/2/rs/[0-9]+/[0-9]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("shard", _ShardConvertor())


def make_app(context: RestContext) -> Gate:
    """Return the application that serves a node."""
    access = Access(context.options)
    endpoints = {tag: kind(context) for tag, kind in _ENDPOINTS.items()}
    routes = [_route(call, _limited(context, access, call, getattr(endpoints[call.tag], call.name))) for call in CALLS]
    origins = context.options.allowed_origins
    cross_origin = Middleware(
        CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST", "PUT", "DELETE"], allow_headers=["*"]
    )
    app = Starlette(
        routes=routes,
        middleware=[cross_origin] if origins else [],
        exception_handlers={HTTPException: _no_route},
    )
    app.router.redirect_slashes = False  # nwaku does not redirect /health/ to /health
    return Gate(context, app)


def _route(call: Call, handler: Handler) -> Route:
    pattern = call.path.replace("{pubsubTopic}/{", "{pubsubTopic:shard}/{").replace("Topic}", "Topic:path}")
    pattern = pattern.replace("{requestId}", "{requestId:path}")  # a request id may be empty
    route = Route(pattern, handler, methods=[call.verb])
    if route.methods is not None and call.consumes:
        route.methods.discard("HEAD")
    return route


def _limited(context: RestContext, access: Access, call: Call, handler: Handler) -> Handler:
    async def handle(request: Request) -> Response:
        try:
            access.check(call.tag, request.headers)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response = await handler(request)
        except RefusedError as refusal:
            response = refusal.response()
        except TimeoutError:
            response = PlainText("the node did not answer in time", 503)
        except FairwayError as error:
            _LOG.warning("%s failed: %s", call.operation_id, error)
            response = PlainText(str(error), 500)
        context.requests[call.operation_id, response.status_code] += 1
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return handle


class Gate:
    """Refuses requests of web pages that are not allowed, and requests beyond `MAX_REQUESTS`; passes on all others."""

    def __init__(self, context: RestContext, app: ASGIApp) -> None:
        self._context: Final = context
        self.app: Final = app
        """The application that gets the requests."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request, or refuse it."""
        context = self._context
        headers = Headers(scope=scope)
        # Without this check the page of any web site could use the node of its visitor.
        if not self._admits(headers):
            await PlainText("Origin not allowed", 403)(scope, receive, send)
        elif scope["path"] == "/events":
            await self.app(scope, receive, send)  # limited by MAX_EVENT_STREAMS instead
        elif context.under_way >= MAX_REQUESTS:
            await PlainText("too many requests at once; try again", 503)(scope, receive, send)
        else:
            with context.counting_request():
                await self.app(scope, receive, send)

    def _admits(self, headers: Headers) -> bool:
        context, allowed = self._context, self._context.options.allowed_origins
        if headers.get("origin") in allowed or "*" in allowed:
            return True
        return is_from_own_page(
            headers, has_tls=context.certificate is not None, is_local=is_loopback(context.options.host)
        )


async def _no_route(request: Request, error: Exception) -> Response:
    unnamed = {404} if request.method == "HEAD" else {404, 405}
    if isinstance(error, HTTPException) and error.status_code not in unnamed:
        return PlainText(error.detail, error.status_code, error.headers)
    return PlainText(_NO_ROUTE, 404)  # also for a method that a path does not have, as in nwaku
