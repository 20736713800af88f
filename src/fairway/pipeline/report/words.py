"""Figures of a report in words: parts of wholes, sizes and times."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fairway.pipeline.times import exact_text
from fairway.units import MS_PER_S
from fairway.visible import visible

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NANOSECONDS_PER_MICROSECOND: Final = 1_000
_UNITS_MS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (MS_PER_S, "s"))
_THREE_DIGITS: Final = 999.5
"""Smallest number that three significant digits would show with an exponent."""
_KIB: Final = 1_024
_SIZE_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")
_LEAST_SHARE: Final = 0.001
_NAMED: Final = 3
_NAME: Final = 40


def of(part: int, whole: int) -> str:
    """Return a part with its whole and its share."""
    return f"{part:,} of {whole:,} ({percent(part, whole)})" if whole else f"{part:,} of {whole:,}"


def size_of(part_bytes: int, whole_bytes: int) -> str:
    """Return a part of some bytes with its whole and its share."""
    told = f"{size_text(part_bytes)} of {size_text(whole_bytes)}"
    return f"{told} ({percent(part_bytes, whole_bytes)})" if whole_bytes else told


def percent(part: float, whole: float) -> str:
    """Return a share in percent; only an empty part reads as 0, and only the whole as 100."""
    share = part / whole
    if 0 < share < _LEAST_SHARE:
        return f"under {_LEAST_SHARE:.1%}"
    if 1 - _LEAST_SHARE < share < 1:
        return f"over {1 - _LEAST_SHARE:.1%}"
    return f"{share:.1%}"


def clock(timestamp_ns: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Return a moment in UTC."""
    return f"{_EPOCH + timedelta(microseconds=timestamp_ns // _NANOSECONDS_PER_MICROSECOND):{form}}"


def duration(milliseconds: int) -> str:
    """Return a length of time in the unit that suits it, to three digits or the whole unit."""
    for unit_ms, unit in _UNITS_MS:
        if milliseconds >= unit_ms:
            number = milliseconds / unit_ms
            return f"{number:.3g} {unit}" if number < _THREE_DIGITS else f"{number:,.0f} {unit}"
    return f"{milliseconds} ms"


def size_text(size_bytes: int) -> str:
    """Return a size in the unit that suits it."""
    if size_bytes < _KIB:
        return f"{size_bytes:,} B"
    power = min(int(math.log(size_bytes, _KIB)), len(_SIZE_UNITS))
    return f"{size_bytes / _KIB**power:,.1f} {_SIZE_UNITS[power - 1]}"


def selection_text(selection: dict[str, Any] | None) -> str | None:
    """Return the selection of a run (`Selection.as_json`) as a sentence; None if it selects everything."""
    if selection is None:
        return None
    words = [f"{word} {_moment(selection[name])}" for name, word in _ENDS.items() if selection[name] is not None]
    for name, what in _KINDS.items():
        chosen = selection[name]
        if chosen:
            named = ", ".join(map(short_name, chosen[:_NAMED]))
            more = f" and {len(chosen) - _NAMED:,} more" if len(chosen) > _NAMED else ""
            words.append(f"of {what}{'' if len(chosen) == 1 else 's'} {named}{more}")
    if pattern := selection["topics_pattern"]:
        words.append(f"of content topics that match {short_name(pattern)}")
    # Channels do not cite each other.
    cut = any(selection[name] for name in ("since_ns", "until_ns", "topics", "topics_pattern"))
    return f"Only messages {', '.join(words)} were read.{_BEYOND if cut else ''}"


def _moment(time_ns: int) -> str:
    """Return a time as ISO text, with no more digits than it needs."""
    return f"{exact_text(time_ns).removesuffix('Z').rstrip('0').removesuffix('.')}Z"


def short_name(name: str | None) -> str:
    """Return a name as the report shows it, cut to a bound; None is unknown."""
    whole = "unknown" if name is None else visible(name)
    return whole if len(whole) <= _NAME else f"{whole[: _NAME - 1]}…"


_ENDS: Final = {"since_ns": "from", "until_ns": "up to"}
_KINDS: Final = {"channels": "channel", "topics": "content topic"}
_BEYOND: Final = " What they cite beyond these counts as lost."
