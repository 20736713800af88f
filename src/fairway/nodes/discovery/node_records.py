"""`NodeRecords`: the newest record of each known node of one network.

Invariant: it holds at most `MAX_RECORDS` records, all of its cluster, with a common shard, and with an address. A
full set rejects new nodes, so that invented records cannot evict nodes that serve.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from fairway.libp2p.peer_id import PeerId
from fairway.nodes.discovery.node_record import NodeRecord

MAX_RECORDS: Final = 1_000


class NodeRecords:
    """The records of one network."""

    def __init__(self, *, cluster_id: int | None, shards: Collection[int] = ()) -> None:
        """Without a cluster, records of all networks are kept; without shards, those of all shards."""
        self._cluster_id: Final = cluster_id
        self._shards: Final = frozenset(shards)
        self._records: dict[PeerId, NodeRecord] = {}

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def add(self, record: NodeRecord) -> str | None:
        """Keep a record, and return None; or return why it is not kept, in words for counters."""
        refusal = self._judge(record)
        if refusal is None:
            self._records[record.peer_id] = record
        return refusal

    def remove(self, peer: PeerId) -> None:
        """Remove a node."""
        self._records.pop(peer, None)

    def records(self) -> tuple[NodeRecord, ...]:
        """Return all records, the oldest first."""
        return tuple(self._records.values())

    def _judge(self, record: NodeRecord) -> str | None:
        theirs = record.relay_shards
        if self._cluster_id is not None and (
            theirs is None
            or theirs.cluster_id != self._cluster_id
            or (self._shards and self._shards.isdisjoint(theirs.shards))
        ):
            return "other network"
        if not record.addresses:
            return "no address"
        known = self._records.get(record.peer_id)
        if known is None:
            return "full" if len(self._records) >= MAX_RECORDS else None
        return "old" if record.sequence <= known.sequence else None
