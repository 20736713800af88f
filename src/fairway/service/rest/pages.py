"""The pages for people: ``/``, which shows the running node, and ``/docs``, made from the OpenAPI document.

Each is one file. Its Content-Security-Policy forbids the browser to load anything from elsewhere and to run any other
script, so that a name from the network cannot become a script. The pages hold no data of the node: they ask the API as
any client does. Without scripts ``/docs`` is the description of the API; its script sends the calls.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from importlib import metadata, resources
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from fairway.nodes.rest.shapes import json_of
from fairway.service.rest.answers import answer
from fairway.service.rest.context import RestContext
from fairway.service.rest.openapi import openapi_document

_PART: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)
_OPERATIONS: Final = "<!-- operations -->"
_TITLE: Final = "<!-- title -->"
_DESCRIPTION: Final = "<!-- description -->"


class PageEndpoints:
    """The handlers of one server."""

    def __init__(self, _: RestContext) -> None:
        document = openapi_document(metadata.version("fairway"))
        self._document: Final = bytes(answer(document).body)
        self._operator: Final = _Page(_file("operator.html"))
        self._docs: Final = _Page(docs_page(document, _file("docs.html")))

    async def operator(self, _: Request) -> Response:
        """Return the page that shows the node at work."""
        return self._operator.response()

    async def page(self, _: Request) -> Response:
        """Return the page about the API."""
        return self._docs.response()

    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI document."""
        return Response(self._document, media_type="application/json")


class _Page:
    """A page and the headers that go with it."""

    def __init__(self, html: str) -> None:
        self._html: Final = html
        sources = {"script": "", "style": ""}
        for kind, text in _PART.findall(html):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            sources[kind] += f" 'sha256-{digest}'"
        self._headers: Final = {
            "Content-Security-Policy": f"default-src 'none'; script-src{sources['script']}; "
            f"style-src{sources['style']}; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
        }

    def response(self) -> Response:
        return HTMLResponse(self._html, headers=self._headers)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def docs_page(document: dict[str, Any], frame: str) -> str:
    """Return the page of an OpenAPI document; ``frame`` is the file with its style and script."""
    info = document["info"]
    schemas = document["components"]["schemas"]
    parts = []
    tag = ""
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                parts.append(f'<h2 id="{escape(tag)}">{escape(tag)}</h2>')
            parts.append(_operation(verb, path, operation, schemas))
    parts.append('<h2 id="schemas">schemas</h2>')
    for name, schema in schemas.items():
        shown = escape(json_of(schema).decode())
        parts.append(f'<details id="{escape(name)}"><summary>{escape(name)}</summary><pre>{shown}</pre></details>')
    return (
        frame.replace(_TITLE, escape(f"{info['title']} {info['version']}"))
        .replace(_DESCRIPTION, escape(info["description"]))
        .replace(_OPERATIONS, "\n".join(parts))
    )


def _operation(verb: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> str:
    answers = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{escape(described['description'])} "
        f"{escape(_schemas(described))}</td></tr>"
        for status, described in operation["responses"].items()
    )
    name = escape(operation["operationId"])
    return (
        f'<details class="operation" id="{name}">'
        f'<summary><span class="verb {escape(verb)}">{escape(verb.upper())}</span> '
        f"<code>{escape(path)}</code> <span>{escape(operation['summary'])}</span></summary>"
        f'<form data-verb="{escape(verb.upper())}" data-path="{escape(path)}" aria-label="Try {name}">'
        f"{''.join(_field(name, parameter) for parameter in operation.get('parameters', ()))}"
        f"{_body(name, operation, schemas)}"
        '<p class="needs-scripts"><button>Send</button> <button type="button" class="stop" hidden>Stop</button> '
        '<button type="button" class="copy">Copy as curl</button></p>'
        f'<pre class="curl needs-scripts" aria-label="The call as curl" tabindex="0"></pre>'
        f'<div class="answer" role="region" aria-label="Answer of {name}" hidden><p class="status" role="status"></p>'
        f'<pre tabindex="0"></pre></div></form>'
        f"<table><caption>Answers</caption><tbody>{answers}</tbody></table></details>"
    )


def _field(operation: str, parameter: dict[str, Any]) -> str:
    """Return a field for a parameter; those of the path must be filled."""
    place, name = parameter["in"], parameter["name"]
    identifier = escape(f"{operation}-{name}")
    value = escape(str(parameter.get("example", "")))
    help_text = escape(parameter.get("description", "")) + (" This form encodes it." if place == "path" else "")
    return (
        f'<p class="field"><label for="{identifier}"><code>{escape(name)}</code> '
        f"<small>{escape(place)}</small></label> "
        f'<input id="{identifier}" name="{escape(name)}" data-in="{escape(place)}" value="{value}" autocomplete="off" '
        f'spellcheck="false" aria-describedby="{identifier}-says"{" required" if place == "path" else ""}>'
        f'<small id="{identifier}-says">{help_text}</small></p>'
    )


def _body(operation: str, described: dict[str, Any], schemas: dict[str, Any]) -> str:
    """Return a field for the body, if there is one, with an example in it."""
    if "requestBody" not in described:
        return ""
    body = described["requestBody"]
    (content,) = body["content"].values()
    example = json.dumps(_example(content["schema"], schemas), indent=2)
    rows = min(12, example.count("\n") + 2)
    return (
        f'<p class="field"><label for="{operation}-body">body <small>{escape(_schemas(body))}</small></label> '
        f'<textarea id="{operation}-body" data-in="body" rows="{rows}" spellcheck="false">'
        f"{escape(example)}</textarea></p>"
    )


def _example(schema: dict[str, Any], schemas: dict[str, Any]) -> Any:
    """Return a value of a schema, with the fields that are required or have an example."""
    if "$ref" in schema:
        return _example(schemas[_name(schema)], schemas)
    if "examples" in schema:
        return schema["examples"][0]
    match schema["type"]:
        case "array":
            return [_example(schema["items"], schemas)]
        case "object":
            required = schema["required"]
            fields = schema["properties"].items()
            return {name: _example(each, schemas) for name, each in fields if name in required or "examples" in each}
    return "text"


def _schemas(described: dict[str, Any]) -> str:
    """Return the content types of a body, each with the name of its schema."""
    return ", ".join(f"{kind} {_name(content['schema'])}" for kind, content in described.get("content", {}).items())


def _name(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    return f"list of {_name(schema['items'])}" if schema.get("type") == "array" else str(schema.get("type", ""))
