"""The calls of the REST API, from which the server takes its routes, and the OpenAPI 3.1 document that describes them.

Paths, parameters and shapes follow nwaku's (``waku/rest_api/endpoint``); ``/events`` and ``/metrics`` are our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.json import schema_components

from fairway.nodes.rest.shapes import (
    ContentTopic,
    FilterAllRequest,
    FilterAnswer,
    FilterRequest,
    JsonMessage,
    MessageRequest,
    MessagingAnswer,
    MessagingRequest,
    PushAnswer,
    PushRequest,
    ReceivedRecord,
    SendStatus,
    StoredPage,
)
from fairway.service.rest.admin import FilterSubscription, Peer, PeerCounts, ShardPeers
from fairway.service.rest.answers import JSON, TEXT
from fairway.service.rest.health import Health, Info

Json = dict[str, Any]
_PubsubTopics = list[Annotated[str, Meta(examples=["/waku/2/rs/1/0"])]]
_ContentTopics = list[ContentTopic]
_Addresses = list[Annotated[str, Meta(examples=["/ip4/192.0.2.7/tcp/60000/p2p/16Uiu2..."])]]
_HTML: Final = "text/html"
_STREAM: Final = "text/event-stream"

_STATUSES: Final = {
    400: "The request is invalid or refused; the text says why.",
    404: "There is no such subscription, peer or send.",
    412: "Neither the node nor a connected peer keeps an archive.",
    413: "The body or the message is too long.",
    420: "The message breaks a rule of the network, like its timestamp.",
    421: "The node does not serve the pubsub topic.",
    429: "Too many requests.",
    500: "The archive, or the other store node, failed.",
    503: "Too many topics, messages or streams; or the network has no autosharding.",
    505: "The node has no relay peers.",
}
_PATH_PARAMETERS: Final = {
    "pubsubTopic": ("Percent-encoded in the path, like %2Fwaku%2F2%2Frs%2F1%2F0.", "/waku/2/rs/1/0"),
    "contentTopic": ("Percent-encoded in the path, like %2Fmyapp%2F1%2Froom%2Fproto.", "/myapp/1/room/proto"),
    "requestId": ("That of the request.", "5f0c9a1e7b3d42c86a10"),
    "shardId": ("Number of the shard.", "0"),
    "peerId": ("", "16Uiu2HAm6HZZr7aToTvEBPpiys4UxajCTU97zj5v7RNR2gbniy1D"),
    "logLevel": ("TRACE, DEBUG, INFO, NOTICE, WARN, ERROR or FATAL.", "INFO"),
}
_STORE_QUERY: Final = {
    "peerAddr": "Multiaddr of the store node to query; default: this node.",
    "includeData": "true: return messages and not only their hashes; default: false.",
    "pubsubTopic": "Messages of this pubsub topic.",
    "contentTopics": "Messages of any of these content topics, separated by commas.",
    "startTime": "First timestamp, in Unix nanoseconds.",
    "endTime": "Last timestamp, included, in Unix nanoseconds.",
    "hashes": "Messages with any of these hashes (0x...), separated by commas.",
    "cursor": "paginationCursor of the page before this one.",
    "ascending": "true: the oldest page first; default: true.",
    "pageSize": "Messages of a page; default: 20, at most 100.",
}
_EVENTS_QUERY: Final = {
    "contentTopics": "Messages of any of these content topics, separated by commas.",
    "pubsubTopic": "Pubsub topic of the content topics; default: by autosharding.",
    "lastEventId": "Id of the last event received, like the header Last-Event-ID: later messages come first.",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the API."""

    operation_id: str
    """Its tag and name, with ``_`` between."""
    route: str
    """Method and path."""
    summary: str
    answer: Any = TEXT
    """The JSON shape of the answer 200, or its content type."""
    _: KW_ONLY
    body: Any = None
    """The JSON shape of the body; None: the call has no body."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of the parameters in the query string."""
    errors: tuple[int, ...] = ()
    """Statuses of errors, beside the 400 and 413 of every call with a body. An error is text, unless the answer is a
    `FilterAnswer` or `PushAnswer`."""
    consumes: bool = False
    """Whether the call removes messages from a cache or occupies a place among the event streams."""

    @property
    def tag(self) -> str:
        """The group of the call."""
        return self.operation_id.partition("_")[0]

    @property
    def name(self) -> str:
        """The name of the method that handles the call."""
        return self.operation_id.partition("_")[2]

    @property
    def verb(self) -> str:
        """The HTTP method."""
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path, with its parameters in braces."""
        return self.route.partition(" ")[2]


_FILTERED: Final = (404, 429, 503)
_Messages = list[JsonMessage]

# fmt: off
CALLS: Final = (
    Call("node_health", "GET /health", "Health of the node and its protocols", Health),
    Call("node_info", "GET /info", "Addresses that the node listens on", Info),
    Call("node_version", "GET /version", "Name and version of the program"),
    Call("node_debug_info", "GET /debug/v1/info", "The same as /info", Info),
    Call("node_debug_version", "GET /debug/v1/version", "The same as /version"),
    Call("relay_subscribe", "POST /relay/v1/subscriptions", "Subscribe to pubsub topics", body=_PubsubTopics,
         errors=(503,)),
    Call("relay_unsubscribe", "DELETE /relay/v1/subscriptions", "Unsubscribe", body=_PubsubTopics),
    Call("relay_messages", "GET /relay/v1/messages/{pubsubTopic}",
         "Fetch the messages of a pubsub topic since the last call", _Messages, errors=(404,), consumes=True),
    Call("relay_publish", "POST /relay/v1/messages/{pubsubTopic}", "Publish on a pubsub topic", body=MessageRequest),
    Call("relay_auto_subscribe", "POST /relay/v1/auto/subscriptions", "Subscribe to content topics",
         body=_ContentTopics, errors=(503,)),
    Call("relay_auto_unsubscribe", "DELETE /relay/v1/auto/subscriptions", "Unsubscribe", body=_ContentTopics),
    Call("relay_auto_messages", "GET /relay/v1/auto/messages/{contentTopic}",
         "Fetch the messages of a content topic since the last call", _Messages, errors=(404,), consumes=True),
    Call("relay_auto_publish", "POST /relay/v1/auto/messages", "Publish on the shard of the content topic",
         body=MessageRequest),
    Call("lightpush_push", "POST /lightpush/v3/message", "Publish, and return the result", PushAnswer,
         body=PushRequest, errors=(420, 421, 429, 505)),
    Call("lightpush_push_v1", "POST /lightpush/v1/message", "The same with nwaku's older answers", body=PushRequest,
         errors=(429, 503)),
    Call("messaging_subscribe", "POST /messaging/v1/subscriptions", "Subscribe to content topics",
         body=_ContentTopics, errors=(503,)),
    Call("messaging_unsubscribe", "DELETE /messaging/v1/subscriptions", "Unsubscribe", body=_ContentTopics,
         errors=(503,)),
    Call("messaging_send", "POST /messaging/v1/messages",
         "Begin to send a message, and subscribe to its content topic", MessagingAnswer, body=MessagingRequest,
         errors=(503,)),
    Call("messaging_send_events", "GET /messaging/v1/events/send",
         "Fetch what became of all sends since the last call. The header X-Messaging-Dropped counts evicted records",
         list[SendStatus], consumes=True),
    Call("messaging_events_of_send", "GET /messaging/v1/events/send/{requestId}", "Fetch what became of one send",
         SendStatus, errors=(404,), consumes=True),
    Call("messaging_received", "GET /messaging/v1/events/received",
         "Fetch the received messages since the last call. The header X-Messaging-Dropped counts evicted records",
         list[ReceivedRecord], consumes=True),
    Call("filter_subscribe", "POST /filter/v2/subscriptions", "Subscribe to content topics", FilterAnswer,
         body=FilterRequest, errors=_FILTERED),
    Call("filter_resubscribe", "PUT /filter/v2/subscriptions", "The same as POST", FilterAnswer, body=FilterRequest,
         errors=_FILTERED),
    Call("filter_unsubscribe", "DELETE /filter/v2/subscriptions", "Unsubscribe", FilterAnswer, body=FilterRequest,
         errors=_FILTERED),
    Call("filter_unsubscribe_all", "DELETE /filter/v2/subscriptions/all", "Unsubscribe from all content topics",
         FilterAnswer, body=FilterAllRequest, errors=_FILTERED),
    Call("filter_ping", "GET /filter/v2/subscriptions/{requestId}", "Ask whether there is a subscription",
         FilterAnswer, errors=(404, 429)),
    Call("filter_shard_messages", "GET /filter/v2/messages/{pubsubTopic}/{contentTopic}",
         "The same for those on a pubsub topic, as in go-waku", _Messages, errors=(400,), consumes=True),
    Call("filter_messages", "GET /filter/v2/messages/{contentTopic}",
         "Fetch the messages of a content topic since the last call", _Messages, errors=(400,), consumes=True),
    Call("store_messages", "GET /store/v3/messages", "Query the archive: one page of messages", StoredPage,
         query=_STORE_QUERY, errors=(400, 412, 429, 500)),
    Call("admin_peers", "GET /admin/v1/peers", "List the connected peers", list[Peer]),
    Call("admin_connect", "POST /admin/v1/peers", "Connect to the peers at multiaddrs", body=_Addresses),
    Call("admin_service_peers", "GET /admin/v1/peers/service",
         "List the peers that serve a protocol of Waku, with these protocols", list[Peer]),
    Call("admin_connected_peers", "GET /admin/v1/peers/connected", "The same as /admin/v1/peers", list[Peer]),
    Call("admin_connected_peers_on_shard", "GET /admin/v1/peers/connected/on/{shardId}",
         "List the peers that relay a shard", list[Peer], errors=(400,)),
    Call("admin_relay_peers", "GET /admin/v1/peers/relay", "List the relay peers of each shard", list[ShardPeers]),
    Call("admin_relay_peers_on_shard", "GET /admin/v1/peers/relay/on/{shardId}", "List the relay peers of a shard",
         ShardPeers, errors=(400,)),
    Call("admin_mesh_peers", "GET /admin/v1/peers/mesh", "List the mesh of each shard", list[ShardPeers]),
    Call("admin_mesh_peers_on_shard", "GET /admin/v1/peers/mesh/on/{shardId}", "List the mesh of a shard", ShardPeers,
         errors=(400,)),
    Call("admin_statistics", "GET /admin/v1/peers/stats", "Count the peers by shard and protocol", PeerCounts),
    Call("admin_peer", "GET /admin/v1/peer/{peerId}", "Show one connected peer", Peer, errors=(400, 404)),
    Call("admin_filter_subscriptions", "GET /admin/v1/filter/subscriptions", "List the filter subscriptions of peers",
         list[FilterSubscription]),
    Call("admin_log_level", "POST /admin/v1/log-level/{logLevel}", "Set the level from which on the node logs",
         errors=(400,)),
    Call("events_stream", "GET /events",
         "Messages as they arrive: server-sent events `message` (data: an entry of a store page) and `gap`", _STREAM,
         query=_EVENTS_QUERY, errors=(400, 503), consumes=True),
    Call("metrics_text", "GET /metrics", "Numbers for Prometheus"),
    Call("docs_openapi", "GET /openapi.json", "This document", dict[str, Any]),
    Call("docs_page", "GET /docs", "This document for people, with a form to try each call", _HTML),
    Call("docs_operator", "GET /", "The node at work, for people", _HTML),
)
# fmt: on
_SECURITY: Final[Json] = {"docs": [], "admin": [{}, {"adminToken": []}]}
"""The tokens that the calls with a tag need, if they differ from those of other calls; {}: none, if none is set."""


def openapi_document(version: str) -> Json:
    """Return the OpenAPI document of this ``version`` of fairway."""
    named = [each for call in CALLS for each in (call.answer, call.body) if not isinstance(each, str | None)]
    described, components = schema_components(named, ref_template="#/components/schemas/{name}")
    schemas = {repr(shape): schema for shape, schema in zip(named, described, strict=True)}
    paths: Json = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.verb.lower()] = _operation(call, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fairway node",
            "version": version,
            "description": "A Waku service node; compatible with the REST API of nwaku.",
        },
        "paths": paths,
        "security": [{}, {"token": []}],
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": _bearer("--rest-token-file: for all calls but those under /admin"),
                "adminToken": _bearer("--rest-admin-token-file: for all calls"),
            },
        },
    }


def _operation(call: Call, schemas: Json) -> Json:
    in_path = [
        _parameter("path", name, description, required=True, example=example)
        for name, (description, example) in _PATH_PARAMETERS.items()
        if f"{{{name}}}" in call.path
    ]
    in_path.sort(key=lambda parameter: call.path.index(parameter["name"]))
    parameters = in_path + [_parameter("query", name, description) for name, description in call.query.items()]
    error = call.answer if call.answer in (FilterAnswer, PushAnswer) else TEXT
    statuses = sorted({*call.errors, *(() if call.body is None else (400, 413))})
    errors = {str(status): _content(error, schemas, _STATUSES[status]) for status in statuses}
    return {
        "operationId": call.operation_id,
        "tags": [call.tag],
        "summary": call.summary,
        **({"security": _SECURITY[call.tag]} if call.tag in _SECURITY else {}),
        **({"parameters": parameters} if parameters else {}),
        **({} if call.body is None else {"requestBody": {"required": True, **_content(call.body, schemas)}}),
        "responses": {"200": _content(call.answer, schemas, "OK"), **errors},
    }


def _parameter(place: str, name: str, description: str, **more: Any) -> Json:
    return {"name": name, "in": place, "schema": {"type": "string"}, "description": description, **more}


def _content(shape: Any, schemas: Json, description: str = "") -> Json:
    kind, schema = (shape, {"type": "string"}) if isinstance(shape, str) else (JSON, schemas[repr(shape)])
    return {**({"description": description} if description else {}), "content": {kind: {"schema": schema}}}


def _bearer(description: str) -> Json:
    return {"type": "http", "scheme": "bearer", "description": description}
