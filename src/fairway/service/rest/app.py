"""`make_app`: the ASGI application of the REST API.

Each operation of the OpenAPI document is a route to its handler. `Access` checks the bearer tokens (RFC 6750); `Gate`
limits concurrent requests and the web pages that may use the API. All handlers have the same time limit, and their
errors become answers.

A ``HEAD`` request changes nothing (RFC 9110, 9.3.2): it is answered where ``GET`` changes nothing either, and with 405
elsewhere. Only pages for people may be stored by a cache.

There are two optional tokens: one for all calls but those under ``/admin``, and one for all calls. Tokens are compared
in constant time. With the first token alone nothing under ``/admin`` is answered.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

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
from fairway.service.rest.context import RestContext
from fairway.service.rest.events import EventEndpoints
from fairway.service.rest.filter import FilterEndpoints
from fairway.service.rest.health import HealthEndpoints
from fairway.service.rest.lightpush import push, push_v1
from fairway.service.rest.messaging import MessagingEndpoints
from fairway.service.rest.metrics import metrics
from fairway.service.rest.openapi import PATHS
from fairway.service.rest.options import RestOptions
from fairway.service.rest.pages import PageEndpoints
from fairway.service.rest.relay import RelayEndpoints
from fairway.service.rest.store import messages as store_messages

MAX_REQUESTS: Final = 64
"""Requests under way at once, without event streams. Beyond it the request whose body the server has awaited longest is
answered with 408; if the server awaits no body, the new request is answered with 503."""
ANSWER_TIMEOUT_S: Final = 20.0
"""Time to receive the body of a request and to answer it; after it the answer is 503."""

Handler = Callable[[Request], Awaitable[Response]]
_CONSUMING: Final = {
    "relay_messages",
    "relay_auto_messages",
    "filter_messages",
    "filter_shard_messages",
    "messaging_send_events",
    "messaging_events_of_send",
    "messaging_received",
    "events_stream",
}
"""Operations whose ``GET`` removes messages from a cache or occupies a place among the event streams."""
_NO_ROUTE: Final = "this node has no such call; /docs lists those that it has"
_LOG: Final = logging.getLogger(__name__)
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
    handlers = handlers_of(context)
    access = Access(context.options)
    routes = [
        _route(path, verb, operation["operationId"], _limited(context, access, operation, handlers))
        for path, operations in PATHS.items()
        for verb, operation in operations.items()
    ]
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


def handlers_of(context: RestContext) -> Mapping[str, Handler]:
    """Return the handlers by operation id."""
    health, relay = HealthEndpoints(context), RelayEndpoints(context)
    filters, messaging = FilterEndpoints(context), MessagingEndpoints(context)
    admin, pages = AdminEndpoints(context), PageEndpoints()
    return {
        "node_health": health.health,
        "node_info": health.info,
        "node_version": health.version,
        "node_debug_info": health.info,
        "node_debug_version": health.version,
        "relay_subscribe": relay.subscribe,
        "relay_unsubscribe": relay.unsubscribe,
        "relay_messages": relay.messages,
        "relay_publish": relay.publish,
        "relay_auto_subscribe": relay.auto_subscribe,
        "relay_auto_unsubscribe": relay.auto_unsubscribe,
        "relay_auto_messages": relay.auto_messages,
        "relay_auto_publish": relay.auto_publish,
        "lightpush_push": partial(push, context),
        "lightpush_push_v1": partial(push_v1, context),
        "filter_subscribe": filters.subscribe,
        "filter_resubscribe": filters.subscribe,
        "filter_unsubscribe": filters.unsubscribe,
        "filter_unsubscribe_all": filters.unsubscribe_all,
        "filter_ping": filters.ping,
        "filter_shard_messages": filters.messages,
        "filter_messages": filters.messages,
        "store_messages": partial(store_messages, context),
        "messaging_subscribe": messaging.subscribe,
        "messaging_unsubscribe": messaging.unsubscribe,
        "messaging_send": messaging.send,
        "messaging_send_events": messaging.send_events,
        "messaging_events_of_send": messaging.events_of_send,
        "messaging_received": messaging.received,
        "admin_peers": admin.peers,
        "admin_connect": admin.connect,
        "admin_service_peers": admin.service_peers,
        "admin_connected_peers": admin.peers,
        "admin_connected_peers_on_shard": admin.peers_on_shard,
        "admin_relay_peers": admin.relay_peers,
        "admin_relay_peers_on_shard": admin.relay_peers_on_shard,
        "admin_mesh_peers": admin.mesh_peers,
        "admin_mesh_peers_on_shard": admin.mesh_peers_on_shard,
        "admin_statistics": admin.statistics,
        "admin_peer": admin.peer,
        "admin_filter_subscriptions": admin.filter_subscriptions,
        "admin_log_level": admin.log_level,
        "events_stream": EventEndpoints(context).stream,
        "metrics_text": partial(metrics, context),
        "docs_openapi": pages.openapi,
        "docs_page": pages.docs,
        "docs_operator": pages.operator,
    }


def _route(path: str, verb: str, operation_id: str, handler: Handler) -> Route:
    pattern = path.replace("{pubsubTopic}/{", "{pubsubTopic:shard}/{").replace("Topic}", "Topic:path}")
    pattern = pattern.replace("{requestId}", "{requestId:path}")  # which may be empty
    route = Route(pattern, handler, methods=[verb])
    if route.methods is not None and operation_id in _CONSUMING:
        route.methods.discard("HEAD")
    return route


def _limited(
    context: RestContext, access: Access, operation: Mapping[str, Any], handlers: Mapping[str, Handler]
) -> Handler:
    operation_id, (tag,) = operation["operationId"], operation["tags"]
    handler = handlers[operation_id]

    async def handle(request: Request) -> Response:
        try:
            access.check(tag, request.headers)
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response = await handler(request)
        except RefusedError as refusal:
            response = refusal.response()
        except TimeoutError:
            response = PlainText("the node did not answer in time", 503)
        except FairwayError as error:
            _LOG.warning("%s failed: %s", operation_id, error)
            response = PlainText(str(error), 500)
        context.requests[operation_id, response.status_code] += 1
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
        # Otherwise the page of any web site could use the node of its visitor.
        if not self._admits(headers):
            await PlainText("Origin not allowed", 403)(scope, receive, send)
        elif scope["path"] == "/events":
            await self.app(scope, receive, send)  # limited by MAX_EVENT_STREAMS instead
        elif context.under_way >= MAX_REQUESTS and not context.awaited.give_way():
            await PlainText("too many requests at once; try again", 503)(scope, receive, send)
        else:
            with context.counting_request():
                await self.app(scope, receive, send)

    def _admits(self, headers: Headers) -> bool:
        options = self._context.options
        origin, host = headers.get("origin"), headers.get("host", "")
        if origin in options.allowed_origins or "*" in options.allowed_origins:
            return True
        if origin is not None:
            page = urlsplit(origin)
            # With TLS the certificate shows the browser that the page's name is that of this server.
            proven = self._context.certificate is not None and page.scheme == "https"
            return page.netloc == host and (proven or _is_address(host))
        # Browsers send no origin for images and links of other sites; a GET of messages would remove them.
        if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            return False
        # They send none for requests to the page's own site either, whose name may point to this machine by now (DNS
        # rebinding).
        return not host or _is_address(host) or not is_loopback(options.host)


def _is_address(host: str) -> bool:
    """Return whether a Host header is an address or local name, which DNS rebinding cannot use."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


async def _no_route(request: Request, error: Exception) -> Response:
    unnamed = {404} if request.method == "HEAD" else {404, 405}
    if isinstance(error, HTTPException) and error.status_code not in unnamed:
        return PlainText(error.detail, error.status_code, error.headers)
    return PlainText(_NO_ROUTE, 404)  # also for a method that a path does not have, as in nwaku
