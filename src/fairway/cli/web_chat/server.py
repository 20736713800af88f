"""`serve`: the page of ``fairway chat --web``, on the loopback address.

The address of the page has a token, which only the terminal shows. So neither another user of this machine nor a page
of another site, whose name may even point to this machine, can read or send. Changes travel over one WebSocket for each
page, files over GET and POST.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct

from fairway.cli._settings import ChannelSettings
from fairway.cli._until_stopped import finish_sending, stop_event
from fairway.cli.web_chat.conversation import WebConversation, change
from fairway.errors import ConfigurationError, FairwayError
from fairway.extras import needing
from fairway.files.receiving import FileReceiver
from fairway.json_reading import read_json
from fairway.subscription import Subscription
from fairway.visible import visible

with needing("node", "fairway chat --web"):
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import FileResponse, PlainTextResponse, Response
    from starlette.routing import Route, WebSocketRoute
    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

    from fairway.service.rest.http_server import HttpServer
    from fairway.service.rest.page_guard import is_from_own_page, page_response

_HOST: Final = "127.0.0.1"
_TOKEN_BYTES: Final = 24
_MAX_PAGES: Final = 64
"""Pages that are open at once."""
_GOING_AWAY: Final = 1001
"""RFC 6455, section 7.4.1."""
_OF_FILES: Final = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""Headers of a file from a stranger, which the browser saves and does not show."""


class _Asked(Struct):
    """A message from a page: it asks for earlier items, or sends a text."""

    before: str = ""
    """Place of the first item that the page has."""
    key: str = ""
    """Request id of the text."""
    text: str = ""


async def serve(settings: ChannelSettings, save: Path | None, port: int, say: Callable[[str], object]) -> None:
    """Serve the page until the process is stopped; files are saved in ``save``, by default beside the store.

    ``say`` gets the lines with the address of the page.

    Raises `ConfigurationError` for a port in use, and the error of a channel that fails.
    """
    async with AsyncExitStack() as exits:
        folder = save if save is not None else exits.enter_context(_folder_beside(settings.store))
        node, channel = await exits.enter_async_context(settings.open(needs_node=False))
        events = channel.events()
        # A store that cannot be opened makes no folder beside it.
        await channel.start()
        receiver = await FileReceiver.open(channel, folder)
        # Two participants may save into one folder.
        owner = sha256(f"{channel.channel_id}\0{channel.sender_id}".encode("utf-8", "surrogatepass")).hexdigest()
        conversation = WebConversation(node, channel, receiver, folder / f".outgoing-{owner[:16]}")
        stopped = await exits.enter_async_context(stop_event())
        exits.push_async_callback(conversation.uploads.close)
        conversation.uploads.resume()
        pages = _Pages(conversation)
        try:
            server = await HttpServer.start(pages, _HOST, port, takes_websockets=True)
        except OSError as error:
            raise ConfigurationError(f"the page cannot be served at port {port} ({error}); choose another") from error
        say(
            f"you are {visible(channel.sender_id)} in {visible(channel.channel_id)}; received files are saved in "
            f"{visible(str(folder))}; Ctrl-C ends\n\n  http://{_HOST}:{server.port}/{pages.token}/\n"
        )
        showing, stopping = asyncio.ensure_future(conversation.run(events)), asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait((showing, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            conversation.close()
            await server.close()
            is_stopped = not showing.done()
            showing.cancel()
            stopping.cancel()
            await asyncio.gather(showing, stopping, return_exceptions=True)
        if not is_stopped:
            showing.result()
        elif node.status.connected:
            await finish_sending(conversation.receipts.values())


@contextmanager
def _folder_beside(store: Path | None) -> Iterator[Path]:
    """Yield a folder for files beside a store; without a store, one that is removed at the end."""
    if store is not None:
        yield store.with_name(f"{store.name}.files")
    else:
        with tempfile.TemporaryDirectory(prefix="fairway-") as folder:
            yield Path(folder)


class _Pages:
    """The ASGI application."""

    def __init__(self, conversation: WebConversation) -> None:
        self.token: Final = secrets.token_urlsafe(_TOKEN_BYTES)
        self._conversation: Final = conversation
        routes = [
            Route("/{token}/", self._page),
            Route("/{token}/file", self._download, methods=["GET"]),
            Route("/{token}/file", self._upload, methods=["POST"]),
            WebSocketRoute("/{token}/live", self._live),
        ]
        self._app: Final = Starlette(routes=routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is from our page and has the token; refuse any other."""
        given = scope["path"].lstrip("/").partition("/")[0].encode("utf-8", "replace")
        if not (is_from_own_page(Headers(scope=scope)) and hmac.compare_digest(given, self.token.encode())):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close"})
            else:
                await PlainTextResponse("open the address that fairway chat has printed", 403)(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _page(self, _: Request) -> Response:
        return page_response(__package__, "page.html")

    async def _download(self, request: Request) -> Response:
        given = request.query_params
        path = self._conversation.receiver.path_of(given.get("sender", ""), given.get("message", ""))
        if path is None or not await asyncio.to_thread(path.is_file):
            return PlainTextResponse("the file was moved or never saved here", 404)
        return FileResponse(path, 200, _OF_FILES, "application/octet-stream", filename=path.name)

    async def _upload(self, request: Request) -> Response:
        try:
            await self._conversation.uploads.accept(request.query_params.get("name", ""), request.stream())
        except (FairwayError, OSError, ClientDisconnect) as error:
            # The rest of the file is not read: the connection ends.
            return PlainTextResponse(visible(str(error)), 400, {"Connection": "close"})
        return Response(status_code=204)

    async def _live(self, websocket: WebSocket) -> None:
        """Send all changes to one page, and carry out its messages, until one of both ends."""
        if self._conversation.pages >= _MAX_PAGES:
            await websocket.close()
            return
        await websocket.accept()
        with self._conversation.page() as changes:
            tasks = [
                asyncio.ensure_future(self._send(websocket, changes)),
                asyncio.ensure_future(self._read(websocket, changes)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
        for task in tasks:
            # The page has disconnected, or the channel has failed, which ends the command.
            with suppress(asyncio.CancelledError, WebSocketDisconnect, WebSocketDisconnected, FairwayError):
                task.result()

    async def _send(self, websocket: WebSocket, changes: Subscription[str]) -> None:
        await websocket.send_text(await self._conversation.state())
        dropped = 0
        async for text in changes:
            if changes.dropped > dropped:
                dropped = changes.dropped
                changes.take()
                await websocket.send_text(await self._conversation.state())
            else:
                await websocket.send_text(text)
        await websocket.close(_GOING_AWAY)

    async def _read(self, websocket: WebSocket, changes: Subscription[str]) -> None:
        async for text in websocket.iter_text():
            key = ""
            try:
                asked = read_json(text.encode("utf-8", "replace"), _Asked)
                key = asked.key
                if asked.before:
                    changes.put(await self._conversation.earlier(asked.before))
                else:
                    await self._conversation.send(key, asked.text)
                    changes.put(change("accepted", key=key))
            except FairwayError as error:
                changes.put(change("refused", key=key, text=visible(str(error))))
