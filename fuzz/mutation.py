"""Change an input so that it stays nearly valid.

The protobuf parser is native code that gives the fuzzer no coverage, so blind changes of bytes nearly always end in
"not protobuf" and tell it nothing. Most changes here are of fields: repeated, dropped, moved, renumbered, given another
type or an extreme value, at any depth. The rest are left to the fuzzer's own mutations, of one field's bytes or all.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from fuzz.wire_fields import FIXED_32, FIXED_64, LENGTH_DELIMITED, VARINT, Field, read_fields, write_fields

ByteMutation = Callable[[bytes, int], bytes]
"""Return other bytes, of at most the given length."""

EXTREME_NUMBERS: Final = (
    *(0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1_000, 65_535, 65_536),
    *((1 << bits) + offset for bits in (31, 32, 53, 62, 63) for offset in (-1, 0, 1)),
    (1 << 64) - 1,
)
"""Where counts, indices, lengths and timestamps change their meaning."""

EXTREME_TAILS: Final = (
    b"\x0a",
    b"\x0a\x7f",
    b"\x0b",
    b"\x00",
    b"\x0a\x80\x80\x80\x80\x04",  # a field that says it has a gigabyte
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x0b" * 200,  # groups within groups
)
"""What the end of a message may be damaged to."""

_BLIND_SHARE: Final = 0.15
_DESCENT_SHARE: Final = 0.75
_TAIL_SHARE: Final = 0.04
_MAX_REPETITIONS: Final = 64
_MAX_FIELD_NUMBER: Final = 60


def mutate(data: bytes, max_size: int, random: Random, mutate_bytes: ByteMutation) -> bytes:
    """Return other bytes than data (mostly), at most max_size of them."""
    fields, tail = read_fields(data)
    if not fields or random.random() < _BLIND_SHARE:
        return mutate_bytes(data, max_size)[:max_size]
    for _ in range(random.randint(1, 3)):
        _change(fields, max_size, random, mutate_bytes)
    if random.random() < _TAIL_SHARE:
        tail = b"" if tail else random.choice(EXTREME_TAILS)
    changed = write_fields(fields) + tail
    # What has become too long ends with a field that is cut off, which is an input as good as any other.
    return changed[:max_size]


def mutate_blindly(random: Random) -> ByteMutation:
    """Return a mutation of bytes for where there is no fuzzer: some are replaced, inserted, repeated or dropped."""

    def changed(data: bytes, max_size: int) -> bytes:
        result = bytearray(data)
        start = random.randint(0, len(result))
        end = min(len(result), start + random.randint(0, 8))
        inserted = random.choice([b"", random.randbytes(random.randint(1, 8)), bytes(result[start:end]) * 2])
        result[start:end] = inserted
        return bytes(result[:max_size])

    return changed


def _change(fields: list[Field], max_size: int, random: Random, mutate_bytes: ByteMutation) -> None:
    """Change one field or the sequence of fields in place."""
    if not fields:
        return
    index = random.randrange(len(fields))
    field = fields[index]
    if isinstance(field.value, bytes) and random.random() < _DESCENT_SHARE:
        fields[index] = field._replace(value=_changed_bytes(field, max_size, random, mutate_bytes))
        return
    if isinstance(field.value, int) and random.random() < _DESCENT_SHARE:
        fields[index] = field._replace(value=_changed_number(field.value, random))
        return
    match random.randrange(7):
        case 0:
            del fields[index]
        case 1:
            fields.insert(random.randint(0, len(fields)), field)
        case 2:
            fields[index : index + 1] = [field] * random.randint(2, _MAX_REPETITIONS)
        case 3:
            other = random.randrange(len(fields))
            fields[index], fields[other] = fields[other], field
        case 4:
            fields[index] = field._replace(number=random.randint(1, _MAX_FIELD_NUMBER))
        case 5:
            fields[index] = _retyped(field, random)
        case _:
            # Another field's value: an id where a hint belongs, one message's content in another.
            value = random.choice(fields).value
            if isinstance(value, type(field.value)) and field.wire_type in {VARINT, LENGTH_DELIMITED}:
                fields[index] = field._replace(value=value)


def _changed_bytes(field: Field, max_size: int, random: Random, mutate_bytes: ByteMutation) -> bytes:
    assert isinstance(field.value, bytes), "only fields that hold bytes are changed here"
    if field.wire_type != LENGTH_DELIMITED:
        return random.randbytes(len(field.value))
    inner, rest = read_fields(field.value)
    if inner and not rest and random.random() < _DESCENT_SHARE:
        return mutate(field.value, max_size, random, mutate_bytes)
    match random.randrange(8):
        case 0:
            return b""
        case 1:
            return bytes(random.choice((1, 8, 31, 32, 33, 64, 257)))
        case 2:
            return field.value * 2
        case 3:
            return field.value[: random.randint(0, len(field.value))]
        case _:
            return mutate_bytes(field.value, max_size)


def _changed_number(value: int, random: Random) -> int:
    match random.randrange(4):
        case 0:
            return random.choice(EXTREME_NUMBERS)
        case 1:
            return value ^ 1 << random.randrange(64)
        case 2:
            return random.getrandbits(random.choice((4, 8, 16, 32, 64)))
        case _:
            return max(0, value + random.choice((-1, 1))) & (1 << 64) - 1


def _retyped(field: Field, random: Random) -> Field:
    match random.choice((VARINT, FIXED_64, LENGTH_DELIMITED, FIXED_32)):
        case 0:
            return Field(field.number, VARINT, random.choice(EXTREME_NUMBERS))
        case 1:
            return Field(field.number, FIXED_64, random.randbytes(8))
        case 2:
            return Field(field.number, LENGTH_DELIMITED, random.randbytes(random.randint(0, 40)))
        case _:
            return Field(field.number, FIXED_32, random.randbytes(4))
