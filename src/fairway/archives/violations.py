"""`violations`: the memberships that exceeded their rate limit, from the tables of a run, without Spark.

A proof does not show its membership. But two signals under one nullifier reveal the identity secret (RLN-V2). Its
Poseidon hash is the identity commitment, which identifies the member in its group.

Proofs in an archive are not verified. A forger can write shares that reveal some secret, but not the secret of a member
without knowing it. So a violation whose commitment is in the group is one of this member. A violation with another
commitment proves nothing. The secrets are not returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.stages.proof_columns import PROOF
from fairway.rln.field import ELEMENT_BYTES, poseidon
from fairway.rln.membership_file import MembershipFile
from fairway.rln.proof import SignalProof, recover_secret

_WORDS: Final = ELEMENT_BYTES // 8
_SHARES: Final = 16
"""Most signals under one nullifier of which all pairs are checked; a forger can add any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateViolation:
    """A message id under which a membership sent several signals."""

    epoch: int
    nullifier: bytes
    commitment: bytes
    """Identity commitment of the membership, 32 bytes, if the proofs are genuine; a member's is preferred."""
    place: int | None
    """Place of the member in the group; None if the commitment is not in the group, or no group was given."""
    limit: int | None
    """Messages that the member may send in an epoch; None if ``place`` is None."""
    signals: int
    """Number of different signals under the nullifier, at least 2."""
    senders: tuple[tuple[str, str], ...]
    """Channel and sender id of the SDS messages with these signals, sorted."""


def violations(tables: RunTables, group: MembershipFile | None = None) -> list[RateViolation]:
    """Return the violations among the SDS messages of a run, ordered by epoch and nullifier.

    ``group`` has the places and limits of members. Memory holds 24 bytes for each proof. Raises `MissingExtraError`
    without fairway-rln if there is a violation, and the errors of `RunTables.batches`.
    """
    suspects = _suspects(_with_proofs(tables, ["nullifier", "share_x"]))
    if not len(suspects):
        return []
    senders: dict[bytes, set[tuple[str, str]]] = {}
    nullifier_of: dict[bytes, bytes] = {}
    columns = ["message_hash", "nullifier", "channel_id", "sender_id"]
    for batch in _with_proofs(tables, columns):
        for row in batch.filter(pa.array(_are_in(batch.column("nullifier"), suspects))).to_pylist():
            nullifier_of[row["message_hash"]] = row["nullifier"]
            senders.setdefault(row["nullifier"], set()).add((row["channel_id"], row["sender_id"]))
    shares: dict[tuple[int, bytes], dict[tuple[bytes, bytes], SignalProof]] = {}
    for proof in _proofs(tables, nullifier_of):
        shares.setdefault((proof.epoch, proof.nullifier), {})[proof.share_x, proof.share_y] = proof
    found = [
        _violation([proofs[share] for share in sorted(proofs)], senders[nullifier], group)
        for (_, nullifier), proofs in sorted(shares.items(), key=lambda item: item[0])
    ]
    return [violation for violation in found if violation is not None]


def _with_proofs(tables: RunTables, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of all WakuMessages of a channel that have a proof."""
    for name in ("sds_messages", "repeats"):
        yield from tables.batches(name, columns, ds.field("nullifier").is_valid())


def _violation(
    proofs: list[SignalProof], senders: Iterable[tuple[str, str]], group: MembershipFile | None
) -> RateViolation | None:
    # A forged proof may be among genuine ones, so each pair is checked.
    secrets = [recover_secret(one, other) for one, other in combinations(proofs[:_SHARES], 2)]
    commitments = [poseidon(secret) for secret in dict.fromkeys(secrets) if secret is not None]
    if not commitments:
        return None
    places = {} if group is None else {one: place for one in commitments if (place := group.place(one)) is not None}
    commitment = next(iter(places), commitments[0])
    place = places.get(commitment)
    member = None if group is None or place is None else group.members[place]
    return RateViolation(
        epoch=proofs[0].epoch,
        nullifier=proofs[0].nullifier,
        commitment=commitment,
        place=place,
        limit=None if member is None else member.limit,
        signals=len({proof.share_x for proof in proofs}),
        senders=tuple(sorted(senders)),
    )


def _suspects(batches: Iterator[pa.RecordBatch]) -> npt.NDArray[np.uint64]:
    """Return the first 16 bytes, as two numbers, of nullifiers with several signals."""
    seen = [np.empty((0, 3), np.uint64)]
    for batch in batches:
        nullifier, share_x = (_numbers(batch.column(name)) for name in ("nullifier", "share_x"))
        seen.append(np.column_stack((nullifier[:, :2], share_x[:, :1])))
    signals = np.unique(np.concatenate(seen), axis=0)
    again = (signals[1:, :2] == signals[:-1, :2]).all(axis=1)
    return np.unique(signals[1:][again][:, :2], axis=0)


def _are_in(nullifiers: pa.Array, suspects: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    wanted = {(int(high), int(low)) for high, low in suspects}
    return np.array([(int(high), int(low)) in wanted for high, low in _numbers(nullifiers)[:, :2]], bool)


def _numbers(elements: pa.Array) -> npt.NDArray[np.uint64]:
    """Return elements as rows of four numbers."""
    fixed = pc.cast(elements, pa.binary(ELEMENT_BYTES))
    return np.frombuffer(b"".join(fixed.to_pylist()), np.uint64).reshape(-1, _WORDS)


def _proofs(tables: RunTables, nullifier_of: dict[bytes, bytes]) -> Iterator[SignalProof]:
    """Yield the proofs of messages, in the order of the message hashes."""
    wanted = ds.field("message_hash").isin(pa.array(sorted(nullifier_of), pa.binary()))
    found: dict[bytes, bytes] = {}
    for batch in tables.batches("waku_messages", ["message_hash", PROOF], wanted):
        found.update((row["message_hash"], row[PROOF]) for row in batch.to_pylist())
    for message_hash in sorted(found):
        yield SignalProof.decode(found[message_hash])
