"""Known answers of the Leopard library: parity shards, what can be recovered, and what cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256, shake_128
from typing import Any, Final

from tests.conformance.cases import Case, MalformedCaseError, refused, replay_cases, same
from tests.conformance.report import Check

from fairway.errors import NotEnoughShardsError
from fairway.protocol.segmentation import leopard
from fairway.protocol.segmentation.leopard import field_for

_MOST_BYTES: Final = 1 << 30
"""A case with more data than this is refused: a file should not be able to fill the memory."""


def check_leopard(group: Any) -> Iterator[Check]:
    """Check encodings, and decodings after losses."""
    yield from replay_cases(_named(group), _encoding)


def _named(group: Any) -> Any:
    """Give each case, which is known by its numbers, a name."""
    if not isinstance(group, list):
        return group
    return [
        {"name": f"{case.get('k')}+{case.get('m')} of {case.get('shard_size')} B", **case}
        if isinstance(case, Mapping)
        else case
        for case in group
    ]


def _encoding(case: Case) -> Iterator[Check]:
    k, m, size = case.integer("k"), case.integer("m"), case.integer("shard_size")
    if not 0 <= k * size <= _MOST_BYTES:
        raise MalformedCaseError(f"{k} shards of {size} bytes are too much")
    data = [shake_128(f"{k},{m},{index}".encode()).digest(size) for index in range(k)]
    yield same("data_sha256", case.octets("data_sha256"), sha256(b"".join(data)).digest())
    yield same("field_bits", case.integer("field_bits"), field_for(k, m).bits)

    parity = leopard.encode(data, m)
    if "parity_hex" in case:
        yield from _shards(case.octet_strings("parity_hex"), parity)
    else:
        yield from _shards(case.octet_strings("parity_sha256"), [sha256(shard).digest() for shard in parity])
    for loss in case.children("recoverable"):
        yield _recovers(data, parity, loss)
    for loss in case.children("unrecoverable"):
        yield _cannot_recover(data, parity, loss)


def _shards(expected: list[bytes], got: list[bytes]) -> Iterator[Check]:
    yield same("number of parity shards", len(expected), len(got))
    for index, (one, other) in enumerate(zip(expected, got, strict=False)):
        yield same(f"parity shard {index}", one, other)


def _left(shards: list[bytes], lost: list[int]) -> list[bytes | None]:
    if not set(lost) <= set(range(len(shards))):
        raise MalformedCaseError(f"shards {lost} are lost, of {len(shards)}")
    return [None if index in set(lost) else shard for index, shard in enumerate(shards)]


def _loss_name(lost_data: list[int], lost_parity: list[int]) -> str:
    return f"without data {_ranges(lost_data)} and parity {_ranges(lost_parity)}"


def _ranges(indices: list[int]) -> str:
    """Return indices in short: 0-3,7."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or "none"


def _recovers(data: list[bytes], parity: list[bytes], loss: Case) -> Check:
    lost_data, lost_parity = loss.integers("lost_data"), loss.integers("lost_parity")
    recovered = leopard.recover(_left(data, lost_data), _left(parity, lost_parity))
    return same(
        f"recovered {_loss_name(lost_data, lost_parity)}", {index: data[index] for index in lost_data}, recovered
    )


def _cannot_recover(data: list[bytes], parity: list[bytes], loss: Case) -> Check:
    lost_data, lost_parity = loss.integers("lost_data"), loss.integers("lost_parity")
    left = _left(data, lost_data), _left(parity, lost_parity)
    return refused(
        f"refused {_loss_name(lost_data, lost_parity)}", lambda: leopard.recover(*left), NotEnoughShardsError
    )
