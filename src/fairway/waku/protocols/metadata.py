"""Metadata: what two nodes tell each other of their cluster and shards when they connect (66/WAKU2-METADATA).

Pure. A peer of another cluster, or one that names none, is of no use here and is parted with.
"""

from __future__ import annotations

from fairway.errors import DecodeError
from fairway.wire.metadata import WakuMetadata, decode_metadata


def mismatch(ours: WakuMetadata, data: bytes) -> str | None:
    """Return why the peer that said ``data`` is of no use to us, or None if it belongs to our cluster."""
    try:
        theirs = decode_metadata(data)
    except DecodeError as error:
        return str(error)
    if theirs.cluster_id != ours.cluster_id:
        return f"the peer is of cluster {theirs.cluster_id}, this node of cluster {ours.cluster_id}"
    return None
