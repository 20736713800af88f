"""Relay shards in a node record: the cluster and the shards of a node (RELAY-SHARDING, "Discovery").

The two forms differ in their key and their length. The index list (``rs``) is cluster, count and one number per shard.
The bit vector (``rsv``) is cluster and one bit for each of the 1,024 shards.

Implementations use three orders of these bits, see `BitOrder`. Node software writes the records, so its order is the
default.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, Literal

from fairway.errors import ConfigurationError, DecodeError
from fairway.wire.topics import CLUSTER_COUNT, SHARDS_PER_CLUSTER

INDEX_LIST_KEY: Final = "rs"
"""Key of the index list in a node record."""

BIT_VECTOR_KEY: Final = "rsv"
"""Key of the bit vector in a node record."""

INDEX_LIST_BELOW: Final = 64
"""Number of shards below which the index list SHOULD be used (RELAY-SHARDING, "Discovery")."""

_MAX_LISTED: Final = 255  # the count is one byte
_BIT_VECTOR_BYTES: Final = 2 + SHARDS_PER_CLUSTER // 8

BitOrder = Literal["node", "js-waku", "specification"]
"""The position of shard 0 in a bit vector.

``"node"``: the lowest bit of the first byte (nwaku, go-waku); shard 8 is the lowest bit of the second.
``"js-waku"``: the highest bit of the first byte.
``"specification"``: "the right-most bit", the lowest bit of the last byte.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayShards:
    """Some shards of one cluster."""

    cluster_id: int
    """0 to 65,535."""
    shards: frozenset[int]
    """Each 0 to 1,023."""

    def __post_init__(self) -> None:
        if not 0 <= self.cluster_id < CLUSTER_COUNT:
            raise ConfigurationError(f"cluster_id must lie in 0..{CLUSTER_COUNT - 1}, not {self.cluster_id}")
        for shard in self.shards:
            if not 0 <= shard < SHARDS_PER_CLUSTER:
                raise ConfigurationError(f"shards must lie in 0..{SHARDS_PER_CLUSTER - 1}, not {shard}")


def relay_shards_entry(relay_shards: RelayShards, bit_order: BitOrder = "node") -> tuple[str, bytes]:
    """Return key and value for a node record, in the form that is recommended for this number of shards.

    "Nodes MUST NOT use both index list (rs) and bit vector (rsv) in a single ENR", hence one entry.
    """
    if len(relay_shards.shards) < INDEX_LIST_BELOW:
        return INDEX_LIST_KEY, encode_index_list(relay_shards)
    return BIT_VECTOR_KEY, encode_bit_vector(relay_shards, bit_order)


def decode_relay_shards(data: bytes, bit_order: BitOrder = "node") -> RelayShards:
    """Return the shards in ``data``, of either form, or raise `DecodeError`.

    The length determines the form: an index list has an odd number of bytes, a bit vector 130.
    """
    if len(data) == _BIT_VECTOR_BYTES:
        return decode_bit_vector(data, bit_order)
    return decode_index_list(data)


def encode_index_list(relay_shards: RelayShards) -> bytes:
    """Return cluster, count and shards in ascending order, all big-endian ("Index List").

    Raises `ConfigurationError` for more than 255 shards, because the count has one byte.
    """
    shards = sorted(relay_shards.shards)
    if len(shards) > _MAX_LISTED:
        raise ConfigurationError(
            f"an index list holds at most {_MAX_LISTED} shards, not {len(shards)}; use a bit vector"
        )
    return struct.pack(f">HB{len(shards)}H", relay_shards.cluster_id, len(shards), *shards)


def decode_index_list(data: bytes) -> RelayShards:
    """Return the shards in an index list, or raise `DecodeError`; repeated shards count once."""
    if len(data) < 3:
        raise DecodeError(f"an index list of shards has at least 3 bytes, not {len(data)}")
    cluster_id, count = struct.unpack_from(">HB", data)
    if len(data) != 3 + 2 * count:
        raise DecodeError(f"an index list of {count} shards has {3 + 2 * count} bytes, not {len(data)}")
    shards = struct.unpack_from(f">{count}H", data, 3)
    if shards and max(shards) >= SHARDS_PER_CLUSTER:
        raise DecodeError(f"shards must lie in 0..{SHARDS_PER_CLUSTER - 1}, not {max(shards)}")
    return RelayShards(cluster_id=cluster_id, shards=frozenset(shards))


def encode_bit_vector(relay_shards: RelayShards, bit_order: BitOrder = "node") -> bytes:
    """Return cluster and 1,024 bits ("Bit Vector")."""
    bits = sum(1 << _bit(shard, bit_order) for shard in relay_shards.shards)
    return relay_shards.cluster_id.to_bytes(2, "big") + bits.to_bytes(SHARDS_PER_CLUSTER // 8, _byte_order(bit_order))


def decode_bit_vector(data: bytes, bit_order: BitOrder = "node") -> RelayShards:
    """Return the shards in a bit vector, or raise `DecodeError`."""
    if len(data) != _BIT_VECTOR_BYTES:
        raise DecodeError(f"a bit vector of shards has {_BIT_VECTOR_BYTES} bytes, not {len(data)}")
    bits = int.from_bytes(data[2:], _byte_order(bit_order))
    return RelayShards(
        cluster_id=int.from_bytes(data[:2], "big"),
        shards=frozenset(shard for shard in range(SHARDS_PER_CLUSTER) if bits >> _bit(shard, bit_order) & 1),
    )


def _byte_order(bit_order: BitOrder) -> Literal["little", "big"]:
    """Return the byte order that reads the 128 bytes as one number, with one bit for each shard."""
    return "little" if bit_order == "node" else "big"


def _bit(shard: int, bit_order: BitOrder) -> int:
    return SHARDS_PER_CLUSTER - 1 - shard if bit_order == "js-waku" else shard
