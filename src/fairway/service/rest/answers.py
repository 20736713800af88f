"""Answers with the texts of nwaku, and request bodies read by nwaku's rules.

nwaku, ``waku/rest_api/endpoint/responses.nim`` and ``rest_serdes.nim``: an error is a status and a line of plain text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from fairway.errors import DecodeError, FairwayError
from fairway.json_reading import read_json
from fairway.nodes.rest.shapes import json_of

JSON: Final = "application/json"
TEXT: Final = "text/plain"
_Shape = TypeVar("_Shape")


class PlainText(Response):
    """A line of text with nwaku's Content-Type, which names no charset."""

    def __init__(self, text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text, status, {"Content-Type": TEXT, **(headers or {})})


class RefusedError(FairwayError):
    """The request is answered with an error: a status and a text."""

    def __init__(self, status: int, text: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers

    def response(self) -> Response:
        """Return the answer."""
        # The rest of a body that is too long or too late is not read: the connection ends.
        headers = {"Connection": "close"} if self.status in {408, 413} else self.headers
        return PlainText(self.text, self.status, headers)


def fine() -> Response:
    """Return nwaku's answer to a request that succeeded without a result."""
    return PlainText("OK")


def answer(shape: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer with ``shape`` as JSON."""
    return Response(json_of(shape), status, headers, media_type=JSON)


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request; raise `RefusedError` if it is too long or the client disconnects."""
    too_long = RefusedError(413, f"the body of a request has at most {max_bytes} bytes")
    if int(request.headers.get("content-length", "0")) > max_bytes:
        raise too_long
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise too_long
    except ClientDisconnect:
        raise RefusedError(400, "the body of the request broke off") from None
    return bytes(body)


def decode_body(request: Request, body: bytes, shape: type[_Shape], *, text_too: bool = True) -> _Shape:
    """Decode a JSON body; raise `RefusedError` with nwaku's text if it is no ``shape``.

    ``text_too`` says whether the Content-Type may also be ``text/plain``.
    """
    if not body:
        raise RefusedError(400, "Missing content body")
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON and not (text_too and kind == TEXT):
        expected = f"{JSON} or {TEXT}" if text_too else JSON
        raise RefusedError(400, f"Wrong Content-Type, expected {expected}")
    try:
        return read_json(body, shape)
    except DecodeError as error:
        raise RefusedError(
            400, f"Invalid content body, could not decode: Unable to deserialize data: {error}"
        ) from None
