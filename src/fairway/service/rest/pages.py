"""`PageEndpoints`: the pages for people: ``/``, which shows the node at work, and ``/docs``, which explains the API.

Each is one file that needs nothing else. Its Content-Security-Policy forbids the browser to load anything from
elsewhere and to run any script but the one that is a part of it, so that a name from the network cannot become a
script. The pages hold no data: they ask the API for it, as any client does.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import metadata, resources
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from fairway.service.rest.answers import answer
from fairway.service.rest.docs_page import docs_page
from fairway.service.rest.openapi import openapi_document

_PART: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class PageEndpoints:
    """The handlers of one server."""

    def __init__(self) -> None:
        document = openapi_document(metadata.version("fairway"))
        self._document: Final = bytes(answer(document).body)
        self._operator: Final = _Page(_file("operator.html"))
        self._docs: Final = _Page(docs_page(document, _file("docs.html")))

    async def operator(self, _: Request) -> Response:
        """Return the page that shows the node at work."""
        return self._operator.response()

    async def docs(self, _: Request) -> Response:
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
