"""``/admin/v1``: lists the peers of the node, and connects it to others.

nwaku, ``waku/rest_api/endpoint/admin``. Unlike nwaku, fairway forgets peers that disconnect, so that every peer listed
is connected.
"""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from fairway.errors import ConfigurationError, NetworkError
from fairway.service.rest.answers import RefusedError, answer, decode_body, fine
from fairway.service.rest.context import RestContext
from fairway.waku.libp2p.connection import Connection
from fairway.waku.libp2p.multiaddr import Multiaddr

MAX_PEERS_IN_REQUEST: Final = 50
CONNECT_TIMEOUT_S: Final = 5.0


class AdminEndpoints:
    """The handlers of one server."""

    def __init__(self, context: RestContext) -> None:
        self._context: Final = context

    async def peers(self, _: Request) -> Response:
        """Return the connected peers."""
        by_peer = {str(connection.peer_id): connection for connection in self._context.node.host.connections()}
        return answer([self._peer(connection) for connection in by_peer.values()])

    async def connect(self, request: Request) -> Response:
        """Connect to the peers at multiaddrs, one after the other."""
        context = self._context
        try:
            addresses = decode_body(request, await context.body_of(request), list[str])
        except RefusedError as refusal:
            raise RefusedError(refusal.status, f"Failed to decode request: {refusal.text}") from None
        if len(addresses) > MAX_PEERS_IN_REQUEST:
            raise RefusedError(400, f"Failed to decode request: at most {MAX_PEERS_IN_REQUEST} peers")
        for index, address in enumerate(addresses):
            try:
                parsed = Multiaddr.parse(address)
            except ConfigurationError as error:
                raise RefusedError(400, f"Couldn't parse remote peer info: {error}") from None
            try:
                await context.node.host.connect(parsed, timeout_s=CONNECT_TIMEOUT_S)
            except (ConfigurationError, NetworkError, TimeoutError):
                raise RefusedError(400, f"Failed to connect to peer at index: {index} - {address}") from None
        return fine()

    def _peer(self, connection: Connection) -> dict[str, Any]:
        node = self._context.node
        info = node.host.info_of(connection.peer_id)
        address = connection.remote_address
        if address.peer_id is None:
            address = address.with_peer_id(connection.peer_id)
        return {
            "multiaddr": str(address),
            "protocols": sorted(info.protocols) if info else [],
            "shards": [
                shard
                for shard, topic in zip(node.options.shards, node.options.pubsub_topics, strict=True)
                if connection.peer_id in node.relay.peers_of(topic)
            ],
            "connected": "Connected",
            "agent": info.agent if info else "",
            "origin": "Static" if connection.dialled else "UnknownOrigin",
        }
