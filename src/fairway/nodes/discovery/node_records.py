"""`NodeRecords`: the newest record of each known node of one network.

Invariant: it holds at most `MAX_RECORDS` records, all of its cluster, with a common shard, and with an address. A
full set rejects new nodes, so that invented records cannot evict nodes that serve.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from enum import Enum
from typing import Final

from fairway.libp2p.peer_id import PeerId
from fairway.nodes.discovery.node_record import NodeRecord

MAX_RECORDS: Final = 1_000


class RecordRefusal(Enum):
    """Why a valid record is not kept."""

    OTHER_NETWORK = "other network"
    """It names another cluster, none, or none of our shards."""
    NO_ADDRESS = "no address"
    """None of its addresses can be dialled."""
    OLD = "old"
    """The same or a newer record of the node is here."""
    FULL = "full"
    """There is no room."""


class NodeRecords:
    """The records of one network."""

    def __init__(self, *, cluster_id: int | None, shards: Collection[int] = ()) -> None:
        """Without a cluster, records of all networks are kept; without shards, those of all shards."""
        self.refused: Final[Counter[RecordRefusal]] = Counter()
        """Records that were not kept."""
        self._cluster_id: Final = cluster_id
        self._shards: Final = frozenset(shards)
        self._records: dict[PeerId, NodeRecord] = {}

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def add(self, record: NodeRecord) -> RecordRefusal | None:
        """Keep a record; return why not, or None if it is kept."""
        refusal = self._judge(record)
        if refusal is None:
            self._records[record.peer_id] = record
        else:
            self.refused[refusal] += 1
        return refusal

    def remove(self, peer: PeerId) -> None:
        """Forget a node."""
        self._records.pop(peer, None)

    def records(self) -> tuple[NodeRecord, ...]:
        """Return all records, the oldest first."""
        return tuple(self._records.values())

    def _judge(self, record: NodeRecord) -> RecordRefusal | None:
        theirs = record.relay_shards
        if self._cluster_id is not None and (
            theirs is None
            or theirs.cluster_id != self._cluster_id
            or (self._shards and self._shards.isdisjoint(theirs.shards))
        ):
            return RecordRefusal.OTHER_NETWORK
        if not record.addresses:
            return RecordRefusal.NO_ADDRESS
        known = self._records.get(record.peer_id)
        if known is None:
            return RecordRefusal.FULL if len(self._records) >= MAX_RECORDS else None
        return RecordRefusal.OLD if record.sequence <= known.sequence else None
