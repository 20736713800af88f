"""The pages for people: ``/``, which shows the running node, and ``/docs``, which describes the API and sends calls.

Each is one file. Its Content-Security-Policy forbids loading from other sources and running other scripts. So a name
from the network cannot become a script. The pages hold no data of the node: they query the API as any client does.
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
from fairway.service.rest.context import Endpoints
from fairway.service.rest.openapi import openapi_document

_PART: Final = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


class PageEndpoints(Endpoints):
    """The handlers of one server."""

    async def operator(self, _: Request) -> Response:
        """Return the page that shows the node at work."""
        return _page("operator.html")

    async def page(self, _: Request) -> Response:
        """Return the page about the API."""
        return _page("docs.html")

    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI document."""
        return answer(openapi_document(metadata.version("fairway")))


def _page(name: str) -> Response:
    """Return a page with the headers that protect it."""
    html = resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")
    sources = {"script": "", "style": ""}
    for kind, text in _PART.findall(html):
        sources[kind] += f" 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    headers = {
        "Content-Security-Policy": f"default-src 'none'; script-src{sources['script']}; "
        f"style-src{sources['style']}; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return HTMLResponse(html, headers=headers)
