"""Service nodes that tests script, each a libp2p host with handlers, and a light client among them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Final

from fairway.libp2p.handlers import StreamHandler
from fairway.libp2p.host import Host
from fairway.nodes.light import LightNode, LightOptions
from fairway.nodes.protocols.exchange import answering
from fairway.wire.filter import (
    FilterSubscribeResponse,
    decode_filter_subscribe_request,
    encode_filter_subscribe_response,
)
from patience import PATIENCE_S, until


class ScriptedNode:
    """A service node with a handler for each protocol that it serves."""

    host: Host

    def __init__(self, handlers: Mapping[str, StreamHandler]) -> None:
        self.handlers = handlers

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve; yields the address."""
        async with await Host.start(listen=["/ip4/127.0.0.1/tcp/0"]) as self.host:
            for protocol, handler in self.handlers.items():
                self.host.handle(protocol, handler)
            yield str(self.host.addresses[0])


answers: Final = partial(answering, max_request_bytes=1 << 20)
"""Make a handler of requests from a function: (peer id as text, bytes) -> bytes."""


@answers
async def accepts_subscriptions(peer: str, data: bytes) -> bytes:
    """Answer each request of a filter client with 200."""
    request = decode_filter_subscribe_request(data)
    return encode_filter_subscribe_response(FilterSubscribeResponse(request_id=request.request_id, status_code=200))


@contextlib.asynccontextmanager
async def light_client(*nodes: ScriptedNode, **options: Any) -> AsyncIterator[LightNode]:
    """Yield a light client that knows the services of these nodes."""
    async with contextlib.AsyncExitStack() as exits:
        addresses = [await exits.enter_async_context(node.serving()) for node in nodes]
        chosen = LightOptions(**{"request_timeout_s": PATIENCE_S, **options})
        light = await exits.enter_async_context(await LightNode.start(addresses, chosen, connect_timeout_s=None))
        await until(lambda: all(light.host.protocols_of(node.host.peer_id) for node in nodes))
        yield light
