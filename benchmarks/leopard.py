"""Reed-Solomon and Keccak: the speed of segmentation, beside zfec in the same run.

Run as ``python benchmarks/leopard.py``. zfec is a C library for Reed-Solomon over the same field; its parity is of
another code, so it cannot stand in for Leopard on the wire.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from typing import Final

import zfec

from fairway.options import SegmentationConfig
from fairway.protocol.segmentation import leopard
from fairway.protocol.segmentation.digest import keccak256
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.segment import LIP_243
from figures import Figure, best_of, best_of_each

SHARD_BYTES: Final = 102_400
SHAPES: Final = ((11, 2), (28, 4), (100, 13), (224, 28))
LARGEST_MESSAGE: Final = 224 * SHARD_BYTES


def run(*, quick: bool) -> list[Figure]:
    """Measure everything; quick spends a tenth of the time."""
    budget_s = 0.2 if quick else 2.0
    figures = [figure for k, m in SHAPES for figure in coding(k, m, budget_s)]
    return [*figures, hashing(budget_s), largest_encoding(budget_s), largest_segmentation(budget_s)]


def coding(k: int, m: int, budget_s: float) -> list[Figure]:
    """Measure parity for k data shards, and recovery with m of them lost."""
    data = [os.urandom(SHARD_BYTES) for _ in range(k)]
    encoder, decoder = zfec.Encoder(k, k + m), zfec.Decoder(k, k + m)
    parity_numbers = list(range(k, k + m))
    lost = [index * k // m for index in range(m)]
    parity = leopard.encode(data, m)
    left = [None if index in lost else shard for index, shard in enumerate(data)]
    assert leopard.recover(left, parity) == {index: data[index] for index in lost}

    peer_parity = encoder.encode(data, parity_numbers)
    peer_shards, peer_numbers = list(data), list(range(k))
    for number, index in enumerate(lost):
        peer_shards[index], peer_numbers[index] = peer_parity[number], k + number
    assert list(decoder.decode(peer_shards, peer_numbers)) == data

    return [
        compared(
            f"encode {k} + {m} shards of {SHARD_BYTES} bytes",
            k * SHARD_BYTES,
            lambda: leopard.encode(data, m),
            "zfec",
            lambda: encoder.encode(data, parity_numbers),
            budget_s,
        ),
        compared(
            f"decode {k} + {m} with {m} data shards lost",
            k * SHARD_BYTES,
            lambda: leopard.recover(left, parity),
            "zfec",
            lambda: decoder.decode(peer_shards, peer_numbers),
            budget_s,
        ),
    ]


def hashing(budget_s: float) -> Figure:
    """Measure Keccak-256 beside the SHA3-256 of the standard library, the same permutation."""
    data = os.urandom(1 << 20)
    return compared(
        "Keccak-256 of 1 MiB",
        len(data),
        lambda: keccak256(data),
        "SHA3-256",
        lambda: hashlib.sha3_256(data).digest(),
        budget_s,
    )


def compared(
    name: str,
    size_bytes: int,
    ours: Callable[[], object],
    peer_name: str,
    peer: Callable[[], object],
    budget_s: float,
) -> Figure:
    """Measure two ways to work through as many bytes."""
    our_time, peer_time = best_of_each([ours, peer], budget_s)
    return Figure(
        name=name,
        ours=size_bytes / 1e6 / our_time,
        peer=size_bytes / 1e6 / peer_time,
        peer_name=peer_name,
        unit="MB/s",
    )


def largest_encoding(budget_s: float) -> Figure:
    """Measure the parity of the largest message that has 12.5 % of it in GF(2^8)."""
    data = [os.urandom(SHARD_BYTES) for _ in range(224)]
    return Figure(
        name=f"parity of a message of {LARGEST_MESSAGE / 1e6:.1f} MB",
        ours=best_of(lambda: leopard.encode(data, 28), budget_s) * 1e3,
        peer=None,
        peer_name="",
        unit="ms",
    )


def largest_segmentation(budget_s: float) -> Figure:
    """Measure all that is done to such a message before SDS: Keccak, parity, and encoded segments."""
    config = SegmentationConfig(segment_size_bytes=SHARD_BYTES + 128, max_message_size_bytes=LARGEST_MESSAGE)
    segmenter = Segmenter(config, LIP_243)
    payload = os.urandom(LARGEST_MESSAGE)
    return Figure(
        name=f"segmentation of a message of {LARGEST_MESSAGE / 1e6:.1f} MB",
        ours=best_of(lambda: segmenter.split(payload), budget_s) * 1e3,
        peer=None,
        peer_name="",
        unit="ms",
    )


if __name__ == "__main__":
    for row in run(quick="--quick" in sys.argv[1:]):
        print(row)
