"""`PeerExchangeService` and `ask_for_records`: both sides of peer exchange (34/WAKU2-PEER-EXCHANGE).

The service returns random records of nodes of its own network, at most `MAX_RECORDS` at a time, within a rate limit for
each peer. The client takes at most as many records as it requested, and verifies each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from fairway.errors import DecodeError
from fairway.libp2p.errors import NegotiationError
from fairway.libp2p.host import Host
from fairway.libp2p.peer_id import PeerId
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.nodes.protocols.peer_requests import PeerRequests
from fairway.nodes.protocols.request_limiter import RequestLimiter
from fairway.wire.peer_exchange import (
    MAX_RECORDS,
    MAX_RESPONSE_BYTES,
    PEER_EXCHANGE_PROTOCOL,
    PeerExchangeRequest,
    PeerExchangeResponse,
    PeerExchangeStatus,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)


class PeerExchangeService:
    """Answers requests for records."""

    def __init__(
        self, *, records: Callable[[], Sequence[NodeRecord]], limiter: RequestLimiter, rng: random.Random
    ) -> None:
        """Answer with the records that ``records`` returns."""
        self._records: Final = records
        self._limiter: Final = limiter
        self._rng: Final = rng

    def respond(self, peer: str, request: bytes, now_s: float) -> bytes:
        """Return the response to the request of a peer."""
        if not self._limiter.admit(peer, now_s):
            return _refusal(PeerExchangeStatus.TOO_MANY_REQUESTS, "too many requests; ask less often")
        try:
            wanted = decode_request(request).peer_count
        except DecodeError as error:
            return _refusal(PeerExchangeStatus.BAD_REQUEST, str(error))
        others = [record for record in self._records() if str(record.peer_id) != peer]
        chosen = self._rng.sample(others, min(wanted, MAX_RECORDS, len(others)))
        return encode_response(PeerExchangeResponse(records=tuple(record.encoded for record in chosen)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecords:
    """The records in the answer of a peer."""

    records: tuple[NodeRecord, ...]
    """Valid records, each once."""
    wrong: int
    """Invalid records among those that were read."""


async def ask_for_records(host: Host, peer: PeerId, count: int, *, timeout_s: float) -> FoundRecords:
    """Ask a connected peer for at most ``count`` records (and `MAX_RECORDS`).

    Raises `NegotiationError` if the peer refuses, `DecodeError` for a response that cannot be decoded, and
    `TimeoutError`. Raises another `Libp2pError` if the stream breaks or the response is too long.
    """
    wanted = min(count, MAX_RECORDS)
    data = await PeerRequests(host).ask(
        peer,
        PEER_EXCHANGE_PROTOCOL,
        encode_request(PeerExchangeRequest(peer_count=wanted)),
        max_response_bytes=MAX_RESPONSE_BYTES,
        timeout_s=timeout_s,
        is_only=False,
    )
    response = decode_response(data)
    if response.status not in {None, PeerExchangeStatus.SUCCESS}:
        raise NegotiationError(f"{peer} gives no records: {response.status} {response.detail[:200]}")
    records: dict[NodeRecord, None] = {}
    wrong = 0
    for encoded in response.records[:wanted]:
        try:
            records[NodeRecord.decode(encoded)] = None
        except DecodeError:
            wrong += 1
    return FoundRecords(records=tuple(records), wrong=wrong)


def _refusal(status: PeerExchangeStatus, detail: str) -> bytes:
    return encode_response(PeerExchangeResponse(status=status, detail=detail))
