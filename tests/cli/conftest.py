"""Participants for tests: settings on an in-process network of the test's own, with short intervals."""

from __future__ import annotations

import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairway.cli._settings import ChannelSettings
from fairway.libp2p.keys import IdentityKey
from fairway.options import ReliableChannelOptions
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions

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


class Place:
    """A port of this machine at which a node can be, and its key."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"/ip4/127.0.0.1/tcp/{self.port}"
        self.key = IdentityKey.generate()

    @asynccontextmanager
    async def node(self) -> AsyncIterator[None]:
        async with await ServiceNode.start(ServiceOptions(tcp_port=self.port, ws_port=0), key=self.key):
            yield


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def at_place(place: Place, make_settings: Callable[..., ChannelSettings]) -> Callable[..., ChannelSettings]:
    """Return what makes settings of a participant whose node is, or is not, at the place."""
    return lambda name, store=None: replace(make_settings(name, store), node=place.address)
