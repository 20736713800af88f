"""Metadata: two nodes exchange their cluster and shards when they connect (66/WAKU2-METADATA).

Request and response have the same layout. Field 2 is a repeated number, and implementations pack it differently.
js-waku can only read it unpacked (one tag per number). Google's encoders pack it by default. Node software writes the
shards twice, field 2 unpacked and field 3 packed. `encode_metadata` writes field 2 unpacked; `decode_metadata` reads
all three forms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fairway.errors import ConfigurationError
from fairway.wire.proto import metadata_pb2
from fairway.wire.protobuf import encode, parse

METADATA_PROTOCOL: Final = "/vac/waku/metadata/1.0.0"
"""Protocol identifier."""

MAX_METADATA_BYTES: Final = 65_536
"""Size of the longest message that is parsed; 1,024 shards written twice need less than a tenth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakuMetadata:
    """The cluster and shards of a node."""

    cluster_id: int | None = None
    """Cluster of the node; None only in received metadata."""
    shards: tuple[int, ...] = ()
    """Shards that the node relays; empty for light clients."""


def encode_metadata(metadata: WakuMetadata, *, also_packed: bool = True) -> bytes:
    """Return ``metadata`` as protobuf, with the shards in field 2 and, if ``also_packed``, in field 3 too.

    66/WAKU2-METADATA, "Providing Cluster Id": a node MUST include its cluster id. Raises `ConfigurationError`
    without one, and for a number that does not fit a uint32.
    """
    if metadata.cluster_id is None:
        raise ConfigurationError("a node must tell its cluster_id; it is None")
    return encode(
        metadata_pb2.WakuMetadata,
        cluster_id=metadata.cluster_id,
        shards_unpacked=metadata.shards,
        shards=metadata.shards if also_packed else (),
    )


def decode_metadata(data: bytes) -> WakuMetadata:
    """Return the metadata that ``data`` encodes, or raise `DecodeError`.

    Field 3 is used if it is present, as in node software; otherwise field 2, packed or not.
    """
    parsed = parse(metadata_pb2.WakuMetadata, data, max_bytes=MAX_METADATA_BYTES)
    return WakuMetadata(
        cluster_id=parsed.cluster_id if parsed.HasField("cluster_id") else None,
        shards=tuple(parsed.shards or parsed.shards_unpacked),
    )
