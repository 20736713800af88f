"""What people see, and what becomes of their messages, while no node can be reached. Nodes come and go over TCP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from fairway.channel.creation import create_reliable_channel
from fairway.cli._notes import Notes
from fairway.cli._screen import Screen
from fairway.cli._settings import ChannelSettings
from fairway.cli.chat import chat
from fairway.cli.send import SendGoal, Watching, send_message
from fairway.cli.tail import Until, tail
from fairway.errors import NodeUnavailableError
from fairway.events import (
    Event,
    ForeignMessages,
    MessageReceived,
    MessagesUndecryptable,
    NodeHealth,
    NodeStatusChanged,
    SenderIdInUse,
    SendingBlocked,
)
from fairway.files.sending import Wait
from fairway.libp2p.keys import IdentityKey
from fairway.nodes.connect import connect
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions, RestServer
from patience import PATIENCE_S, until


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


class Keyboard(Screen):
    """A screen that a test types on and reads."""

    def __init__(self) -> None:
        self.typed: asyncio.Queue[str | None] = asyncio.Queue()
        self.shown: list[str] = []

    async def lines(self) -> AsyncIterator[str]:
        while (line := await self.typed.get()) is not None:
            yield line

    def show(self, text: Text) -> None:
        self.shown.append(text.plain)

    async def see(self, words: str) -> None:
        await until(lambda: any(words in line for line in self.shown), words)


@pytest.mark.parametrize(
    ("kind", "served"),
    [("multiaddr", {"cluster_id": 16}), ("multiaddr", {"shards": (6,)}), ("rest", {"cluster_id": 16})],
)
def test_a_send_to_a_node_that_does_not_serve_the_shard_says_so_and_names_the_options(
    make_settings: Callable[..., ChannelSettings], kind: str, served: dict[str, Any]
) -> None:
    async def work() -> str:
        async with (
            await ServiceNode.start(ServiceOptions(**served)) as node,
            await RestServer.start(node, RestOptions()) as rest,
        ):
            address = rest.url if kind == "rest" else str(node.addresses[0])
            settings = replace(make_settings("alice"), node=address)
            report = await send_message(settings, b"hello", SendGoal(timeout_s=2), Watching())
            assert not report.reached
            return report.detail

    detail = asyncio.run(work())
    assert "this node does not serve '/waku/2/rs/1/3'" in detail
    assert detail.endswith("The channel is in cluster 1 of 8 shards: --cluster and --shards give those of the node")
    assert "rate limit" not in detail


def test_a_send_with_a_store_is_accepted_without_a_node_and_goes_out_when_there_is_one(
    place: Place, at_place: Callable[..., ChannelSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairway.cli.send.NODE_S", 0.2)
    monkeypatch.setattr("fairway.cli._settings.MOMENT_S", 0.1)

    async def work() -> None:
        alice, bob = at_place("alice", tmp_path / "alice.db"), at_place("bob")
        report = await send_message(alice, b"first", SendGoal(), Watching())
        assert not report.reached
        assert not report.failed
        assert report.detail.startswith("not sent, because no node can be used: ")
        assert (await send_message(alice, b"second", SendGoal(wait=Wait.NONE), Watching())).reached
        came: list[bytes] = []

        def show(event: Event, _: Path | None) -> None:
            if isinstance(event, MessageReceived):
                came.append(event.payload)

        async with place.node():
            monkeypatch.setattr("fairway.cli.send.NODE_S", PATIENCE_S)
            reading = asyncio.ensure_future(tail(bob, Until(count=3, linger_s=0), show))
            report = await send_message(alice, b"third", SendGoal(wait=Wait.SENT, timeout_s=PATIENCE_S), Watching())
            assert report.reached
            assert report.earlier_open == 2
            # The earlier ones go out whenever a command runs with the store.
            while len(came) < 3:
                await send_message(alice, b"again", SendGoal(wait=Wait.SENT, timeout_s=PATIENCE_S), Watching())
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        assert came[:3] == [b"first", b"second", b"third"]

    asyncio.run(work())


def test_a_send_without_a_store_needs_a_node(
    at_place: Callable[..., ChannelSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = at_place("alice")

    async def at_once(address: str, **options: Any) -> object:
        return await connect(address, **{**options, "connect_timeout_s": 0.2})

    monkeypatch.setattr("fairway.cli._settings.connect", at_once)
    with pytest.raises(NodeUnavailableError, match="Connection refused"):
        asyncio.run(send_message(settings, b"x", SendGoal(), Watching()))


def test_a_channel_can_be_made_before_its_node_is_there(place: Place) -> None:
    async def work() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            await connect(place.address, connect_timeout_s=None) as node,
            await create_reliable_channel(node, "team", "alice", "/fairway/1/team/proto") as channel,
        ):
            receipt = await channel.send(b"before")
            async with place.node():
                await receipt.sent()

    asyncio.run(work())


def test_a_chat_says_that_its_node_is_gone_and_when_it_is_back_and_loses_nothing(
    place: Place, at_place: Callable[..., ChannelSettings], tmp_path: Path
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
        await screen.see("the node is not there")
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


def test_notes_are_made_of_comings_and_goings_and_not_of_every_change() -> None:
    def status(health: NodeHealth, detail: str = "") -> NodeStatusChanged:
        connected = health is not NodeHealth.UNHEALTHY
        return NodeStatusChanged(connected=connected, health=health, store=connected, detail=detail)

    notes = Notes("alice\x1b[2J")
    told = [
        notes.of(event)
        for event in (
            status(NodeHealth.UNHEALTHY, "no answer\x1b[2J"),
            status(NodeHealth.UNHEALTHY),
            status(NodeHealth.MINIMALLY_HEALTHY),
            status(NodeHealth.SUFFICIENTLY_HEALTHY),
            MessagesUndecryptable(count=1, opened=0),
            MessagesUndecryptable(count=7, opened=3),
            SenderIdInUse(count=1),
            ForeignMessages(count=2, channel_id="pier\x1b[2J"),
            SendingBlocked(since_ms=0, refusals=9, detail="420\x1b[2J"),
        )
    ]
    assert [note and note.text for note in told] == [
        "the node is not there (no answer\\x1b[2J); what you send goes out when it is back",
        None,
        "the node is back",
        None,
        "a message could not be opened: is your key the right one?",
        "7 messages could not be opened: of another channel, or under another key",
        "somebody else speaks as alice\\x1b[2J: end the other program or take another name",
        "messages of another channel, pier\\x1b[2J, come on this content topic",
        "nothing can be sent: 420\\x1b[2J",
    ]
