"""Participants with small segments and messages, so that files of some 100 KB go in many parts."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from fairway.channel.creation import create_reliable_channel
from fairway.options import ReliableChannelOptions, SegmentationConfig

TOPIC = "/fairway/1/harbour/proto"
SMALL = replace(
    ReliableChannelOptions(),
    sync_min_interval_ms=2_000,
    retry_interval_ms=5_000,
    max_retry_attempts=60,
    segmentation=SegmentationConfig(segment_size_bytes=1_024, max_message_size_bytes=10_240),
)


@pytest.fixture
def join():
    """Return what makes a participant, to be entered with ``async with``."""

    @asynccontextmanager
    async def joined(network, name, *, store=None, options=SMALL, node=None):
        node = network.node(name) if node is None else node
        async with create_reliable_channel(node, "harbour", name, TOPIC, store=store, options=options) as channel:
            yield channel

    return joined


@pytest.fixture
def make_file(tmp_path, seed):
    """Return what makes a file of so many random bytes."""

    def make(size_bytes, name="chart.pdf"):
        path = tmp_path / "out" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(random.Random(f"{seed}{name}").randbytes(size_bytes))
        return path

    return make
