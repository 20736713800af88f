"""``/openapi.json`` and ``/docs``: the OpenAPI document, and an HTML page of it that loads nothing from other sites."""

from __future__ import annotations

from html import escape
from importlib import metadata
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from fairway.service.rest.answers import answer
from fairway.service.rest.openapi import openapi_document
from fairway.waku.rest.shapes import json_of

_STYLE: Final = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8888; } code, pre { font-size: 0.9em; }
details { margin: 0.4rem 0; } summary { cursor: pointer; }
.verb { display: inline-block; width: 4.5rem; font-weight: 600; }
table { border-collapse: collapse; margin: 0.5rem 0 0.5rem 4.5rem; } td { padding: 0.1rem 1rem 0.1rem 0;
vertical-align: top; } pre { overflow: auto; padding: 0.5rem; background: #8881; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #e6e6e6; } a { color: #8ab4f8; } }
"""


class DocsEndpoints:
    """The handlers of one server."""

    def __init__(self) -> None:
        document = openapi_document(metadata.version("fairway"))
        self._document: Final = answer(document).body
        self._page: Final = _page(document)

    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI document."""
        return Response(bytes(self._document), media_type="application/json")

    async def page(self, _: Request) -> Response:
        """Return the HTML page."""
        return HTMLResponse(self._page)


def _page(document: dict[str, Any]) -> str:
    info = document["info"]
    parts = [f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}"]
    parts.append(' The same for programs: <a href="openapi.json">openapi.json</a>.</p>')
    tag = ""
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                parts.append(f"<h2>{escape(tag)}</h2>")
            parts.append(_operation(verb, path, operation))
    parts.append("<h2>schemas</h2>")
    for name, schema in document["components"]["schemas"].items():
        shown = escape(json_of(schema).decode())
        parts.append(f'<details id="{escape(name)}"><summary>{escape(name)}</summary><pre>{shown}</pre></details>')
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>"
    )


def _operation(verb: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        (parameter["name"], f"{parameter['in']}: {parameter.get('description', '')}")
        for parameter in operation.get("parameters", ())
    ]
    if "requestBody" in operation:
        rows.append(("body", _schemas(operation["requestBody"])))
    rows += [
        (status, f"{described['description']} {_schemas(described)}")
        for status, described in operation["responses"].items()
    ]
    table = "".join(f"<tr><td><code>{escape(name)}</code></td><td>{escape(text)}</td></tr>" for name, text in rows)
    return (
        f'<details><summary><span class="verb">{escape(verb.upper())}</span><code>{escape(path)}</code> '
        f"{escape(operation['summary'])}</summary><table>{table}</table></details>"
    )


def _schemas(described: dict[str, Any]) -> str:
    """Return the content types of a body, each with the name of its schema."""
    return ", ".join(f"{kind} {_name(content['schema'])}" for kind, content in described.get("content", {}).items())


def _name(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    return f"list of {_name(schema['items'])}" if schema.get("type") == "array" else str(schema.get("type", ""))
