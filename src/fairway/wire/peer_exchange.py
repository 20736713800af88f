"""Peer exchange: a node is asked for the records of other nodes (34/WAKU2-PEER-EXCHANGE).

Newer nodes answer with a status, older ones without; both are read. An answer is bounded in bytes and in records, and
the records in it are bytes that nobody has verified yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.proto import peer_exchange_pb2
from fairway.wire.protobuf import ENCODE_FAULTS, not_encodable, parse

PEER_EXCHANGE_PROTOCOL: Final = "/vac/waku/peer-exchange/2.0.0-alpha1"
"""Protocol identifier."""
MAX_RECORDS: Final = 60
"""Records of one response that are sent and read, as many as nwaku keeps for this purpose."""
MAX_REQUEST_BYTES: Final = 1_024
"""Longer requests are not parsed."""
MAX_RESPONSE_BYTES: Final = 65_536
"""Longer responses are not parsed; 60 records of 300 bytes need less than a third of it."""


class PeerExchangeStatus(IntEnum):
    """Result codes of a response."""

    SUCCESS = 200
    BAD_REQUEST = 400
    TOO_MANY_REQUESTS = 429
    SERVICE_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerExchangeRequest:
    """A request for records."""

    peer_count: int
    """How many are wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerExchangeResponse:
    """The records that a node gives away."""

    records: tuple[bytes, ...] = ()
    """Node records in binary, not verified."""
    status: int | None = PeerExchangeStatus.SUCCESS
    """Result code, known or not; None from older nodes."""
    detail: str = ""
    """For people."""


def encode_request(request: PeerExchangeRequest) -> bytes:
    """Return a request as protobuf; raise `ConfigurationError` for a count that is no uint64."""
    try:
        query = peer_exchange_pb2.PeerExchangeQuery(num_peers=request.peer_count)
        return peer_exchange_pb2.PeerExchangeRPC(query=query).SerializeToString()
    except ENCODE_FAULTS as error:
        raise not_encodable("PeerExchangeRPC", error) from error


def decode_request(data: bytes) -> PeerExchangeRequest:
    """Return the request in ``data``, or raise `DecodeError`."""
    rpc = parse(peer_exchange_pb2.PeerExchangeRPC, data, max_bytes=MAX_REQUEST_BYTES)
    if not rpc.HasField("query") or rpc.HasField("response"):
        raise DecodeError("PeerExchangeRPC: no query, or one beside a response")
    return PeerExchangeRequest(peer_count=rpc.query.num_peers)


def encode_response(response: PeerExchangeResponse) -> bytes:
    """Return a response as protobuf; raise `ConfigurationError` for more than `MAX_RECORDS` records."""
    if len(response.records) > MAX_RECORDS:
        raise ConfigurationError(f"a response has at most {MAX_RECORDS} records, not {len(response.records)}")
    infos = [peer_exchange_pb2.PeerInfo(enr=record) for record in response.records]
    rpc = peer_exchange_pb2.PeerExchangeRPC(response=peer_exchange_pb2.PeerExchangeResponse(peer_infos=infos))
    if response.status is not None:
        rpc.status.status_code = response.status
        if response.detail:
            rpc.status.status_desc = response.detail
    return rpc.SerializeToString()


def decode_response(data: bytes) -> PeerExchangeResponse:
    """Return the response in ``data`` with its first `MAX_RECORDS` records, or raise `DecodeError`."""
    rpc = parse(peer_exchange_pb2.PeerExchangeRPC, data, max_bytes=MAX_RESPONSE_BYTES)
    if rpc.HasField("query") or not (rpc.HasField("response") or rpc.HasField("status")):
        raise DecodeError("PeerExchangeRPC: no response, or one beside a query")
    return PeerExchangeResponse(
        records=tuple(info.enr for info in rpc.response.peer_infos[:MAX_RECORDS]),
        status=rpc.status.status_code if rpc.HasField("status") else None,
        detail=rpc.status.status_desc,
    )
