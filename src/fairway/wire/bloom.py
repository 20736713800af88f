"""The bloom filter of SDS, bit for bit as in js-waku and nim-sds.

A filter contains the ids of received messages. A hit means possibly acknowledged (SDS, "Review ACK Status"). The
options of the channel fix the parameters. The Waku wire does not transmit them, so all participants must use the same
ones. The two wires differ in the string hash, the byte order of 64-bit words, and the transmission of the parameters.

The bits are a bytearray in the layout of the wire, so a snapshot is one copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Self

import numpy as np

from fairway.errors import ConfigurationError
from fairway.wire.hashing import farmhash64, murmur3_of_rows, murmur3_pair

_SUFFIX: Final = b" b"
MAX_HASHES: Final = 12
"""Most hash functions of a filter, as in Nim and js-waku."""
_FIRST_COLUMN: Final = (2, 2, 3, 4, 5, 6, 8, 9, 11, 12, 13, 15)
"""Fewest bits per element that the error table of Nim's bloom filter lists for 1, 2, ... 12 hash functions."""
_LAST_COLUMN: Final = 32
"""Widest column of that table: 4 bytes per element."""
_REMEMBERED_IDS: Final = 16_384
"""Ids with cached base hashes; all channels of a process on a topic hash the same ids."""
_FEW: Final = 32
"""Number of ids of one length from which hashing them together is faster."""

Hashes = np.ndarray[tuple[int, int], np.dtype[np.uint64]]
"""Two base hashes of each of n ids, shape (n, 2)."""


@lru_cache(_REMEMBERED_IDS)
def murmur_base_hashes(text: str) -> tuple[int, int]:
    """Return the two base hashes of the Waku wire: murmur3 as a *signed* 32-bit integer, made positive."""
    first, second = murmur3_pair(text.encode(), _SUFFIX)
    return min(first, 0x1_0000_0000 - first), min(second, 0x1_0000_0000 - second)


def murmur_base_hashes_of(texts: Sequence[str]) -> Hashes:
    """Return `murmur_base_hashes` of many texts, those of one length at once."""
    found = np.empty((len(texts), 2), np.uint64)
    alike: dict[int, list[int]] = {}
    encoded = [text.encode() for text in texts]
    for index, data in enumerate(encoded):
        alike.setdefault(len(data), []).append(index)
    for length, chosen in alike.items():
        if len(chosen) < _FEW:
            found[chosen] = [murmur_base_hashes(texts[index]) for index in chosen]
            continue
        for column, suffix in enumerate((b"", _SUFFIX)):
            joined = b"".join([encoded[index] + suffix for index in chosen])
            rows = np.frombuffer(joined, np.uint8).reshape(len(chosen), length + len(suffix))
            hashes = murmur3_of_rows(rows).astype(np.uint64)
            found[chosen, column] = np.minimum(hashes, np.uint64(0x1_0000_0000) - hashes)
    return found


@lru_cache(_REMEMBERED_IDS)
def farm_base_hashes(text: str) -> tuple[int, int]:
    """Return the two base hashes of the Logos wire: FarmHash as a *signed* 64-bit integer, made positive."""
    data = text.encode()
    first, second = farmhash64(data), farmhash64(data + _SUFFIX)
    return min(first, 0x1_0000_0000_0000_0000 - first), min(second, 0x1_0000_0000_0000_0000 - second)


def farm_base_hashes_of(texts: Sequence[str]) -> Hashes:
    """Return `farm_base_hashes` of many texts."""
    return np.array([farm_base_hashes(text) for text in texts], np.uint64).reshape(-1, 2)


def _bits_per_element_for(hash_count: int, error_rate: float) -> int:
    """Return the smallest whole m/n at which hash_count functions stay strictly below error_rate.

    Nim and js-waku use a printed table of (1 - e^(-k n/m))^k, with three significant digits in single precision. Both
    roundings affect the result (7 functions at 0.001 need 16 bits, not 15), so this function applies them too. The row
    of three functions repeats four cells, which shifts the following ones, and has one misprint.
    """
    repeated = 4 if hash_count == 3 else 0
    for bits in range(_FIRST_COLUMN[hash_count - 1], _LAST_COLUMN + repeated + 1):
        column = bits - repeated if bits >= 16 else bits
        rate = (1.0 - math.exp(-hash_count / column)) ** hash_count
        if (hash_count, column) == (3, 5):
            rate = 0.0920
        if float(np.float32(f"{rate:.2e}")) < error_rate:
            return bits
    raise ConfigurationError(
        f"{hash_count} hash functions cannot reach an error rate of {error_rate} with less than 4 bytes per element; "
        "allow more errors or leave the number of functions to the filter"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomParameters:
    """The numbers of bits and of hash functions of a filter."""

    capacity: int
    error_rate: float
    hash_count: int
    bit_count: int

    @classmethod
    def of(cls, capacity: int, error_rate: float, hash_count: int | None = None) -> Self:
        """Return the parameters that js-waku and nim-sds derive from capacity and error rate.

        Raises `ConfigurationError` for values that no filter can have.
        """
        if capacity < 1 or not 0 < error_rate < 1:
            raise ConfigurationError(
                f"a bloom filter needs capacity >= 1 and 0 < error_rate < 1, not {capacity} and {error_rate}"
            )
        if hash_count is None:
            bits = math.ceil(-math.log(error_rate) / math.log(2) ** 2)
            hashes = math.floor(math.log(2) * bits + 0.5)
        elif not 1 <= hash_count <= MAX_HASHES:
            raise ConfigurationError(f"hash_count must lie in 1..{MAX_HASHES}, not {hash_count}")
        else:
            bits, hashes = _bits_per_element_for(hash_count, error_rate), hash_count
        return cls(capacity=capacity, error_rate=error_rate, hash_count=hashes, bit_count=capacity * bits)

    @property
    def byte_length(self) -> int:
        """Bytes of the filter: whole 64-bit words, with a spare word if the bits fill the words exactly."""
        return 8 * (1 + self.bit_count // 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class BloomWire:
    """The hash function and the bit layout of a wire."""

    name: str
    base_hashes: Callable[[str], tuple[int, int]]
    base_hashes_of: Callable[[Sequence[str]], Hashes]
    byte_flip: int
    """XOR mask for the index of a byte: 7 for big-endian 64-bit words, 0 for little-endian ones."""

    def positions(self, message_id: str, parameters: BloomParameters) -> list[int]:
        """Return the bit indices of an id, in the order of the hash functions."""
        return spread(self.base_hashes(message_id), parameters)


def spread(base_hashes: tuple[int, int], parameters: BloomParameters) -> list[int]:
    """Return the bit indices for an id's base hashes, which do not depend on the size of the filter."""
    m = parameters.bit_count
    a, b = base_hashes[0] % m, base_hashes[1] % m
    return [(a + i * b) % m for i in range(parameters.hash_count)]


WAKU_BLOOM: Final = BloomWire(
    name="waku", base_hashes=murmur_base_hashes, base_hashes_of=murmur_base_hashes_of, byte_flip=7
)
"""Bare big-endian words; murmur3 (js-waku)."""
NIM_BLOOM: Final = BloomWire(name="nim", base_hashes=farm_base_hashes, base_hashes_of=farm_base_hashes_of, byte_flip=0)
"""Little-endian words; FarmHash (nim-sds on Nim 2.2 and later)."""


class BloomFilter:
    """A filter of message ids."""

    __slots__ = ("_bits", "parameters", "wire")

    def __init__(self, parameters: BloomParameters, wire: BloomWire = WAKU_BLOOM, bits: bytes | None = None) -> None:
        self.parameters = parameters
        self.wire = wire
        if bits is not None and len(bits) < parameters.byte_length:
            raise ConfigurationError(f"a filter of {parameters.byte_length} bytes was given only {len(bits)}")
        self._bits = bytearray(parameters.byte_length if bits is None else bits[: parameters.byte_length])

    def insert(self, message_id: str) -> list[int]:
        """Add an id and return its bit positions."""
        positions = self.wire.positions(message_id, self.parameters)
        self.set(positions)
        return positions

    def insert_all(self, message_ids: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """Add ids, and return their bit positions in order."""
        parameters = self.parameters
        if len(message_ids) < _FEW:
            found = [position for message_id in message_ids for position in self.insert(message_id)]
            return np.array(found, np.uint32)
        bit_count, steps = np.uint64(parameters.bit_count), np.arange(parameters.hash_count, dtype=np.uint64)
        first, second = (self.wire.base_hashes_of(message_ids) % bit_count).T
        positions: np.ndarray[tuple[int], np.dtype[np.uint32]] = (
            ((first[:, None] + steps * second[:, None]) % bit_count).astype(np.uint32).reshape(-1)
        )
        places = positions >> np.uint32(3) ^ np.uint32(self.wire.byte_flip)
        bits = np.frombuffer(self._bits, np.uint8)
        np.bitwise_or.at(bits, places, np.uint8(1) << (positions & np.uint32(7)).astype(np.uint8))
        return positions

    def set(self, positions: Iterable[int]) -> None:
        """Set the bits at positions."""
        bits, flip = self._bits, self.wire.byte_flip
        for position in positions:
            bits[(position >> 3) ^ flip] |= 1 << (position & 7)

    def reset(self, positions: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> None:
        """Set the bits at positions and clear all others."""
        flags = np.zeros(self.parameters.byte_length * 8, np.uint8)
        flags[positions] = 1
        packed = np.packbits(flags, bitorder="little")
        self._bits[:] = (packed.reshape(-1, 8)[:, ::-1] if self.wire.byte_flip else packed).tobytes()

    def __contains__(self, message_id: str) -> bool:
        return holds(self._bits, self.wire.positions(message_id, self.parameters), self.wire.byte_flip)

    def __bytes__(self) -> bytes:
        """Return the words in the layout of the wire."""
        return bytes(self._bits)

    def set_positions(self) -> list[int]:
        """Return the indices of all set bits, ascending."""
        words = np.frombuffer(bytes(self._bits), np.uint8).reshape(-1, 8)
        ordered = words[:, ::-1] if self.wire.byte_flip else words
        return [int(i) for i in np.flatnonzero(np.unpackbits(ordered.reshape(-1), bitorder="little"))]


def holds(bits: bytes | bytearray, positions: Iterable[int], byte_flip: int) -> bool:
    """Return whether all positions are set in a filter's bytes."""
    for position in positions:  # noqa: SIM110 - asked for every own message that waits: `all` takes twice the time
        if not bits[(position >> 3) ^ byte_flip] >> (position & 7) & 1:
            return False
    return True


def chance_of_false_hit(bits: bytes | bytearray, parameters: BloomParameters) -> float:
    """Return the probability of a false hit: the share of set bits to the power of the hash functions."""
    used = int.from_bytes(bits[: parameters.byte_length])
    return (used.bit_count() / parameters.bit_count) ** parameters.hash_count
