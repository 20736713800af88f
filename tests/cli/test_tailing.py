"""Reading what a channel brings, and what is safe to show of it."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from fairway.cli._settings import ChannelSettings
from fairway.cli.send import SendGoal, send
from fairway.cli.tail import Until, as_text, tail
from fairway.events import Event, MessageReceived
from fairway.files.outcomes import FileRefused
from fairway.files.sending import Wait
from fairway.nodes.local.network import process_network
from patience import PATIENCE_S, run, until

MakeSettings = Callable[..., ChannelSettings]
SENT = SendGoal(wait=Wait.SENT)


class Shown:
    """What a tail showed."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.saved: list[Path | None] = []
        self.others: list[Event] = []

    def __call__(self, event: Event, path: Path | None) -> None:
        if isinstance(event, MessageReceived):
            self.messages.append(event.payload)
            self.saved.append(path)
        else:
            self.others.append(event)


def test_stored_messages_are_shown_and_saved_until_the_quiet_time_ends(make_settings: MakeSettings, tmp_path: Path):
    async def work() -> None:
        await send(make_settings("alice"), b"stored", SENT)
        shown = Shown()
        assert await tail(make_settings("bob"), Until(quiet_s=0.5), shown, save=tmp_path / "in") == 1
        assert shown.messages == [b"stored"]
        (path,) = shown.saved
        assert path is not None
        assert path.read_bytes() == b"stored"

    run(work())


def test_a_payload_without_room_on_the_disk_is_saved_later_and_others_meanwhile(
    make_settings: MakeSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("fairway.files.receiving.AGAIN_AFTER_MS", 100)
    large, small = b"\xff" * 9_000, b"\xff\x00"
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    shown = Shown()

    def show(event: Event, path: Path | None) -> None:
        shown(event, path)
        if small in shown.messages:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    async def work() -> None:
        for payload in (large, small):
            await send(make_settings("alice"), payload, SENT)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, hard))  # as a disk that gets full
        try:
            await tail(make_settings("bob"), Until(count=2, quiet_s=PATIENCE_S), show, save=tmp_path / "in")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    run(work())
    assert isinstance(shown.saved[0], FileRefused)
    assert shown.messages[-1] == large
    saved = [path for path in shown.saved if isinstance(path, Path)]
    assert [path.read_bytes() for path in saved] == [small, large]


def test_a_tail_stops_after_count_messages_and_the_next_run_continues(make_settings: MakeSettings, tmp_path: Path):
    async def work() -> None:
        for number in range(3):
            await send(make_settings("alice", tmp_path / "alice.db"), f"message {number}".encode(), SENT)
        bob = make_settings("bob", tmp_path / "bob.db")
        shown = Shown()
        assert await tail(bob, Until(count=2, quiet_s=PATIENCE_S), shown) == 2
        assert await tail(bob, Until(count=5, quiet_s=0.5), shown) == 1
        assert shown.messages == [b"message 0", b"message 1", b"message 2"]

    run(work())


def test_a_message_that_could_not_be_shown_is_delivered_again(make_settings: MakeSettings, tmp_path: Path):
    async def work() -> None:
        await send(make_settings("alice"), b"important", SENT)
        bob = make_settings("bob", tmp_path / "bob.db")

        def refuse(event: Event, _: Path | None) -> None:
            if isinstance(event, MessageReceived):
                raise BrokenPipeError

        with pytest.raises(BrokenPipeError):
            await tail(bob, Until(quiet_s=PATIENCE_S), refuse)
        shown = Shown()
        assert await tail(bob, Until(count=1, quiet_s=PATIENCE_S), shown) == 1
        assert shown.messages == [b"important"]

    run(work())


def test_a_tail_acknowledges_its_last_message_before_it_ends(make_settings: MakeSettings):
    async def work() -> None:
        bob = make_settings("bob")
        reading = asyncio.ensure_future(tail(bob, Until(count=1), Shown()))
        await until(lambda: process_network(bob.node.removeprefix("local:")).nodes)
        # One transmission: if bob leaves without a word, nobody ever hears of him.
        report = await send(make_settings("alice"), b"hello", SendGoal(timeout_s=PATIENCE_S))
        assert (report.reached, report.delivered_to) == (True, ("bob",))
        assert await reading == 1

    run(work())


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"hello", "hello"),
        ("grüß dich\n\tbob ✓".encode(), "grüß dich\n\tbob ✓"),
        (b"", ""),
        (b"\xff\xfe", None),
        (b"a\x1b[2Jb", None),
        (b"a\x00b", None),
        (b"a\x9bb", None),
        ("a\u009bb".encode(), None),
        ("a\u202eb".encode(), None),
    ],
)
def test_only_text_without_control_characters_is_shown_as_text(payload: bytes, text: str | None):
    assert as_text(payload) == text
