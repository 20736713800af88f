"""A conversation over lines: what is sent, shown and marked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self

import pytest
from rich.text import Text

from fairway.cli._screen import Screen
from fairway.cli._settings import ChannelSettings
from fairway.cli.chat import chat
from fairway.cli.tail import Until, tail
from fairway.events import Event, NodeStatusChanged
from fairway.nodes.connecting import connect
from fairway.nodes.node import RoutedMessage
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage
from patience import PATIENCE_S, run, until

MakeSettings = Callable[..., ChannelSettings]


class Keyboard(Screen):
    """A screen that a test types on and reads."""

    def __init__(self) -> None:
        self.typed: asyncio.Queue[str | None] = asyncio.Queue()
        self.shown: list[str] = []
        self._changed = asyncio.Event()

    def type(self, line: str | None) -> None:
        self.typed.put_nowait(line)

    async def lines(self) -> AsyncIterator[str]:
        while (line := await self.typed.get()) is not None:
            yield line

    def show(self, text: Text) -> None:
        self.shown.append(text.plain)
        self._changed.set()

    async def see(self, words: str) -> str:
        """Wait until something with these words is shown, and return that line."""
        while True:
            for line in self.shown:
                if words in line:
                    return line
            self._changed.clear()
            await self._changed.wait()


class Conversation:
    """Two people who talk."""

    def __init__(self, make_settings: MakeSettings, save: Path | None = None) -> None:
        self.alice, self.bob = Keyboard(), Keyboard()
        self._chats = [
            asyncio.ensure_future(chat(make_settings("alice"), self.alice)),
            asyncio.ensure_future(chat(make_settings("bob"), self.bob, save=save)),
        ]

    async def __aenter__(self) -> Self:
        await self.alice.see("you are alice in team")
        await self.bob.see("you are bob in team")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.alice.type("/quit")
        self.bob.type(None)
        await asyncio.gather(*self._chats)


def test_a_line_is_sent_shown_to_others_and_marked_when_acknowledged(make_settings: MakeSettings):
    async def work() -> None:
        async with Conversation(make_settings) as talk:
            talk.alice.type("  hello [bold]bob[/bold]  ")
            assert (await talk.alice.see("alice  hello")).endswith("alice  hello [bold]bob[/bold]")
            assert (await talk.bob.see("alice  hello")).endswith("alice  hello [bold]bob[/bold]")
            assert await talk.alice.see("✓") == '  ✓ "hello [bold]bob[/bold]": bob'
            talk.alice.type("/who")
            await talk.alice.see("was acknowledged by bob")
            assert await talk.alice.see("is here") == "  bob is here"
            talk.bob.type("/quit")
            assert await talk.alice.see("has left") == "  bob has left"

    run(work())


def test_a_file_is_sent_and_saved(make_settings: MakeSettings, tmp_path: Path):
    (tmp_path / "picture").write_bytes(b"\x00" * 200_000)

    async def work() -> None:
        async with Conversation(make_settings, save=tmp_path / "in") as talk:
            talk.alice.type(f"/file {tmp_path / 'picture'}")
            await talk.alice.see("picture (200,000 bytes)")
            await talk.bob.see("picture (application/octet-stream) saved as")
            await talk.alice.see('✓ "picture (200,000 bytes)": bob')
        assert (tmp_path / "in" / "picture").read_bytes() == b"\x00" * 200_000

    run(work())


async def say_as(settings: ChannelSettings, sender: str, message_id: str, text: str, *cited: HistoryEntry) -> None:
    """Put a message of somebody into the network, with what it cites."""
    now_ms = time.time_ns() // 1_000_000
    said = SdsMessage(
        message_id=message_id,
        sender_id=sender,
        channel_id="team",
        lamport_timestamp=now_ms,
        causal_history=cited,
        content=text.encode(),
    )
    topic = "/fairway/1/team/proto"
    message = WakuMessage(payload=WAKU_SDS.encode(said), content_topic=topic, timestamp_ns=time.time_ns())
    async with connect(settings.node) as node:
        assert (await node.send(RoutedMessage.of(autoshard(topic, 1, 8), message))).accepted


def test_a_chat_says_that_messages_are_missing_and_shows_them_in_order_when_they_arrive(make_settings: MakeSettings):
    async def work() -> None:
        async with Conversation(make_settings) as talk:
            await talk.alice.see("synced")
            settings = make_settings("carol")
            question = HistoryEntry("0123456789abcdef", None, "dave")
            await say_as(settings, "carol", "c1", "yes, at eight", question)
            await talk.alice.see("syncing: earlier messages are missing")
            await say_as(settings, "dave", question.message_id, "when?")
            for name, text in (("dave", "when?"), ("carol", "yes, at eight")):
                assert (await talk.alice.see(f"{name}  ")).endswith(f"{name}  {text}")
            await talk.alice.see("synced")

    run(work())


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("/fly", "there is no /fly; /file PATH"),
        ("/file not there", "not there cannot be read"),
        ("/file", "/file needs the path of a file"),
        ("x" * 1_100_000, "at most 1048576 are allowed"),
    ],
    ids=["unknown", "no file", "no path", "too long"],
)
def test_a_wrong_line_is_answered_and_the_chat_continues(make_settings: MakeSettings, line: str, shown: str):
    async def work() -> None:
        async with Conversation(make_settings) as talk:
            talk.alice.type(line)
            await talk.alice.see(shown)
            talk.alice.type("")
            talk.alice.type("//me too")
            assert (await talk.bob.see("alice  ")).endswith("alice  /me too")

    run(work())


def test_a_failed_send_is_marked(make_settings: MakeSettings):
    async def work() -> None:
        alice = Keyboard()
        settings = make_settings("alice", max_retry_attempts=1, retry_interval_ms=50)
        talking = asyncio.ensure_future(chat(settings, alice))
        alice.type("anybody?")
        assert (await alice.see("✗")).startswith('  ✗ "anybody?": ')
        alice.type("/quit")
        await talking

    run(work())


def test_a_chat_shows_lost_and_restored_connections_and_loses_no_message(
    place: Any, at_place: Callable[..., ChannelSettings], tmp_path: Path
) -> None:
    async def work() -> None:
        screen, came = Keyboard(), []

        def show(event: Event, _: Path | None) -> None:
            came.append(event)

        async with place.node():
            talking = asyncio.ensure_future(chat(at_place("alice", tmp_path / "alice.db"), screen))
            reading = asyncio.ensure_future(tail(at_place("bob", tmp_path / "bob.db"), Until(count=1), show))
            await screen.see("you are alice")
            # Its store is made when it is connected and begins to read.
            await until((tmp_path / "bob.db").exists)
        await screen.see("the node cannot be reached")
        screen.typed.put_nowait("is anybody out there?")
        await screen.see("out there?")
        async with place.node():
            await screen.see("the node is back")
            async with asyncio.timeout(PATIENCE_S):
                assert await reading == 1
            screen.typed.put_nowait("/quit")
            await talking
        changes = [event.connected for event in came if isinstance(event, NodeStatusChanged)]
        assert changes[:1] == [False]
        assert True in changes

    asyncio.run(work())
