"""The number of examples of a hypothesis test, as a share of the profile's number (see tests/conftest.py)."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def examples(share: float, **others: Any) -> settings:
    """Return settings with this share of the examples of a test of ordinary cost; `others` are of `settings`."""
    return settings(max_examples=max(3, round(share * settings().max_examples)), **others)
