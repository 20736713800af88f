"""Parses times: ISO 8601, or whole milliseconds since the Unix epoch, as in Kafka.

Waku timestamps are nanoseconds. Invariant: a range from ``first_ns(a)`` to ``last_ns(b)`` includes all messages of the
milliseconds ``a`` and ``b``, and between them. A time with more than three decimal digits of a second is exact.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from fairway.errors import ConfigurationError
from fairway.units import NS_PER_MS, NS_PER_S

_FRACTION: Final = re.compile(r"(?P<seconds>.*:\d\d)[.,](?P<digits>\d{1,9})(?P<zone>\D.*)?", re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?\d{1,30}")
_MS_DIGITS: Final = 3
_NS_DIGITS: Final = 9
_MAX_MS: Final = (2**63 - 1) // NS_PER_MS
"""The last millisecond of a signed 64-bit number of nanoseconds, in the year 2262."""
_SECONDS: Final = range(10**9, 10**11)
"""Numbers that are seconds, of the years 2001 to 5138. As milliseconds they are in 1970 to 1973, before Waku."""
_NOT_MS: Final = (
    (10**3 * _MAX_MS, "of nanoseconds leave the last six digits out"),
    (_MAX_MS, "of microseconds leave the last three digits out"),
)
"""Bounds of milliseconds, each with the remedy for a number above it."""
_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?(?:T(?=\d)(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?"
    r"(?:(?P<seconds>\d{1,9}(?:[.,]\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_MS_OF: Final = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
_SPARK: Final = re.compile(r"(\d{1,15})\s*(ms|s|m|min|h|d)", re.IGNORECASE)
"""A duration as Spark writes it, such as ``15m``."""
_SPARK_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def first_ns(text: str, what: str) -> int:
    """Return the first nanosecond of a time; ``what`` names it in the error.

    A time without a zone is in UTC, and a date alone is its first millisecond. Raises `ConfigurationError`.
    """
    return _parsed(text, what)[0]


def last_ns(text: str, what: str) -> int:
    """Return the last nanosecond of a time: of its millisecond, if it has at most three decimal digits of a second.

    Otherwise it returns the same as `first_ns`.
    """
    time_ns, is_exact = _parsed(text, what)
    return time_ns if is_exact else time_ns + NS_PER_MS - 1


def exact_text(time_ns: int) -> str:
    """Return a time as ISO text, exact to the nanosecond; `first_ns` and `last_ns` parse it to the same time."""
    seconds, fraction_ns = divmod(time_ns, NS_PER_S)
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}.{fraction_ns:09d}Z"


def duration_ms(text: str, what: str) -> int:
    """Return a duration in milliseconds: from whole milliseconds, ISO 8601 such as ``PT0.5S``, or Spark's ``15m``.

    ``what`` names it in the error, a `ConfigurationError`.
    """
    text = text.strip()
    found = _DURATION.fullmatch(text)
    length_ms = None
    if _NUMBER.fullmatch(text):
        length_ms = int(text)
    elif (short := _SPARK.fullmatch(text)) is not None:
        length_ms = int(short[1]) * _SPARK_MS[short[2].lower()]
    elif found is not None and any(found.groups()):
        parts = {name: Decimal((digits or "0").replace(",", ".")) for name, digits in found.groupdict().items()}
        length_ms = int(sum(parts[name] * factor for name, factor in _MS_OF.items()))
    if length_ms is None or not 0 <= length_ms <= _MAX_MS:
        raise ConfigurationError(
            f"{what} is a length of time of at most {_MAX_MS:,} ms, not {text!r}: whole milliseconds such as 60000, "
            "ISO text such as PT1M, or 1m"
        )
    return length_ms


def _parsed(text: str, what: str) -> tuple[int, bool]:
    """Return a time in nanoseconds, and whether it is more precise than milliseconds."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return _checked_ms(int(text), what) * NS_PER_MS, False
    fraction = _FRACTION.fullmatch(text)
    digits = fraction["digits"] if fraction else ""
    try:
        moment = datetime.fromisoformat(fraction["seconds"] + (fraction["zone"] or "") if fraction else text)
    except ValueError as error:
        raise ConfigurationError(
            f"{what} is a time such as 2026-01-31T10:55:00Z (without a zone: UTC), or milliseconds since 1970, not "
            f"{text!r}: {error}"
        ) from error
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    return seconds * NS_PER_S + int(digits.ljust(_NS_DIGITS, "0")), len(digits) > _MS_DIGITS


def _checked_ms(time_ms: int, what: str) -> int:
    """Return milliseconds since 1970; raise `ConfigurationError` for a negative number or one in another unit."""
    told = f"{what} is milliseconds since 1970 or an ISO time, and {time_ms}"
    if time_ms < 0:
        raise ConfigurationError(f"{told} is negative: write a time before 1970 as ISO text, such as 1969-12-31T23:00Z")
    for above, instead in _NOT_MS:
        if time_ms > above:
            raise ConfigurationError(f"{told} milliseconds is after the year 2262; {instead}")
    if time_ms in _SECONDS:
        year = (_EPOCH + timedelta(milliseconds=time_ms)).year
        raise ConfigurationError(f"{told} milliseconds is in {year}: of seconds write {time_ms}000")
    return time_ms
