"""Participants for tests: settings on an in-process network of the test's own, with short intervals."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairway.cli._settings import ChannelSettings
from fairway.options import ReliableChannelOptions

MakeSettings = Callable[..., ChannelSettings]

QUICK = ReliableChannelOptions(
    retry_interval_ms=200, max_retry_attempts=1_000, sync_min_interval_ms=100, retrieve_frequency_ms=200
)
"""Nobody gives up before a test does: a store may take its time to open."""


@pytest.fixture
def make_settings() -> MakeSettings:
    """Return what makes settings of one participant; all of one test share a network."""
    address = f"local:{uuid.uuid4()}"

    def make(sender: str, store: Path | None = None, **changed: Any) -> ChannelSettings:
        return ChannelSettings(
            node=address, channel_id="team", sender_id=sender, store=store, options=replace(QUICK, **changed)
        )

    return make
