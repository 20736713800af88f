"""The string hash of js-waku's bloom filter, with the two ways in which it is not fairway's.

js-waku runs Nim's hash compiled to JavaScript (its packages/sds, nim_hashn.mjs). Its integers stop at 31 bits and
raise, and text is fed to it as the first UTF-16 unit of each code point, each taken for a byte although it may not fit
one. For ASCII that is murmur3 over the text, which `fairway.wire.bloom` has; this module models the rest, so that
records of it can be distinguished from wrong ones. Message ids are hex, so no channel meets the difference.
"""

from __future__ import annotations

from typing import Final

from fairway.wire.bloom import murmur_base_hashes

_M32: Final = 0xFFFFFFFF
_LARGEST_INTEGER: Final = 0x7FFFFFFF
_SUFFIX: Final = " b"


def js_hash_n(text: str, n: int, below: int) -> int | None:
    """Return js-waku's n-th hash of a text, less than ``below``; None where js-waku raises an error."""
    if below == 0:
        return None
    base = murmur_base_hashes(text) if text.isascii() else (_signless(text), _signless(text + _SUFFIX))
    a, b = (value % below for value in base)
    return None if max(n * b, a + n * b) > _LARGEST_INTEGER else (a + n * b) % below


def _signless(text: str) -> int:
    value = _murmur3_of_units([_first_unit(character) for character in text])
    return min(value, _M32 + 1 - value)


def _first_unit(character: str) -> int:
    """Return what charCodeAt(0) gives: the code point, or its leading surrogate."""
    code = ord(character)
    return code if code < 0x10000 else 0xD800 + ((code - 0x10000) >> 10)


def _word(units: list[int]) -> int:
    """Return up to four units as a little-endian word; the bits of a unit that is no byte spill into the next."""
    word = 0
    for unit in reversed(units):
        word = (word << 8 | unit) & _M32
    return word


def _murmur3_of_units(units: list[int]) -> int:
    state = 0
    whole = len(units) // 4 * 4
    for start in range(0, whole, 4):
        state ^= _mixed(_word(units[start : start + 4]))
        state = ((state << 13 | state >> 19) * 5 + 0xE6546B64) & _M32
    state ^= _mixed(_word(units[whole:])) ^ len(units)
    state = ((state ^ state >> 16) * 0x85EBCA6B) & _M32
    state = ((state ^ state >> 13) * 0xC2B2AE35) & _M32
    return state ^ state >> 16


def _mixed(word: int) -> int:
    word = word * 0xCC9E2D51 & _M32
    return (word << 15 | word >> 17) * 0x1B873593 & _M32
