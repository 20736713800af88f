"""The public values of the RLN proof of a message: its epoch, its nullifier, and the hash of its signal.

A nullifier identifies one message id of one membership in one epoch (RLN-V2), without revealing the membership. Proofs
are not verified, because that needs the Merkle roots of that time. The writer of an archive can forge them. An
unreadable proof gives nulls.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from fairway.errors import DecodeError
from fairway.rln.proof import SignalProof

PROOF: Final = "rate_limit_proof"
"""The column of ``waku_messages`` with the proofs."""
PROOF_COLUMNS: Final = pa.schema([("rln_epoch", pa.int64()), ("nullifier", pa.binary()), ("share_x", pa.binary())])
_MAX_EPOCH: Final = 2**63 - 1


def proof_columns(waku_messages: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns `PROOF_COLUMNS` of messages; null if the proof is missing or unreadable."""
    if PROOF not in waku_messages.schema.names or waku_messages[PROOF].null_count == waku_messages.num_rows:
        return {field.name: pa.nulls(waku_messages.num_rows, field.type) for field in PROOF_COLUMNS}
    told = [_told(proof) for proof in waku_messages[PROOF].to_pylist()]
    columns = zip(*told, strict=True)
    return {field.name: pa.array(values, field.type) for field, values in zip(PROOF_COLUMNS, columns, strict=True)}


def _told(encoded: bytes | None) -> tuple[int, bytes, bytes] | tuple[None, None, None]:
    if encoded:
        try:
            proof = SignalProof.decode(encoded)
        except DecodeError:
            return None, None, None
        if proof.epoch <= _MAX_EPOCH:
            return proof.epoch, proof.nullifier, proof.share_x
    return None, None, None
