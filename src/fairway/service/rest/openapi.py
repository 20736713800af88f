"""The REST API as data: the OpenAPI 3.0 document, from which the server takes its routes.

Invariant: the server serves exactly the operations of `PATHS`; ``operationId`` names the handler. Paths, parameters and
schemas follow nwaku's (``waku/rest_api/endpoint``); ``/events`` and ``/metrics`` are our own.
"""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]


def _text(description: str) -> Json:
    return {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}


def _json(schema: Json, description: str = "OK") -> Json:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _array(items: Json) -> Json:
    return {"type": "array", "items": items}


def _body(schema: Json) -> Json:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _path(name: str, description: str, example: str) -> Json:
    schema = {"type": "string", "example": example}
    return {"name": name, "in": "path", "required": True, "schema": schema, "description": description}


def _query(name: str, kind: str, description: str) -> Json:
    return {"name": name, "in": "query", "schema": {"type": kind}, "description": description}


_SECURITY: Final[Json] = {"docs": [], "admin": [{}, {"adminToken": []}]}
"""The tokens that the calls with a tag need, where it is not the same one as for others; {}: none, if none is set."""


def _operation(
    operation_id: str, summary: str, *, answers: Json, parameters: list[Json] | None = None, body: Json | None = None
) -> Json:
    tag = operation_id.partition("_")[0]
    operation: Json = {"operationId": operation_id, "tags": [tag], "summary": summary, "responses": answers}
    if tag in _SECURITY:
        operation["security"] = _SECURITY[tag]
    if parameters:
        operation["parameters"] = parameters
    if body:
        operation["requestBody"] = body
    return operation


_DONE: Final = _text("OK")
_BAD: Final = _text("The request is invalid or refused; the text says why.")
_UNKNOWN: Final = _text("Not subscribed.")
_TOO_LONG: Final = _text("The body is too long.")
_TOPICS: Final = _body(_array({"type": "string", "example": "/waku/2/rs/1/0"}))
_CONTENT_TOPICS: Final = _body(_array({"type": "string", "example": "/myapp/1/room/proto"}))
_ADDRESSES: Final = _body(_array({"type": "string", "example": "/ip4/192.0.2.7/tcp/60000/p2p/16Uiu2..."}))
_PAGE: Final = {"200": {"description": "A page.", "content": {"text/html": {"schema": {"type": "string"}}}}}
_PUBSUB: Final = _path("pubsubTopic", "Percent-encoded in the path, like %2Fwaku%2F2%2Frs%2F1%2F0.", "/waku/2/rs/1/0")
_CONTENT: Final = _path(
    "contentTopic", "Percent-encoded in the path, like %2Fmyapp%2F1%2Froom%2Fproto.", "/myapp/1/room/proto"
)
_CHANGED: Final = {"200": _DONE, "400": _BAD, "413": _TOO_LONG}
_SUBSCRIBED: Final = {**_CHANGED, "503": _text("Too many topics.")}
_MESSAGING: Final = {**_CHANGED, "503": _text("The network has no autosharding, or too much is under way.")}


def _with_dropped(answered: Json) -> Json:
    dropped = {"schema": {"type": "integer"}, "description": "Records that were evicted since the last call."}
    return {**answered, "headers": {"X-Messaging-Dropped": dropped}}


def _on_shard(operation_id: str, summary: str, schema: Json) -> Json:
    shard = {"name": "shardId", "in": "path", "required": True, "schema": {"type": "integer", "example": 0}}
    return _operation(operation_id, summary, parameters=[shard], answers={"200": _json(schema), "400": _BAD})


_FILTERED: Final = {
    "200": _json(_ref("FilterAnswer")),
    "400": _json(_ref("FilterAnswer"), "The request is invalid."),
    "404": _json(_ref("FilterAnswer"), "There is no such subscription."),
    "413": _TOO_LONG,
    "429": _json(_ref("FilterAnswer"), "Too many requests."),
    "503": _json(_ref("FilterAnswer"), "Too many content topics."),
}
_REFUSED_PUSH: Final = {
    str(status): _json(_ref("PushAnswer"), description)
    for status, description in {
        400: "The request or the message is malformed.",
        413: "The message is too large.",
        420: "The message breaks a rule of the network, like its timestamp.",
        421: "The node does not serve the pubsub topic.",
        429: "Too many requests.",
        505: "The node has no relay peers.",
    }.items()
}

PATHS: Final[Json] = {
    "/health": {
        "get": _operation(
            "node_health", "Health of the node and its protocols", answers={"200": _json(_ref("Health"))}
        ),
    },
    "/info": {
        "get": _operation("node_info", "Addresses that the node listens on", answers={"200": _json(_ref("Info"))}),
    },
    "/version": {
        "get": _operation(
            "node_version", "Name and version of the program", answers={"200": _text("Name and version.")}
        ),
    },
    "/debug/v1/info": {
        "get": _operation("node_debug_info", "The same as /info", answers={"200": _json(_ref("Info"))}),
    },
    "/debug/v1/version": {
        "get": _operation("node_debug_version", "The same as /version", answers={"200": _text("Name and version.")}),
    },
    "/relay/v1/subscriptions": {
        "post": _operation("relay_subscribe", "Subscribe to pubsub topics", answers=_SUBSCRIBED, body=_TOPICS),
        "delete": _operation("relay_unsubscribe", "Unsubscribe", answers=_CHANGED, body=_TOPICS),
    },
    "/relay/v1/messages/{pubsubTopic}": {
        "get": _operation(
            "relay_messages",
            "Fetch the messages of a pubsub topic since the last call",
            parameters=[_PUBSUB],
            answers={"200": _json(_array(_ref("Message"))), "404": _UNKNOWN},
        ),
        "post": _operation(
            "relay_publish",
            "Publish on a pubsub topic",
            parameters=[_PUBSUB],
            body=_body(_ref("Message")),
            answers=_CHANGED,
        ),
    },
    "/relay/v1/auto/subscriptions": {
        "post": _operation(
            "relay_auto_subscribe", "Subscribe to content topics", answers=_SUBSCRIBED, body=_CONTENT_TOPICS
        ),
        "delete": _operation("relay_auto_unsubscribe", "Unsubscribe", answers=_CHANGED, body=_CONTENT_TOPICS),
    },
    "/relay/v1/auto/messages/{contentTopic}": {
        "get": _operation(
            "relay_auto_messages",
            "Fetch the messages of a content topic since the last call",
            parameters=[_CONTENT],
            answers={"200": _json(_array(_ref("Message"))), "404": _UNKNOWN},
        ),
    },
    "/relay/v1/auto/messages": {
        "post": _operation(
            "relay_auto_publish",
            "Publish on the shard of the content topic",
            body=_body(_ref("Message")),
            answers=_CHANGED,
        ),
    },
    "/lightpush/v3/message": {
        "post": _operation(
            "lightpush_push",
            "Publish, and return the result",
            body=_body(_ref("PushRequest")),
            answers={"200": _json(_ref("PushAnswer")), **_REFUSED_PUSH},
        ),
    },
    "/lightpush/v1/message": {
        "post": _operation(
            "lightpush_push_v1",
            "The same with nwaku's older answers",
            body=_body(_ref("PushRequest")),
            answers={**_CHANGED, "429": _text("Too many requests."), "503": _text("The message was refused.")},
        ),
    },
    "/messaging/v1/subscriptions": {
        "post": _operation(
            "messaging_subscribe", "Subscribe to content topics", answers=_MESSAGING, body=_CONTENT_TOPICS
        ),
        "delete": _operation("messaging_unsubscribe", "Unsubscribe", answers=_MESSAGING, body=_CONTENT_TOPICS),
    },
    "/messaging/v1/messages": {
        "post": _operation(
            "messaging_send",
            "Begin to send a message, and subscribe to its content topic",
            body=_body(_ref("MessagingRequest")),
            answers={**_MESSAGING, "200": _json(_ref("MessagingAnswer"))},
        ),
    },
    "/messaging/v1/events/send": {
        "get": _operation(
            "messaging_send_events",
            "Fetch what became of all sends since the last call",
            answers={"200": _with_dropped(_json(_array(_ref("SendStatus"))))},
        ),
    },
    "/messaging/v1/events/send/{requestId}": {
        "get": _operation(
            "messaging_events_of_send",
            "Fetch what became of one send",
            parameters=[_path("requestId", "That of the answer to the send.", "5f0c9a1e7b3d42c86a10")],
            answers={"200": _json(_ref("SendStatus")), "404": _text("No events of it are there now.")},
        ),
    },
    "/messaging/v1/events/received": {
        "get": _operation(
            "messaging_received",
            "Fetch the received messages since the last call",
            answers={"200": _with_dropped(_json(_array(_ref("ReceivedRecord"))))},
        ),
    },
    "/filter/v2/subscriptions": {
        "post": _operation(
            "filter_subscribe",
            "Subscribe to content topics",
            body=_body(_ref("FilterRequest")),
            answers=_FILTERED,
        ),
        "put": _operation(
            "filter_resubscribe", "The same as POST", body=_body(_ref("FilterRequest")), answers=_FILTERED
        ),
        "delete": _operation("filter_unsubscribe", "Unsubscribe", body=_body(_ref("FilterRequest")), answers=_FILTERED),
    },
    "/filter/v2/subscriptions/all": {
        "delete": _operation(
            "filter_unsubscribe_all",
            "Unsubscribe from all content topics",
            body=_body(_ref("FilterAllRequest")),
            answers=_FILTERED,
        ),
    },
    "/filter/v2/subscriptions/{requestId}": {
        "get": _operation(
            "filter_ping",
            "Ask whether there is a subscription",
            parameters=[_path("requestId", "Repeated in the answer.", "1")],
            answers={status: _FILTERED[status] for status in ("200", "404", "429")},
        ),
    },
    "/filter/v2/messages/{pubsubTopic}/{contentTopic}": {
        "get": _operation(
            "filter_shard_messages",
            "The same for those on a pubsub topic, as in go-waku",
            parameters=[_PUBSUB, _CONTENT],
            answers={"200": _json(_array(_ref("Message"))), "400": _text("Not subscribed.")},
        ),
    },
    "/filter/v2/messages/{contentTopic}": {
        "get": _operation(
            "filter_messages",
            "Fetch the messages of a content topic since the last call",
            parameters=[_CONTENT],
            answers={"200": _json(_array(_ref("Message"))), "400": _text("Not subscribed.")},
        ),
    },
    "/store/v3/messages": {
        "get": _operation(
            "store_messages",
            "Query the archive: one page of messages",
            parameters=[
                _query("peerAddr", "string", "Multiaddr of the store node to query; default: this node."),
                _query(
                    "includeData", "boolean", "Whether to return messages and not only their hashes; default: false."
                ),
                _query("pubsubTopic", "string", "Messages of this pubsub topic."),
                _query("contentTopics", "string", "Messages of any of these content topics, separated by commas."),
                _query("startTime", "integer", "First timestamp, in Unix nanoseconds."),
                _query("endTime", "integer", "Last timestamp, included, in Unix nanoseconds."),
                _query("hashes", "string", "Messages with any of these hashes (0x...), separated by commas."),
                _query("cursor", "string", "paginationCursor of the page before this one."),
                _query("ascending", "string", "true: the oldest page first; default: true."),
                _query("pageSize", "integer", "Messages of a page; default: 20, at most 100."),
            ],
            answers={
                "200": _json(_ref("Page")),
                "400": _BAD,
                "412": _text("Neither the node nor a connected peer keeps an archive."),
                "429": _text("Too many queries."),
                "500": _text("The archive, or the other store node, failed."),
            },
        ),
    },
    "/admin/v1/peers": {
        "get": _operation("admin_peers", "List the connected peers", answers={"200": _json(_array(_ref("Peer")))}),
        "post": _operation("admin_connect", "Connect to the peers at multiaddrs", answers=_CHANGED, body=_ADDRESSES),
    },
    "/admin/v1/peers/service": {
        "get": _operation(
            "admin_service_peers",
            "List the peers that serve a protocol of Waku, with these protocols",
            answers={"200": _json(_array(_ref("Peer")))},
        ),
    },
    "/admin/v1/peers/connected": {
        "get": _operation(
            "admin_connected_peers", "The same as /admin/v1/peers", answers={"200": _json(_array(_ref("Peer")))}
        ),
    },
    "/admin/v1/peers/connected/on/{shardId}": {
        "get": _on_shard("admin_connected_peers_on_shard", "List the peers that relay a shard", _array(_ref("Peer"))),
    },
    "/admin/v1/peers/relay": {
        "get": _operation(
            "admin_relay_peers",
            "List the relay peers of each shard",
            answers={"200": _json(_array(_ref("ShardPeers")))},
        ),
    },
    "/admin/v1/peers/relay/on/{shardId}": {
        "get": _on_shard("admin_relay_peers_on_shard", "List the relay peers of a shard", _ref("ShardPeers")),
    },
    "/admin/v1/peers/mesh": {
        "get": _operation(
            "admin_mesh_peers", "List the mesh of each shard", answers={"200": _json(_array(_ref("ShardPeers")))}
        ),
    },
    "/admin/v1/peers/mesh/on/{shardId}": {
        "get": _on_shard("admin_mesh_peers_on_shard", "List the mesh of a shard", _ref("ShardPeers")),
    },
    "/admin/v1/peers/stats": {
        "get": _operation(
            "admin_statistics", "Count the peers by shard and protocol", answers={"200": _json(_ref("PeerCounts"))}
        ),
    },
    "/admin/v1/peer/{peerId}": {
        "get": _operation(
            "admin_peer",
            "Show one connected peer",
            parameters=[_path("peerId", "", "16Uiu2HAm6HZZr7aToTvEBPpiys4UxajCTU97zj5v7RNR2gbniy1D")],
            answers={"200": _json(_ref("Peer")), "400": _BAD, "404": _text("The peer is not connected.")},
        ),
    },
    "/admin/v1/filter/subscriptions": {
        "get": _operation(
            "admin_filter_subscriptions",
            "List the filter subscriptions of peers",
            answers={"200": _json(_array(_ref("FilterSubscription")))},
        ),
    },
    "/admin/v1/log-level/{logLevel}": {
        "post": _operation(
            "admin_log_level",
            "Set the level from which on the node logs",
            parameters=[_path("logLevel", "TRACE, DEBUG, INFO, NOTICE, WARN, ERROR or FATAL.", "INFO")],
            answers={"200": _DONE, "400": _BAD},
        ),
    },
    "/events": {
        "get": _operation(
            "events_stream",
            "Messages as they arrive, or statistics: server-sent events",
            parameters=[
                _query("contentTopics", "string", "Messages of any of these content topics, separated by commas."),
                _query("pubsubTopic", "string", "Pubsub topic of the content topics; default: by autosharding."),
                _query(
                    "lastEventId", "string", "The same as the header Last-Event-ID, for clients that cannot set it."
                ),
                _query(
                    "statistics",
                    "boolean",
                    "true, without contentTopics: what the node does, every 2 s, in place of messages.",
                ),
                {
                    "name": "Last-Event-ID",
                    "in": "header",
                    "schema": {"type": "string"},
                    "description": "Id of the last event received; the messages that arrived after it come first.",
                },
            ],
            answers={
                "200": {
                    "description": "Events `message` (data: an entry of a store page, id: its hash, a dot, a "
                    "number) and `gap`, or `statistics`.",
                    "content": {"text/event-stream": {"schema": {"type": "string"}}},
                },
                "400": _BAD,
                "503": _text("Too many event streams."),
            },
        ),
    },
    "/metrics": {
        "get": _operation("metrics_text", "Numbers for Prometheus", answers={"200": _text("The text format.")}),
    },
    "/openapi.json": {
        "get": _operation("docs_openapi", "This document", answers={"200": _json({"type": "object"})}),
    },
    "/docs": {
        "get": _operation("docs_page", "This document for people, with a form to try each call", answers=_PAGE),
    },
    "/": {
        "get": _operation("docs_operator", "The node at work, for people", answers=_PAGE),
    },
}

_TEXT: Final = {"type": "string"}
_TOPIC: Final = {"type": "string", "example": "/myapp/1/room/proto"}
_BASE64: Final = {"type": "string", "format": "byte", "example": "aGVsbG8="}
_HASH: Final = {"type": "string", "pattern": "^0x[0-9a-f]{64}$"}
_STATE: Final = {"type": "string", "enum": ["READY", "NOT_READY", "NOT_MOUNTED"]}


def _object(required: Json, optional: Json | None = None) -> Json:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


SCHEMAS: Final[Json] = {
    "Message": _object(
        {"payload": _BASE64, "contentTopic": _TOPIC},
        {
            "version": {"type": "integer", "minimum": 0},
            "timestamp": {"type": "integer", "format": "int64", "description": "Nanoseconds since the Unix epoch."},
            "meta": _BASE64,
            "ephemeral": {"type": "boolean"},
            "proof": _BASE64,
        },
    ),
    "PushRequest": _object({"message": _ref("Message")}, {"pubsubTopic": _TEXT}),
    "PushAnswer": _object({}, {"relayPeerCount": {"type": "integer"}, "statusDesc": _TEXT}),
    "FilterRequest": _object(
        {"requestId": _TEXT, "contentFilters": {"type": "array", "items": _TOPIC, "minItems": 1}},
        {"pubsubTopic": _TEXT},
    ),
    "FilterAllRequest": _object({"requestId": _TEXT}),
    "FilterAnswer": _object({"requestId": _TEXT, "statusDesc": _TEXT}),
    "MessagingRequest": _object(
        {"payload": _BASE64, "contentTopic": _TOPIC}, {"ephemeral": {"type": "boolean"}, "meta": _BASE64}
    ),
    "MessagingAnswer": _object({"requestId": _TEXT}),
    "SendStatus": _object(
        {
            "requestId": _TEXT,
            "events": _array(
                _object(
                    {
                        "kind": {"type": "string", "enum": ["propagated", "sent", "error"]},
                        "messageHash": _HASH,
                        "timestamp": {"type": "integer", "format": "int64"},
                    },
                    {"error": _TEXT},
                )
            ),
        }
    ),
    "ReceivedRecord": _object(
        {
            "seq": {"type": "integer", "description": "1 for the first message of the node, then 2, 3, ..."},
            "messageHash": _HASH,
            "source": {"type": "string", "enum": ["live"]},
            "message": _ref("Message"),
        }
    ),
    "Entry": _object({"messageHash": _HASH}, {"message": _ref("Message"), "pubsubTopic": _TEXT}),
    "Page": _object(
        {
            "requestId": _TEXT,
            "statusCode": {"type": "integer"},
            "statusDesc": _TEXT,
            "messages": _array(_ref("Entry")),
        },
        {"paginationCursor": _HASH},
    ),
    "Peer": _object(
        {
            "multiaddr": _TEXT,
            "protocols": _array(_TEXT),
            "shards": _array({"type": "integer"}),
            "connected": {"type": "string", "enum": ["Connected"]},
            "agent": _TEXT,
            "origin": {"type": "string", "enum": ["UnknownOrigin", "Static"]},
        },
        {"score": {"type": "number", "description": "Gossipsub score; only in lists by shard."}},
    ),
    "ShardPeers": _object({"shard": {"type": "integer"}, "peers": _array(_ref("Peer"))}),
    "PeerCounts": {
        "type": "object",
        "additionalProperties": {"type": "object", "additionalProperties": {"type": "integer"}},
        "description": "Counts by group and name.",
    },
    "FilterSubscription": _object(
        {"peerId": _TEXT, "filterCriteria": _array(_object({"pubsubTopic": _TEXT, "contentTopic": _TEXT}))}
    ),
    "Health": _object(
        {
            "nodeHealth": _STATE,
            "connectionStatus": {"type": "string", "enum": ["Disconnected", "PartiallyConnected", "Connected"]},
            "protocolsHealth": {
                "type": "array",
                "items": {"type": "object", "additionalProperties": _TEXT},
                "description": "One object for each protocol: its name and state, and desc if it is not ready.",
            },
        }
    ),
    "Info": _object({"listenAddresses": _array(_TEXT)}, {"enrUri": _TEXT}),
}


def _bearer(description: str) -> Json:
    return {"type": "http", "scheme": "bearer", "description": description}


def openapi_document(version: str) -> Json:
    """Return the OpenAPI document of this ``version`` of fairway."""
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "fairway node",
            "version": version,
            "description": "A Waku service node; compatible with the REST API of nwaku.",
        },
        "paths": PATHS,
        "security": [{}, {"token": []}],
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": _bearer("--rest-token-file: for all calls but those under /admin"),
                "adminToken": _bearer("--rest-admin-token-file: for all calls"),
            },
        },
    }
