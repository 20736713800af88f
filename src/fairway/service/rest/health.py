"""``/health``, ``/info`` and ``/version``, the last two also under ``/debug/v1``.

The protocols, their order and the texts are those of nwaku: ``waku/rest_api/endpoint/{health,debug}`` and
``waku/node/health_monitor``.
"""

from __future__ import annotations

from importlib import metadata
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from fairway.libp2p.gossipsub.options import GossipsubOptions
from fairway.service.rest.answers import PlainText, answer
from fairway.service.rest.context import Endpoints, RestContext
from fairway.visible import visible

READY, NOT_READY, NOT_MOUNTED = "READY", "NOT_READY", "NOT_MOUNTED"
_NO_PEERS: Final = "No connected peers"
_NO_RELAY: Final = "Node has no relay peers to fullfill push requests"
_DEAF: Final = "Relay is not ready, filter will not be able to sort out messages"
_SERVED_ELSEWHERE: Final = (
    "Rendezvous",
    "Mix",
    "Lightpush Client",
    "Legacy Lightpush Client",
    "Store Client",
    "Legacy Store Client",
    "Filter Client",
)


class Health(Struct, rename="camel"):
    """The health of a node."""

    node_health: str
    """``READY`` or ``NOT_READY``."""
    connection_status: str
    """``Disconnected``, ``PartiallyConnected`` or ``Connected``."""
    protocols_health: list[dict[str, str]]
    """For each protocol its name and state, and ``desc`` if it is not ready."""


class Info(Struct, rename="camel"):
    """The addresses of a node, and its record (EIP-778) if its key signs one."""

    listen_addresses: list[str]
    enr_uri: str | UnsetType = UNSET


class HealthEndpoints(Endpoints):
    """The handlers of one server."""

    async def health(self, _: Request) -> Response:
        """Return the health of the node and of its protocols."""
        return answer(health_of(self._context))

    async def info(self, _: Request) -> Response:
        """Return the addresses that the node listens on, and its record, if its key signs one."""
        node = self._context.node
        record = UNSET if node.record is None else str(node.record)
        return answer(Info(listen_addresses=[str(address) for address in node.addresses], enr_uri=record))

    debug_info = info

    async def version(self, _: Request) -> Response:
        """Return the name and version of the program."""
        return PlainText(f"fairway {metadata.version('fairway')}")

    debug_version = version


def health_of(context: RestContext) -> Health:
    """Return the health of a node and of its protocols."""
    node = context.node
    ready = node.status.connected

    def of(name: str, problem: str) -> dict[str, str]:
        return {name: READY} if ready else {name: NOT_READY, "desc": problem}

    protocols = [
        of("Relay", _NO_PEERS),
        {"Rln Relay": READY if node.verifies_proofs else NOT_MOUNTED},
        of("Lightpush", _NO_RELAY),
        of("Legacy Lightpush", _NO_RELAY),
        of("Filter", _DEAF),
        _store(context),
        {"Legacy Store": NOT_MOUNTED},
        {"Peer Exchange": READY},
        *({name: NOT_MOUNTED} for name in _SERVED_ELSEWHERE),
    ]
    return Health(
        node_health=READY if node.is_healthy else NOT_READY,
        connection_status=_connection_status(context),
        protocols_health=protocols,
    )


def _connection_status(context: RestContext) -> str:
    """Return nwaku's word for the number of relay peers."""
    peers = max(len(context.parts.relay.peers_of(topic)) for topic in context.node.pubsub_topics)
    if peers >= GossipsubOptions().d_low:
        return "Connected"
    return "PartiallyConnected" if peers else "Disconnected"


def _store(context: RestContext) -> dict[str, str]:
    archive = context.parts.archive
    if archive is None:
        return {"Store": NOT_MOUNTED}
    if archive.problem is None:
        return {"Store": READY}
    return {"Store": NOT_READY, "desc": f"Messages cannot be written: {visible(archive.problem)}"}
