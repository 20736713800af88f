"""Peer exchange: a node requests the records of other nodes (34/WAKU2-PEER-EXCHANGE).

The encoders write the format of nwaku: each message has the query and the response, and the response has a status.
nwaku refuses a message without the query, and treats a response without status and records as a failure. go-waku and
js-waku write only the query or only the response, without a status. The direction of the stream determines the part
that a decoder reads; it ignores the other part. The records of a response are not verified.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.proto import peer_exchange_pb2
from fairway.wire.protobuf import encode, parse

PEER_EXCHANGE_PROTOCOL: Final = "/vac/waku/peer-exchange/2.0.0-alpha1"
"""Protocol identifier."""
MAX_RECORDS: Final = 60
"""Most records of a response that are sent and read; nwaku keeps as many for this purpose."""
MAX_REQUEST_BYTES: Final = 1_024
"""Size of the longest request that is parsed."""
MAX_RESPONSE_BYTES: Final = 65_536
"""Size of the longest response that is parsed; 60 records of 300 bytes need less than a third of it."""


class PeerExchangeStatus(IntEnum):
    """Result codes of a response."""

    UNKNOWN = 0
    SUCCESS = 200
    BAD_REQUEST = 400
    TOO_MANY_REQUESTS = 429
    SERVICE_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerExchangeRequest:
    """A request for records."""

    peer_count: int
    """Number of requested records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerExchangeResponse:
    """The records in a response."""

    records: tuple[bytes, ...] = ()
    """Node records in binary, not verified."""
    status: int | None = PeerExchangeStatus.SUCCESS
    """Result code, known or not; None if the node writes none (go-waku)."""
    detail: str = ""
    """An explanation for people."""


def encode_request(request: PeerExchangeRequest) -> bytes:
    """Return a request as protobuf; raise `ConfigurationError` for a count that is not a uint64."""
    return encode(
        peer_exchange_pb2.PeerExchangeRPC,
        query={"num_peers": request.peer_count},
        response={"status_code": PeerExchangeStatus.UNKNOWN},
    )


def decode_request(data: bytes) -> PeerExchangeRequest:
    """Return the request in ``data``, or raise `DecodeError`."""
    rpc = parse(peer_exchange_pb2.PeerExchangeRPC, data, max_bytes=MAX_REQUEST_BYTES)
    if not rpc.HasField("query"):
        raise DecodeError("PeerExchangeRPC: a request needs the field query (1)")
    return PeerExchangeRequest(peer_count=rpc.query.num_peers)


def encode_response(response: PeerExchangeResponse) -> bytes:
    """Return a response as protobuf; raise `ConfigurationError` for more than `MAX_RECORDS` records."""
    if len(response.records) > MAX_RECORDS:
        raise ConfigurationError(f"a response has at most {MAX_RECORDS} records, not {len(response.records)}")
    return encode(
        peer_exchange_pb2.PeerExchangeRPC,
        query={"num_peers": 0},
        response={
            "peer_infos": [{"enr": record} for record in response.records],
            "status_code": response.status,
            "status_desc": response.detail or None,
        },
    )


def decode_response(data: bytes) -> PeerExchangeResponse:
    """Return the response in ``data`` with its first `MAX_RECORDS` records, or raise `DecodeError`."""
    rpc = parse(peer_exchange_pb2.PeerExchangeRPC, data, max_bytes=MAX_RESPONSE_BYTES)
    if not rpc.HasField("response"):
        raise DecodeError("PeerExchangeRPC: a response needs the field response (2)")
    return PeerExchangeResponse(
        records=tuple(info.enr for info in rpc.response.peer_infos[:MAX_RECORDS]),
        status=rpc.response.status_code if rpc.response.HasField("status_code") else None,
        detail=rpc.response.status_desc,
    )
