"""The speed of segmentation: Reed-Solomon and Keccak, beside zfec and the SHA3 of the standard library.

zfec is a C library for Reed-Solomon over the same field. Its parity is of another code, so it cannot replace Leopard on
the wire. Both sides take turns within a measurement.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial

from benchmarks.figures import Figure, best_of, best_of_each
from benchmarks.session import Benchmark, Session

from fairway.options import SegmentationConfig
from fairway.protocol.segmentation import leopard
from fairway.protocol.segmentation.segmenter import LIP_243_HEADROOM_BYTES, Segmenter
from fairway.wire.hashing import keccak256
from fairway.wire.segment import LIP_243

_SHARD_BYTES = 102_400
_SHAPES = ((11, 2), (28, 4), (100, 13), (224, 28))
"""Data and parity segments of messages of 1, 3, 10 and 23 MB; the last is the largest that GF(2^8) holds."""


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    rows = []
    for k, m in _SHAPES:
        for what, measure in (("encode", compare_encoding), ("decode", compare_decoding)):
            name = f"Reed-Solomon {what}, {k} + {m} segments"
            rows.append(Benchmark(name=name, measure=partial(measure, k=k, m=m)))
    return [
        *rows,
        Benchmark(name="Keccak-256 of 1 MiB", measure=compare_hashing),
        Benchmark(name="Reed-Solomon parity of a message of 23 MB", measure=time_parity),
        Benchmark(name="segmentation of a message of 23 MB", measure=time_segmentation),
    ]


def compare_encoding(session: Session, *, k: int, m: int) -> Figure:
    """Compute the parity of k data segments."""
    data = _random_shards(k)

    def peer() -> Callable[[], object]:
        from zfec import Encoder  # noqa: PLC0415 - an optional peer

        encoder, numbers = Encoder(k, k + m), list(range(k, k + m))
        return lambda: encoder.encode(data, numbers)

    return _beside_zfec(session, k, lambda: leopard.encode(data, m), peer)


def compare_decoding(session: Session, *, k: int, m: int) -> Figure:
    """Recover as many data segments as there is parity, spread evenly over the message."""
    data = _random_shards(k)
    parity = leopard.encode(data, m)
    lost = [index * k // m for index in range(m)]
    left = [None if index in lost else shard for index, shard in enumerate(data)]
    assert leopard.recover(left, parity) == {index: data[index] for index in lost}

    def peer() -> Callable[[], object]:
        from zfec import Decoder, Encoder  # noqa: PLC0415 - an optional peer

        decoder, shards, numbers = Decoder(k, k + m), list(data), list(range(k))
        parity_shards = Encoder(k, k + m).encode(data, list(range(k, k + m)))
        for number, index in enumerate(lost):
            shards[index], numbers[index] = parity_shards[number], k + number
        assert list(decoder.decode(shards, numbers)) == data
        return lambda: decoder.decode(shards, numbers)

    return _beside_zfec(session, k, lambda: leopard.recover(left, parity), peer)


def compare_hashing(session: Session) -> Figure:
    """Hash with Keccak-256 and with SHA3-256, which are one permutation with different padding."""
    data = os.urandom(1 << 20)
    ours, peer = best_of_each([lambda: keccak256(data), lambda: hashlib.sha3_256(data).digest()], session.budget_s)
    return _row(len(data), ours, peer, "SHA3-256", "another padding, so it cannot take Keccak's place")


def time_parity(session: Session) -> Figure:
    """Compute the parity of the largest message in one go."""
    k, m = _SHAPES[-1]
    data = _random_shards(k)
    return _in_ms(best_of(lambda: leopard.encode(data, m), session.budget_s))


def time_segmentation(session: Session) -> Figure:
    """Do all that is done to such a message before SDS: Keccak, parity, and encoded segments."""
    size_bytes = _SHAPES[-1][0] * _SHARD_BYTES
    config = SegmentationConfig(
        segment_size_bytes=_SHARD_BYTES + LIP_243_HEADROOM_BYTES, max_message_size_bytes=size_bytes
    )
    segmenter = Segmenter(config, LIP_243)
    payload = os.urandom(size_bytes)
    return _in_ms(best_of(lambda: segmenter.split(payload), session.budget_s))


def _random_shards(count: int) -> list[bytes]:
    return [os.urandom(_SHARD_BYTES) for _ in range(count)]


def _beside_zfec(
    session: Session,
    k: int,
    ours: Callable[[], object],
    peer: Callable[[], Callable[[], object]],
) -> Figure:
    size_bytes = k * _SHARD_BYTES
    try:
        calls = [ours, peer()]
    except ImportError:
        return _row(size_bytes, best_of(ours, session.budget_s), None, "zfec", "zfec is not installed")
    our_time, peer_time = best_of_each(calls, session.budget_s)
    return _row(size_bytes, our_time, peer_time, "zfec", "")


def _row(size_bytes: int, ours: float, peer: float | None, peer_name: str, remark: str) -> Figure:
    """Return speeds from the times that both took."""
    megabytes = size_bytes / 1e6
    theirs = None if peer is None else megabytes / peer
    return Figure(ours=megabytes / ours, unit="MB/s", peer=theirs, peer_name=peer_name, remark=remark)


def _in_ms(seconds: float) -> Figure:
    return Figure(ours=seconds * 1e3, unit="ms")
