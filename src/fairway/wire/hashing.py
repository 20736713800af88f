"""The hash functions of the two wires.

* ``murmur3_x86_32``: the string hash of Nim before 2.2, which js-waku's bloom filter uses (Profile.WAKU).
* ``farmhash64``: FarmHash Fingerprint64, the string hash of Nim 2.2 and later, which nim-sds uses for its bloom
  filter and its repair timing (Profile.LOGOS).
* ``keccak256``: Keccak-256 with the original padding, as Ethereum uses it; **not** SHA3-256 (SEGMENTATION).

`murmur3_x86_32` and `farmhash64` follow the published algorithms in integers, because no maintained Python package has
these exact variants. `murmur3_pair` shares the work between an id and the same id with a suffix. `murmur3_of_rows`
hashes many texts of one length at once.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

_M32: Final = 0xFFFFFFFF
_M64: Final = 0xFFFFFFFFFFFFFFFF


def keccak256(data: bytes) -> bytes:
    """Return the 32-byte Keccak-256 of data (SEGMENTATION, "Sending": entire_message_hash)."""
    from Crypto.Hash import keccak  # noqa: PLC0415 - loads a parser of C, which is a seventh of importing fairway

    return keccak.new(digest_bits=256, data=data).digest()


def _murmur3_blocks(data: bytes, count: int, state: int) -> int:
    # The mask is a literal, because this is the innermost loop of the protocol.
    for k in struct.unpack_from(f"<{count}I", data):
        k = (k * 0xCC9E2D51) & 0xFFFFFFFF  # noqa: PLW2901 - the algorithm mixes the block in place
        state ^= ((k << 15 | k >> 17) * 0x1B873593) & 0xFFFFFFFF
        state = ((state << 13 | state >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    return state


def _murmur3_finish(tail: bytes, length: int, state: int) -> int:
    if tail:
        k = (int.from_bytes(tail, "little") * 0xCC9E2D51) & _M32
        state ^= (((k << 15) | (k >> 17)) * 0x1B873593) & _M32
    state ^= length
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _M32
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _M32
    return state ^ (state >> 16)


def murmur3_x86_32(data: bytes, seed: int = 0) -> int:
    """Return the unsigned 32-bit MurmurHash3 (x86 variant) of data."""
    blocks = len(data) // 4
    return _murmur3_finish(data[blocks * 4 :], len(data), _murmur3_blocks(data, blocks, seed))


def murmur3_pair(data: bytes, suffix: bytes) -> tuple[int, int]:
    """Return the hashes of data and of data followed by suffix; the common part is hashed once."""
    blocks = len(data) // 4
    state = _murmur3_blocks(data, blocks, 0)
    tail = data[blocks * 4 :]
    first = _murmur3_finish(tail, len(data), state)
    rest = tail + suffix
    more = len(rest) // 4
    state = _murmur3_blocks(rest, more, state)
    return first, _murmur3_finish(rest[more * 4 :], len(data) + len(suffix), state)


def _mixed(blocks: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    blocks = blocks * np.uint32(0xCC9E2D51)
    return (blocks << np.uint32(15) | blocks >> np.uint32(17)) * np.uint32(0x1B873593)


def murmur3_of_rows(
    rows: np.ndarray[tuple[int, int], np.dtype[np.uint8]],
) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Return `murmur3_x86_32`, with seed 0, of each row of bytes; shapes (n, length) and (n,)."""
    count, length = rows.shape
    whole = length - length % 4
    state = np.zeros(count, np.uint32)
    for blocks in np.ascontiguousarray(rows[:, :whole]).view("<u4").T:
        state ^= _mixed(blocks)
        state = (state << np.uint32(13) | state >> np.uint32(19)) * np.uint32(5) + np.uint32(0xE6546B64)
    if whole < length:
        tail = np.zeros((count, 4), np.uint8)
        tail[:, : length - whole] = rows[:, whole:]
        state ^= _mixed(tail.view("<u4")[:, 0])
    state ^= np.uint32(length)
    state = (state ^ state >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    state = (state ^ state >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return state ^ state >> np.uint32(16)


_K0: Final = 0xC3A5C85C97CB3127
_K1: Final = 0xB492B66FBE98F273
_K2: Final = 0x9AE16A3B2F90404F


def _rotate(value: int, shift: int) -> int:
    return ((value >> shift) | (value << (64 - shift))) & _M64 if shift else value


def _shift_mix(value: int) -> int:
    return value ^ (value >> 47)


def _hash_16(u: int, v: int, mul: int) -> int:
    a = _shift_mix(((u ^ v) * mul) & _M64)
    b = _shift_mix(((v ^ a) * mul) & _M64)
    return (b * mul) & _M64


def _fetch64(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fetch32(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _farm_upto_16(data: bytes) -> int:
    length = len(data)
    if length >= 8:
        mul = _K2 + length * 2
        a = (_fetch64(data, 0) + _K2) & _M64
        b = _fetch64(data, length - 8)
        c = (_rotate(b, 37) * mul + a) & _M64
        d = ((_rotate(a, 25) + b) * mul) & _M64
        return _hash_16(c, d, mul)
    if length >= 4:
        mul = _K2 + length * 2
        return _hash_16((length + (_fetch32(data, 0) << 3)) & _M64, _fetch32(data, length - 4), mul)
    if length > 0:
        y = data[0] + (data[length >> 1] << 8)
        z = length + (data[length - 1] << 2)
        return (_shift_mix(((y * _K2) ^ (z * _K0)) & _M64) * _K2) & _M64
    return _K2


def _farm_17_to_32(data: bytes) -> int:
    length = len(data)
    mul = _K2 + length * 2
    a = (_fetch64(data, 0) * _K1) & _M64
    b = _fetch64(data, 8)
    c = (_fetch64(data, length - 8) * mul) & _M64
    d = (_fetch64(data, length - 16) * _K2) & _M64
    return _hash_16(
        (_rotate((a + b) & _M64, 43) + _rotate(c, 30) + d) & _M64,
        (a + _rotate((b + _K2) & _M64, 18) + c) & _M64,
        mul,
    )


def _farm_33_to_64(data: bytes) -> int:
    length = len(data)
    mul = _K2 + length * 2
    a = (_fetch64(data, 0) * _K2) & _M64
    b = _fetch64(data, 8)
    c = (_fetch64(data, length - 8) * mul) & _M64
    d = (_fetch64(data, length - 16) * _K2) & _M64
    y = (_rotate((a + b) & _M64, 43) + _rotate(c, 30) + d) & _M64
    z = _hash_16(y, (a + _rotate((b + _K2) & _M64, 18) + c) & _M64, mul)
    e = (_fetch64(data, 16) * mul) & _M64
    f = _fetch64(data, 24)
    g = ((y + _fetch64(data, length - 32)) * mul) & _M64
    h = ((z + _fetch64(data, length - 24)) * mul) & _M64
    return _hash_16(
        (_rotate((e + f) & _M64, 43) + _rotate(g, 30) + h) & _M64,
        (e + _rotate((f + a) & _M64, 18) + g) & _M64,
        mul,
    )


def _weak_hash_32(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = struct.unpack_from("<4Q", data, at)
    a = (a + w) & _M64
    b = _rotate((b + a + z) & _M64, 21)
    c = a
    a = (a + x + y) & _M64
    b = (b + _rotate(a, 44)) & _M64
    return (a + z) & _M64, (b + c) & _M64


def farmhash64(data: bytes) -> int:
    """Return the unsigned 64-bit FarmHash Fingerprint64 (the "na" variant) of data."""
    length = len(data)
    if length <= 16:
        return _farm_upto_16(data)
    if length <= 32:
        return _farm_17_to_32(data)
    if length <= 64:
        return _farm_33_to_64(data)
    x = 81
    y = (81 * _K1 + 113) & _M64
    z = (_shift_mix((y * _K2 + 113) & _M64) * _K2) & _M64
    v = (0, 0)
    w = (0, 0)
    x = (x * _K2 + _fetch64(data, 0)) & _M64
    end = ((length - 1) // 64) * 64
    for at in range(0, end, 64):
        x = (_rotate((x + y + v[0] + _fetch64(data, at + 8)) & _M64, 37) * _K1) & _M64
        y = (_rotate((y + v[1] + _fetch64(data, at + 48)) & _M64, 42) * _K1) & _M64
        x ^= w[1]
        y = (y + v[0] + _fetch64(data, at + 40)) & _M64
        z = (_rotate((z + w[0]) & _M64, 33) * _K1) & _M64
        v = _weak_hash_32(data, at, (v[1] * _K1) & _M64, (x + w[0]) & _M64)
        w = _weak_hash_32(data, at + 32, (z + w[1]) & _M64, (y + _fetch64(data, at + 16)) & _M64)
        z, x = x, z
    mul = (_K1 + ((z & 0xFF) << 1)) & _M64
    at = length - 64
    w = ((w[0] + ((length - 1) & 63)) & _M64, w[1])
    v = ((v[0] + w[0]) & _M64, v[1])
    w = ((w[0] + v[0]) & _M64, w[1])
    x = (_rotate((x + y + v[0] + _fetch64(data, at + 8)) & _M64, 37) * mul) & _M64
    y = (_rotate((y + v[1] + _fetch64(data, at + 48)) & _M64, 42) * mul) & _M64
    x ^= (w[1] * 9) & _M64
    y = (y + v[0] * 9 + _fetch64(data, at + 40)) & _M64
    z = (_rotate((z + w[0]) & _M64, 33) * mul) & _M64
    v = _weak_hash_32(data, at, (v[1] * mul) & _M64, (x + w[0]) & _M64)
    w = _weak_hash_32(data, at + 32, (z + w[1]) & _M64, (y + _fetch64(data, at + 16)) & _M64)
    z, x = x, z
    return _hash_16(
        (_hash_16(v[0], w[0], mul) + (_shift_mix(y) * _K0) + z) & _M64,
        (_hash_16(v[1], w[1], mul) + x) & _M64,
        mul,
    )
