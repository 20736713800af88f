"""`assemble`: rebuilds the payload of a set (SEGMENTATION, "Receiving"; LIP-243, "Reconstruction").

Segments of SEGMENTATION do not name the length of the payload, and parity is computed over data padded with zeros. If
Reed-Solomon recovers the last data segment, its trailing zeros may be padding or payload. `assemble` then tries each
number of zeros until the Keccak-256 matches.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from fairway.protocol.segmentation import leopard
from fairway.wire.hashing import keccak256

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fairway.protocol.segmentation.segment_set import SegmentIndex, SetKey

MAX_TRAILING_ZEROS: Final = 131_072
"""Trailing zeros of a recovered last segment that are tried at most (about 300 ms of work)."""


class Unassembled(Enum):
    """The reason why segments give no payload."""

    MISMATCH = "their payload has another Keccak-256 than the one that they name"
    UNDECIDED = "the recovered last segment ends with too many zeros to find out how many are payload"


def assemble(
    key: SetKey, payloads: Mapping[SegmentIndex, bytes], data_count: int, parity_count: int
) -> bytes | Unassembled:
    """Return the payload of a set, or the reason for its absence; ``payloads`` has at least ``data_count`` segments."""
    data = {number: payload for (is_parity, number), payload in payloads.items() if not is_parity}
    if len(data) == data_count:
        # "Concatenating data segments if all are present": their lengths do not matter.
        # RELIABLE-CHANNEL-API, "Message Segmentation": segment order MUST be preserved during reassembly.
        return _checked(key, b"".join(data[number] for number in range(data_count)))
    parity = {number: payload for (is_parity, number), payload in payloads.items() if is_parity}
    shard_bytes = len(next(iter(parity.values())))
    last = data_count - 1
    shards = [data.get(number) for number in range(data_count)]
    final = shards[last]
    if final is not None:
        shards[last] = final.ljust(shard_bytes, b"\0")
    found = leopard.recover(shards, [parity.get(number) for number in range(parity_count)])
    pieces = [found[number] if number in found else data[number] for number in range(data_count)]
    if last in found:
        if key.payload_length is None:
            return _with_end_found(key, pieces)
        pieces[last] = pieces[last][: key.payload_length - last * shard_bytes]
    return _checked(key, b"".join(pieces))


def _checked(key: SetKey, payload: bytes) -> bytes | Unassembled:
    # SEGMENTATION, "Receiving" and "Integrity": MUST verify that Keccak256(reconstructed_payload) matches
    # entire_message_hash.
    if key.payload_length not in {None, len(payload)} or keccak256(payload) != key.payload_hash:
        return Unassembled.MISMATCH
    return payload


def _with_end_found(key: SetKey, pieces: list[bytes]) -> bytes | Unassembled:
    """Return the payload if its last segment was recovered, with an unknown number of padding zeros."""
    padded = pieces[-1]
    pieces = [*pieces[:-1], padded.rstrip(b"\0")]
    zeros = len(padded) - len(pieces[-1])
    # No data segment is empty: if all its bytes are zeros, at least one of them belongs to the payload.
    least = 0 if pieces[-1] else 1
    count = _trailing_zeros_for(key.payload_hash, pieces, range(least, min(zeros, MAX_TRAILING_ZEROS) + 1))
    if count is not None:
        return b"".join([*pieces, bytes(count)])
    return Unassembled.UNDECIDED if zeros > MAX_TRAILING_ZEROS else Unassembled.MISMATCH


def _trailing_zeros_for(digest: bytes, prefix: Iterable[bytes | memoryview], counts: range) -> int | None:
    """Return the number of zero bytes after the prefix that gives this Keccak-256; None if no count matches.

    ``counts`` ascends in steps of 1. The prefix is hashed once; each candidate hashes one more byte.
    """
    from Crypto.Hash import keccak  # noqa: PLC0415 - see `fairway.wire.hashing.keccak256`

    state = keccak.new(digest_bits=256, update_after_digest=True)
    for piece in prefix:
        state.update(piece)
    state.update(bytes(counts.start))
    for count in counts:
        if state.digest() == digest:
            return count
        state.update(b"\0")
    return None
