"""``/admin/v1``: the peers of the node and its filter subscribers; connects the node to others, and sets its log level.

nwaku, ``waku/rest_api/endpoint/admin``. Unlike nwaku, fairway removes peers that disconnect, so that every listed peer
is connected. A list by shard has the shards of the node's cluster that it serves now.

Invariant: an answer takes bounded memory: lists are sent piece by piece.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType, structs
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fairway.errors import ConfigurationError, NetworkError
from fairway.libp2p.connection import Connection
from fairway.libp2p.errors import IdentityError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.listeners import Criterion
from fairway.nodes.protocols.relay import RELAY_PROTOCOL
from fairway.nodes.rest.shapes import json_of
from fairway.service.rest.answers import JSON, RefusedError, answer, decode_body, fine
from fairway.service.rest.context import Endpoints
from fairway.wire.filter import FILTER_PUSH_PROTOCOL, FILTER_SUBSCRIBE_PROTOCOL
from fairway.wire.lightpush import LIGHTPUSH_PROTOCOL, LIGHTPUSH_V2_PROTOCOL
from fairway.wire.peer_exchange import PEER_EXCHANGE_PROTOCOL
from fairway.wire.store import STORE_QUERY_PROTOCOL
from fairway.wire.store_sync import RECONCILIATION_PROTOCOL, TRANSFER_PROTOCOL
from fairway.wire.topics import pubsub_topic

MAX_PEERS_IN_REQUEST: Final = 50
CONNECT_TIMEOUT_S: Final = 5.0
SERVICES: Final = (
    RELAY_PROTOCOL,
    FILTER_SUBSCRIBE_PROTOCOL,
    STORE_QUERY_PROTOCOL,
    LIGHTPUSH_V2_PROTOCOL,
    LIGHTPUSH_PROTOCOL,
    PEER_EXCHANGE_PROTOCOL,
    RECONCILIATION_PROTOCOL,
    TRANSFER_PROTOCOL,
)
"""Protocols of ``/admin/v1/peers/service``."""
_COUNTED: Final = (*SERVICES[:2], FILTER_PUSH_PROTOCOL, *SERVICES[2:7])
"""Protocols of ``/admin/v1/peers/stats``."""
_LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "NOTICE": 25,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""nwaku's log levels; Python has no names for two of them."""
_LAST_SHARD_ID: Final = 65_535
_LAST_SHARD: Final = 1_023
_MAX_PROTOCOLS: Final = 64
"""Protocols of a peer that are listed."""
_MAX_NAME: Final = 128
"""Characters of a protocol that are listed."""

Members = Callable[[str], Collection[PeerId]]
"""Returns some of the relay peers of a pubsub topic."""


class Peer(Struct, rename="camel"):
    """A connected peer."""

    multiaddr: str
    protocols: list[str]
    shards: list[int]
    connected: Literal["Connected"]
    agent: str
    origin: Literal["Static", "UnknownOrigin"]
    """Whether this node dialled the peer."""
    score: float | UnsetType = UNSET
    """Gossipsub score; only in lists by shard."""


class ShardPeers(Struct, rename="camel"):
    """The peers on a shard."""

    shard: int
    peers: list[Peer]


class FilterCriterion(Struct, rename="camel"):
    """The topics of a filter subscription."""

    pubsub_topic: str
    content_topic: str


class FilterSubscription(Struct, rename="camel"):
    """The filter subscriptions of a peer."""

    peer_id: str
    filter_criteria: list[FilterCriterion]


PeerCounts = dict[str, dict[str, int]]
"""Counts by group and name."""


class AdminEndpoints(Endpoints):
    """The handlers of one server."""

    async def peers(self, _: Request) -> Response:
        """Return the connected peers."""
        return _listed(self._peers().values())

    async def peer(self, request: Request) -> Response:
        """Return one connected peer."""
        try:
            peer_id = PeerId.parse(request.path_params["peerId"])
        except IdentityError as error:
            raise RefusedError(400, f"Invalid argument: {error}") from None
        found = self._peers().get(peer_id)
        if found is None:
            raise RefusedError(404, f"Peer with ID {peer_id} not found")
        return answer(found)

    connected_peers = peers

    async def service_peers(self, _: Request) -> Response:
        """Return the connected peers that serve one of `SERVICES`, each with those that it serves."""
        served = [(peer, [name for name in SERVICES if name in peer.protocols]) for peer in self._peers().values()]
        return _listed(structs.replace(peer, protocols=protocols) for peer, protocols in served if protocols)

    async def connected_peers_on_shard(self, request: Request) -> Response:
        """Return the connected peers that relay a shard."""
        shard = _shard_of(request)
        return _listed(peer for peer in self._peers().values() if shard in peer.shards)

    async def relay_peers(self, _: Request) -> Response:
        """Return the relay peers of each shard."""
        return _listed(self._groups(self._context.parts.relay.peers_of))

    async def relay_peers_on_shard(self, request: Request) -> Response:
        """Return the relay peers of one shard."""
        return answer(self._group(_shard_of(request), self._context.parts.relay.peers_of, self._peers()))

    async def mesh_peers(self, _: Request) -> Response:
        """Return the mesh of each shard."""
        return _listed(self._groups(self._context.parts.relay.mesh_of))

    async def mesh_peers_on_shard(self, request: Request) -> Response:
        """Return the mesh of one shard."""
        return answer(self._group(_shard_of(request), self._context.parts.relay.mesh_of, self._peers()))

    async def statistics(self, _: Request) -> Response:
        """Return counts of the peers, by shard and by protocol."""
        relay, peers = self._context.parts.relay, self._peers().values()
        return answer(
            {
                "Sum": {"Total peers": len(peers)},
                "By Connectedness": {"Connected": len(peers), "NotConnected": 0, "CannotConnect": 0, "CanConnect": 0},
                "Relay peers": _counts(self._groups(relay.peers_of), "Total relay peers"),
                "Mesh peers": _counts(self._groups(relay.mesh_of), "Total mesh peers"),
                "By Protocols": {name: sum(name in peer.protocols for peer in peers) for name in _COUNTED},
            }
        )

    async def filter_subscriptions(self, _: Request) -> Response:
        """Return the subscriptions of each filter subscriber."""
        filters = self._context.parts.filters
        return _listed(_subscription(peer, filters.criteria_of(peer)) for peer in filters.subscribers())

    async def log_level(self, request: Request) -> Response:
        """Set the level from which on the node logs."""
        name = request.path_params["logLevel"]
        level = _LEVELS.get(name.upper())
        if level is None:
            names = ", ".join(_LEVELS)
            raise RefusedError(400, f"Invalid log-level: {name[:80]}. Please specify one of {names}")
        logging.getLogger("fairway").setLevel(level)
        return fine()

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
                await context.parts.host.connect(parsed, timeout_s=CONNECT_TIMEOUT_S)
            except (ConfigurationError, NetworkError, TimeoutError):
                raise RefusedError(400, f"Failed to connect to peer at index: {index} - {address}") from None
        return fine()

    def _peers(self) -> dict[PeerId, Peer]:
        """Return the connected peers."""
        parts = self._context.parts
        relaying = {shard: parts.relay.peers_of(topic) for shard, topic in self._shards().items()}
        peers = {}
        for connection in parts.host.connections():
            shards = [shard for shard, members in relaying.items() if connection.peer_id in members]
            peers[connection.peer_id] = self._peer(connection, shards)
        return peers

    def _peer(self, connection: Connection, shards: list[int]) -> Peer:
        info = self._context.parts.host.info_of(connection.peer_id)
        address = connection.remote_address
        if info is not None and info.address is not None and not connection.dialled:
            address = info.address  # the peer's outgoing port accepts no connections
        address = address.without_peer_id().with_peer_id(connection.peer_id)
        return Peer(
            multiaddr=str(address),
            protocols=sorted(name[:_MAX_NAME] for name in info.protocols)[:_MAX_PROTOCOLS] if info else [],
            shards=shards,
            connected="Connected",
            agent=info.agent if info else "",
            origin="Static" if connection.dialled else "UnknownOrigin",
        )

    def _shards(self) -> dict[int, str]:
        """Return the shards that the node serves, with their pubsub topics."""
        node = self._context.node
        return {shard: pubsub_topic(node.options.cluster_id, shard) for shard in node.shards}

    def _groups(self, members: Members) -> Iterator[ShardPeers]:
        peers = self._peers()
        return (self._group(shard, members, peers) for shard in self._shards())

    def _group(self, shard: int, members: Members, peers: dict[PeerId, Peer]) -> ShardPeers:
        node, relay = self._context.node, self._context.parts.relay
        found = members(pubsub_topic(node.options.cluster_id, shard)) if shard <= _LAST_SHARD else ()
        scored = [structs.replace(peers[peer], score=relay.score_of(peer)) for peer in found if peer in peers]
        return ShardPeers(shard=shard, peers=scored)


def _listed(items: Iterable[Struct]) -> Response:
    return StreamingResponse(_pieces(items), media_type=JSON)


async def _pieces(items: Iterable[Struct]) -> AsyncIterator[bytes]:
    separator = b"["
    for item in items:
        yield separator + json_of(item)
        separator = b","
    yield b"[]" if separator == b"[" else b"]"


def _subscription(peer: str, criteria: Collection[Criterion]) -> FilterSubscription:
    listed = [FilterCriterion(pubsub_topic=shard, content_topic=topic) for shard, topic in sorted(criteria)]
    return FilterSubscription(peer_id=peer, filter_criteria=listed)


def _shard_of(request: Request) -> int:
    text = request.path_params["shardId"]
    if not (
        text.isascii() and text.isdigit() and len(text) <= len(str(_LAST_SHARD_ID)) and int(text) <= _LAST_SHARD_ID
    ):
        raise RefusedError(400, f"Invalid shardId: {text[:80]!r} is no number from 0 to {_LAST_SHARD_ID}")
    return int(text)


def _counts(groups: Iterable[ShardPeers], total: str) -> dict[str, int]:
    counts = {str(group.shard): len(group.peers) for group in groups}
    return {**counts, total: sum(counts.values())}
