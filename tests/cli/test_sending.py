"""Sending one message and waiting as far as wanted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fairway.channel.receipt import Progress
from fairway.channel.reliable_channel import ReliableChannel
from fairway.cli._files import words_for
from fairway.cli._settings import ChannelSettings
from fairway.cli.send import SendGoal, SendReport, Watching, send
from fairway.cli.tail import Brought, Until, tail
from fairway.cli.trace import trace_message
from fairway.events import Event, MessageDelivered, MessageReceived
from fairway.files.sending import FileProgress, Wait
from fairway.nodes.local.network import process_network
from fairway.options import RateLimitConfig, SegmentationConfig
from patience import PATIENCE_S, run, until

MakeSettings = Callable[..., ChannelSettings]


@asynccontextmanager
async def listening(*everybody: ChannelSettings) -> AsyncIterator[None]:
    network = process_network(everybody[0].node.removeprefix("local:"))
    tails = [asyncio.ensure_future(tail(settings, Until(), lambda *_: None)) for settings in everybody]
    await until(lambda: len(network.nodes) == len(everybody))
    try:
        yield
    finally:
        for each in tails:
            each.cancel()
        await asyncio.gather(*tails, return_exceptions=True)


async def sent(settings: ChannelSettings, payload: bytes = b"hello", **wish: Any) -> SendReport:
    return await send(settings, payload, SendGoal(**wish))


def test_a_send_waits_for_the_named_participants(make_settings: MakeSettings):
    async def work() -> None:
        events: list[Event] = []
        steps: list[Progress] = []
        watching = Watching(event=events.append, progress=steps.append)
        async with listening(make_settings("bob"), make_settings("carol")):
            wish = SendGoal(count=2, by=("carol",), timeout_s=PATIENCE_S)
            report = await send(make_settings("alice"), b"x" * 300_000, wish, watching)
        assert report.reached
        assert not report.failed
        assert report.delivered_to == ("bob", "carol")
        assert isinstance(events[-1], MessageDelivered)
        assert steps[-1].chunks_acknowledged == (0, 1, 2)
        assert steps[-1].acknowledged_by == ("bob", "carol")

    run(work())


def test_a_send_ends_in_time_and_the_next_one_continues_it_from_the_store(make_settings: MakeSettings, tmp_path: Path):
    async def work() -> None:
        alice = make_settings("alice", tmp_path / "alice.db")
        first = await sent(alice, timeout_s=0.2)
        assert (first.reached, first.failed, first.earlier_open) == (False, False, 0)
        assert "within 0.2 s" in first.detail
        async with listening(make_settings("bob")):
            second = await sent(alice, b"and another", timeout_s=PATIENCE_S)
        assert (second.reached, second.earlier_open) == (True, 1)

    run(work())


def test_a_send_beyond_the_rate_limit_says_when_more_is_allowed(make_settings: MakeSettings):
    limit = RateLimitConfig(enabled=True, messages_per_epoch=1, epoch_ms=3_600_000)
    report = asyncio.run(sent(make_settings("alice", rate_limit=limit), bytes(150_000), timeout_s=0.5))
    assert not report.reached
    assert re.search(
        r"within 0\.5 s: the rate limit is used up, and allows more at about \d\d:\d\d:\d\d$", report.detail
    )


def test_a_send_fails_when_its_retries_are_exhausted(make_settings: MakeSettings):
    async def work() -> None:
        report = await sent(make_settings("alice", max_retry_attempts=1, retry_interval_ms=50), timeout_s=None)
        assert (report.reached, report.failed) == (False, True)
        assert "delivery is not known" in report.detail

    run(work())


def test_a_send_does_not_finish_received_messages(make_settings: MakeSettings, tmp_path: Path):
    async def work() -> None:
        bob = make_settings("bob", tmp_path / "bob.db")
        await sent(make_settings("alice"), b"for bob", wait=Wait.SENT)
        # Bob's store gets it, by asking the network's store, while he only sends.
        sending = asyncio.ensure_future(sent(bob, b"from bob", timeout_s=None))
        store = tmp_path / "bob.db"
        await until(
            lambda: store.exists() and trace_message(ReliableChannel.get_message_id(b"for bob"), [store]) is not None
        )
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        shown: list[bytes] = []

        def show(event: Event, _: Path | None) -> None:
            if isinstance(event, MessageReceived):
                shown.append(event.payload)
                assert event.redelivered

        await tail(bob, Until(count=1, quiet_s=PATIENCE_S), show)
        assert shown == [b"for bob"]

    run(work())


def test_a_file_in_parts_arrives_whole_and_both_sides_show_progress(make_settings: MakeSettings, tmp_path: Path):
    path = tmp_path / "chart.png"
    path.write_bytes(bytes(range(256)) * 200)
    small = SegmentationConfig(segment_size_bytes=1_024, max_message_size_bytes=10_240)

    async def work() -> None:
        lines: list[str | None] = []
        steps: list[FileProgress] = []

        def show(event: Event, brought: Brought | None) -> None:
            if isinstance(event, MessageReceived):
                assert brought is not None
                assert not isinstance(brought, Path)
                lines.append(words_for(brought))

        until_whole = Until(count=1, quiet_s=PATIENCE_S, linger_s=0)
        bob = make_settings("bob", segmentation=small)
        receiving = asyncio.ensure_future(tail(bob, until_whole, show, save=tmp_path / "in"))
        alice = make_settings("alice", segmentation=small)
        watching = Watching(progress=steps.append)
        sending = asyncio.ensure_future(send(alice, path, SendGoal(timeout_s=PATIENCE_S), watching))
        assert await receiving == 1
        async with listening(bob):
            report = await sending
        assert (report.reached, report.failed, report.detail, report.delivered_to) == (True, False, "", ("bob",))
        assert report.file == steps[-1]
        assert (steps[-1].messages_acknowledged, steps[-1].total_messages) == (7, 7)
        assert lines[0] == "chart.png (image/png) of 51,200 bytes: 0 of 6 parts received"
        assert lines[-1] == f"chart.png (image/png) saved as {tmp_path / 'in' / 'chart.png'}"
        assert (tmp_path / "in" / "chart.png").read_bytes() == path.read_bytes()

    run(work())


def test_a_file_without_acknowledgement_is_a_failed_send(make_settings: MakeSettings, tmp_path: Path):
    path = tmp_path / "chart.png"
    path.write_bytes(b"x")

    async def work() -> None:
        alice = make_settings("alice", max_retry_attempts=1, retry_interval_ms=50)
        report = await send(alice, path, SendGoal(timeout_s=None))
        assert (report.reached, report.failed) == (False, True)
        assert "send the file again" in report.detail

    run(work())
