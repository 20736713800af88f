r"""`MessageColumns`: converts the columns of a table of messages, of any writer, to those of ``waku_messages``.

Column names are compared without case and underscores, so that ``message_hash``, nwaku's ``messageHash`` and
PostgreSQL's ``messagehash`` are the same. The type of a column counts: timestamps have a unit, binary values are taken
unchanged, and text holds bytes in hexadecimal (with ``0x`` or ``\x``) or base64. An integer time is in nanoseconds;
values that can only be seconds, milliseconds or microseconds are rejected. Missing message hashes are computed.

A row without a timestamp has the time 0, and a row without a version the version 0, as on the wire.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fairway.errors import ConfigurationError
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, EXACT_TIME, TIME
from fairway.pipeline.stages.message_hashes import Fit, fits_of, message_hashes
from fairway.pipeline.times import first_ns

STORES: Final = "sources"
"""A column of deduplicated tables: for each message the stores that had it intact."""
NEEDED: Final = ("content_topic", "payload", EXACT_TIME)
_TARGETS: Final = (*ARROW_SCHEMA.names, STORES, TIME)
_TEXTS: Final = ("pubsub_topic", "content_topic", "source")
_BYTES: Final = ("payload", "meta", "rate_limit_proof")
_HEX: Final = re.compile(r"(?:0x|\\x)?((?:[0-9a-fA-F]{2})*)")
_NUMBER: Final = re.compile(r"-?\d{1,19}")
_YEARS_S: Final = (1_420_070_400, 4_102_444_800)
"""2015 and 2100, the bounds of plausible message times, in seconds since the Unix epoch."""
_UNITS: Final = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6}
NS_PER: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds in Arrow's units of time."""
_INT64: Final = 2**63
_INTEGERS: Final = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_null)
_TEXT_KINDS: Final = (pa.types.is_string, pa.types.is_large_string)
_BINARY: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    *_TEXT_KINDS,
    pa.types.is_null,
)
_EXPECTED: Final[dict[str, tuple[str, tuple[Callable[[pa.DataType], bool], ...]]]] = {
    "message_hash": ("bytes or hexadecimal text", _BINARY),
    **dict.fromkeys(_BYTES, ("bytes, or text in hexadecimal or base64", _BINARY)),
    EXACT_TIME: ("timestamp, or integer nanoseconds", (*_INTEGERS, *_TEXT_KINDS, pa.types.is_timestamp)),
    "version": ("integer", (*_INTEGERS, *_TEXT_KINDS)),
}


def normal_name(name: str) -> str:
    """Return a column name in lower case without underscores, except a leading one."""
    return name[:1].lower() + name[1:].lower().replace("_", "")


_KNOWN: Final = {normal_name(name): name for name in _TARGETS}


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The columns of a table by their meaning."""

    columns: Mapping[str, str]
    """Column names of the table, by the names of `ARROW_SCHEMA` and `STORES`; missing columns have no entry."""
    place: str
    """Name of the table, for errors."""

    @classmethod
    def of(cls, schema: pa.Schema, place: str) -> MessageColumns:
        """Return the columns of a schema; raise `ConfigurationError` if it is not one of a table of messages."""
        found: dict[str, str] = {}
        for name in schema.names:
            target = _KNOWN.get(normal_name(name))
            if target is not None and (target not in found or name == target):
                found[target] = name
        if twice := ", ".join(name for name in found.values() if schema.names.count(name) > 1):
            raise ConfigurationError(f"{place}: has two columns {twice}; give a table with one")
        if STORES in found and not pa.types.is_list(schema.field(found[STORES]).type):
            del found[STORES]
        time = found.pop(TIME, None)
        if time is not None:
            found.setdefault(EXACT_TIME, time)
        if lacking := ", ".join(name for name in NEEDED if name not in found):
            raise ConfigurationError(
                f"{place}: is no table of Waku messages; it has no column {lacking} (but {', '.join(schema.names)})"
            )
        for target, (expected, kinds) in _EXPECTED.items():
            if target in found and not any(is_kind(kind := _value_type(schema, found[target])) for is_kind in kinds):
                raise ConfigurationError(f"{place}: its column {found[target]} is {kind}; expected {expected}")
        return cls(found, place)

    def unit_of(self, least: int | None, most: int | None) -> str | None:
        """Return the unit of integer times between two values, if it cannot be nanoseconds; None if it can."""
        if least is None or most is None:
            return None
        for unit, per_s in _UNITS.items():
            first, last = (year * per_s for year in _YEARS_S)
            if first <= least and most <= last:
                return unit
        return None

    def messages(self, rows: pa.RecordBatch, source: str, *, is_labelled: bool) -> pa.RecordBatch:
        """Return rows as rows of `ARROW_SCHEMA`, one for each store that had a message.

        ``source`` is the store of rows that name none, or of all rows if ``is_labelled``.
        """
        count = rows.num_rows
        columns = {name: self.column(rows, name) for name in ARROW_SCHEMA.names}
        columns["version"] = columns["version"].fill_null(0)
        columns["source"] = pa.repeat(source, count) if is_labelled else columns["source"].fill_null(source)
        hashes = columns.pop("message_hash")
        found = pa.RecordBatch.from_pydict({"message_hash": hashes, **columns}, schema=ARROW_SCHEMA)
        found = self._as_hashed(rows, found)
        self._check_unit(rows, found)
        if hashes.null_count:
            hashes = pc.if_else(hashes.is_valid(), hashes, message_hashes(found))
            found = found.set_column(0, ARROW_SCHEMA.field(0), hashes)
        if is_labelled or STORES not in self.columns:
            return found
        stores = [names or [None] for names in rows.column(self.columns[STORES]).to_pylist()]
        found = found.take(pa.array([row for row, names in enumerate(stores) for _ in names], pa.int64()))
        named = pa.array([name or source for names in stores for name in names], pa.string())
        return found.set_column(ARROW_SCHEMA.names.index("source"), ARROW_SCHEMA.field("source"), named)

    def column(self, rows: pa.RecordBatch, name: str) -> pa.Array:
        """Return a column with its type in `ARROW_SCHEMA`; a missing value, or a number that does not fit, is null."""
        kind = ARROW_SCHEMA.field(name).type
        if name not in self.columns:
            return pa.array(np.zeros(rows.num_rows, np.int64)) if name == EXACT_TIME else pa.nulls(rows.num_rows, kind)
        column = rows.column(self.columns[name])
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if name == EXACT_TIME:
            return self._times(column)
        if name in _TEXTS:
            return _text(column)
        if _is_text(column.type) and pa.types.is_integer(kind):
            numbers = (value and _NUMBER.fullmatch(value) for value in column.to_pylist())
            column = pa.array([int(match[0]) if match else None for match in numbers], pa.int64())
        if _is_text(column.type):
            return pa.array([_bytes_of(value, is_hash=name == "message_hash") for value in column.to_pylist()], kind)
        return _integers(column, kind) if pa.types.is_integer(kind) else column.cast(kind)

    def _times(self, column: pa.Array) -> pa.Array:
        if pa.types.is_timestamp(column.type):
            ticks, per = column.cast(pa.int64()), NS_PER[column.type.unit]
            exact = ticks if per == 1 else pa.array([_within(tick, per) for tick in ticks.to_pylist()], pa.int64())
            return exact.fill_null(0)
        if _is_text(column.type):
            column = pa.array([self._time_of(value) for value in column.to_pylist()], pa.int64())
        return _integers(column, pa.int64()).fill_null(0)

    def _check_unit(self, rows: pa.RecordBatch, found: pa.RecordBatch) -> None:
        """Raise `ConfigurationError` for integers that are not nanoseconds, unless a message hash proves otherwise."""
        if EXACT_TIME not in self.columns or pa.types.is_timestamp(rows.column(self.columns[EXACT_TIME]).type):
            return
        times = found[EXACT_TIME]
        ends = pc.min_max(times.filter(pc.not_equal(times, 0))).as_py()
        unit = self.unit_of(ends["min"], ends["max"])
        if unit is None or (found["message_hash"].null_count < found.num_rows and (fits_of(found) == Fit.FITS).any()):
            return
        raise ConfigurationError(
            f"{self.place}: its column {self.columns[EXACT_TIME]} has integers such as {ends['max']}, which are {unit} "
            f"and no nanoseconds; multiply them by {10**9 // _UNITS[unit]:,}, or make the column a timestamp"
        )

    def _time_of(self, text: str | None) -> int | None:
        if not text:
            return None
        return int(text) if _NUMBER.fullmatch(text) else first_ns(text, f"{self.place}: {self.columns[EXACT_TIME]}")

    def _as_hashed(self, rows: pa.RecordBatch, found: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with their text read as base64, if only this reading fits the message hash."""
        texts = [name for name in _BYTES if name in self.columns and _is_text(rows.column(self.columns[name]).type)]
        if not texts or found["message_hash"].null_count == found.num_rows:
            return found
        others = found
        for name in texts:
            values = rows.column(self.columns[name]).to_pylist()
            decoded = pa.array([_bytes_of(value, is_hash=False, hex_first=False) for value in values], pa.binary())
            others = others.set_column(ARROW_SCHEMA.names.index(name), ARROW_SCHEMA.field(name), decoded)
        better = pa.array((fits_of(found) != Fit.FITS) & (fits_of(others) == Fit.FITS))
        columns = [pc.if_else(better, *pair) for pair in zip(others.columns, found.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)


def _value_type(schema: pa.Schema, name: str) -> pa.DataType:
    kind = schema.field(name).type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _text(column: pa.Array) -> pa.Array:
    """Return a column of text; bytes that are not UTF-8 are replaced, because an invalid topic must not stop a read."""
    if _is_text(column.type):
        column = column.cast(pa.string() if pa.types.is_string(column.type) else pa.large_string())
    elif not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    with_bytes = column.cast(pa.large_binary())
    try:
        return with_bytes.cast(pa.large_string()).cast(pa.string())
    except pa.ArrowInvalid:
        values = with_bytes.to_pylist()
        return pa.array([None if value is None else value.decode(errors="replace") for value in values], pa.string())


def _bytes_of(text: str | None, *, is_hash: bool, hex_first: bool = True) -> bytes | None:
    """Return the bytes that a text encodes; for an invalid encoding, the bytes of the text itself."""
    if text is None:
        return None
    ways = (_from_hex,) if is_hash else ((_from_hex, _from_base64) if hex_first else (_from_base64, _from_hex))
    found = next((value for way in ways if (value := way(text)) is not None), None)
    return text.encode(errors="replace") if found is None else found


def _from_hex(text: str) -> bytes | None:
    match = _HEX.fullmatch(text)
    return None if match is None else bytes.fromhex(match[1])


def _from_base64(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _integers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowException:
        limit = 2 ** (kind.bit_width - 1)
        fitting = (None if value is None or not -limit <= value < limit else int(value) for value in column.to_pylist())
        return pa.array(fitting, kind)


def _within(tick: int | None, per: int) -> int | None:
    return None if tick is None or not -_INT64 <= tick * per < _INT64 else tick * per
