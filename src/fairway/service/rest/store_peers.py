"""Store queries to other nodes: a connected store peer, or the node at an address."""

from __future__ import annotations

from typing import Final

from fairway.errors import DecodeError, NetworkError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.service.rest.answers import RefusedError
from fairway.wire.store import (
    MAX_RESPONSE_BYTES,
    STORE_QUERY_PROTOCOL,
    StoreQueryRequest,
    StoreQueryResponse,
    decode_store_query_response,
    encode_store_query_request,
)

PEER_TIMEOUT_S: Final = 5.0
"""Time to connect to another store node, and time for its answer, as in nwaku."""
MAX_PEERS: Final = 3
"""Store peers that are asked until one answers."""


async def ask_store_peers(requests: PeerRequests, asked: StoreQueryRequest) -> StoreQueryResponse:
    """Return the answer of a connected store peer; raise `RefusedError` with 412 if there is none, or if all fail."""
    host = requests.host
    serving = [one for one in host.connections() if STORE_QUERY_PROTOCOL in host.protocols_of(one.peer_id)]
    peers = dict.fromkeys(one.peer_id for one in sorted(serving, key=lambda one: not one.dialled))
    refusal = RefusedError(412, "No suitable service peer & no discovery method")
    for peer in list(peers)[:MAX_PEERS]:
        try:
            return await _ask(requests, peer, asked)
        except RefusedError as error:
            refusal = error
    raise refusal


async def ask_store_at(requests: PeerRequests, address: Multiaddr, asked: StoreQueryRequest) -> StoreQueryResponse:
    """Return the answer of the store node at an address; raise `RefusedError` with 500 if it gives none."""
    try:
        connection = await requests.host.connect(address, timeout_s=PEER_TIMEOUT_S)
    except (NetworkError, TimeoutError) as error:
        raise RefusedError(500, f"Error occurred in queryFut.read() [{error}]") from None
    return await _ask(requests, connection.peer_id, asked)


async def _ask(requests: PeerRequests, peer: PeerId, asked: StoreQueryRequest) -> StoreQueryResponse:
    try:
        encoded = await requests.ask(
            peer,
            STORE_QUERY_PROTOCOL,
            encode_store_query_request(asked, checked=False),
            max_response_bytes=MAX_RESPONSE_BYTES,
            timeout_s=PEER_TIMEOUT_S,
        )
        return decode_store_query_response(encoded)
    except TimeoutError:
        raise RefusedError(500, "No history response received (timeout)") from None
    except (NetworkError, DecodeError) as error:
        raise RefusedError(500, f"Error occurred in queryFut.read() [{error}]") from None
