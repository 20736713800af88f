"""The schemas of the OpenAPI document, and the document itself."""

from __future__ import annotations

from typing import Any, Final

from fairway.service.rest.openapi import PATHS

_TEXT: Final = {"type": "string"}
_BASE64: Final = {"type": "string", "format": "byte"}
_HASH: Final = {"type": "string", "pattern": "^0x[0-9a-f]{64}$"}
_STATE: Final = {"type": "string", "enum": ["READY", "NOT_READY", "NOT_MOUNTED"]}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(required), "properties": {**required, **(optional or {})}}


SCHEMAS: Final[dict[str, Any]] = {
    "Message": _object(
        {"payload": _BASE64, "contentTopic": _TEXT},
        {
            "version": {"type": "integer", "minimum": 0},
            "timestamp": {"type": "integer", "format": "int64", "description": "Nanoseconds since the Unix epoch."},
            "meta": _BASE64,
            "ephemeral": {"type": "boolean"},
            "proof": _BASE64,
        },
    ),
    "PushRequest": _object({"message": {"$ref": "#/components/schemas/Message"}}, {"pubsubTopic": _TEXT}),
    "PushAnswer": _object({}, {"relayPeerCount": {"type": "integer"}, "statusDesc": _TEXT}),
    "FilterRequest": _object(
        {"requestId": _TEXT, "contentFilters": {"type": "array", "items": _TEXT, "minItems": 1}}, {"pubsubTopic": _TEXT}
    ),
    "FilterAllRequest": _object({"requestId": _TEXT}),
    "FilterAnswer": _object({"requestId": _TEXT, "statusDesc": _TEXT}),
    "Entry": _object(
        {"messageHash": _HASH}, {"message": {"$ref": "#/components/schemas/Message"}, "pubsubTopic": _TEXT}
    ),
    "Page": _object(
        {
            "requestId": _TEXT,
            "statusCode": {"type": "integer"},
            "statusDesc": _TEXT,
            "messages": {"type": "array", "items": {"$ref": "#/components/schemas/Entry"}},
        },
        {"paginationCursor": _HASH},
    ),
    "Peer": _object(
        {
            "multiaddr": _TEXT,
            "protocols": {"type": "array", "items": _TEXT},
            "shards": {"type": "array", "items": {"type": "integer"}},
            "connected": {"type": "string", "enum": ["Connected"]},
            "agent": _TEXT,
            "origin": {"type": "string", "enum": ["UnknownOrigin", "Static"]},
        }
    ),
    "Health": _object(
        {
            "nodeHealth": _STATE,
            "protocolsHealth": {
                "type": "array",
                "items": {"type": "object", "additionalProperties": _TEXT},
                "description": "One object for each protocol: its name and state, and desc if it is not ready.",
            },
        }
    ),
    "Info": _object({"listenAddresses": {"type": "array", "items": _TEXT}}),
}


def openapi_document(version: str) -> dict[str, Any]:
    """Return the whole document."""
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "fairway node",
            "version": version,
            "description": "A Waku service node; compatible with the REST API of nwaku.",
        },
        "paths": PATHS,
        "components": {"schemas": SCHEMAS},
    }
