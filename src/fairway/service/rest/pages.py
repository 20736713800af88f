"""The pages for people: ``/``, which shows the running node, and ``/docs``, which describes the API and sends calls.

Each is one file (`fairway.service.rest.page_guard`). The pages hold no data of the node: they query the API as any
client does.
"""

from __future__ import annotations

from importlib import metadata

from starlette.requests import Request
from starlette.responses import Response

from fairway.service.rest.answers import answer
from fairway.service.rest.context import Endpoints
from fairway.service.rest.openapi import openapi_document
from fairway.service.rest.page_guard import page_response


class PageEndpoints(Endpoints):
    """The handlers of one server."""

    async def operator(self, _: Request) -> Response:
        """Return the page that shows the node at work."""
        return page_response(__package__, "static", "operator.html")

    async def page(self, _: Request) -> Response:
        """Return the page about the API."""
        return page_response(__package__, "static", "docs.html")

    async def openapi(self, _: Request) -> Response:
        """Return the OpenAPI document."""
        return answer(openapi_document(metadata.version("fairway")))
