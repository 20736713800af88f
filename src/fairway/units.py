"""Factors between units of time, and numbers with the things that they count."""

from __future__ import annotations

from typing import Final

MS_PER_S: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


def counted(number: int, what: str, plural: str | None = None) -> str:
    """Return a number of things, such as "1 message" or "2,000 messages"."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"
