"""What people see, and what becomes of their messages, while no node can be reached. Nodes come and go over TCP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairway.cli._notes import Notes
from fairway.cli._settings import ChannelSettings
from fairway.cli.send import SendGoal, send
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
from fairway.nodes.connecting import connect
from fairway.service.node import ServiceNode
from fairway.service.options import ServiceOptions
from fairway.service.rest import RestOptions, RestServer
from patience import PATIENCE_S


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
            report = await send(settings, b"hello", SendGoal(timeout_s=2))
            assert not report.reached
            return report.detail

    detail = asyncio.run(work())
    assert "this node does not serve '/waku/2/rs/1/3'" in detail
    assert detail.endswith("The channel is in cluster 1 of 8 shards: --cluster and --shards give those of the node")
    assert "rate limit" not in detail


def test_a_send_with_a_store_is_accepted_without_a_node_and_sent_when_a_node_is_there(
    place: Any, at_place: Callable[..., ChannelSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairway.cli.send.NODE_S", 0.2)
    monkeypatch.setattr("fairway.cli._settings.MOMENT_S", 0.1)

    async def work() -> None:
        alice, bob = at_place("alice", tmp_path / "alice.db"), at_place("bob")
        report = await send(alice, b"first")
        assert not report.reached
        assert not report.failed
        assert report.detail.startswith("not sent, because no node can be used: ")
        assert (await send(alice, b"second", SendGoal(wait=Wait.NONE))).reached
        came: list[bytes] = []

        def show(event: Event, _: Path | None) -> None:
            if isinstance(event, MessageReceived):
                came.append(event.payload)

        async with place.node():
            monkeypatch.setattr("fairway.cli.send.NODE_S", PATIENCE_S)
            reading = asyncio.ensure_future(tail(bob, Until(count=3, linger_s=0), show))
            report = await send(alice, b"third", SendGoal(wait=Wait.SENT, timeout_s=PATIENCE_S))
            assert report.reached
            assert report.earlier_open == 2
            # The earlier ones go out whenever a command runs with the store.
            while len(came) < 3:
                await send(alice, b"again", SendGoal(wait=Wait.SENT, timeout_s=PATIENCE_S))
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
        asyncio.run(send(settings, b"x"))


def test_a_note_is_made_only_when_the_connection_is_lost_or_restored() -> None:
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
        "the node cannot be reached (no answer\\x1b[2J); your messages are sent when it is back",
        None,
        "the node is back",
        None,
        "a message could not be opened: is your key the right one?",
        "7 messages could not be opened: they belong to another channel, or have another key",
        "another participant uses the name alice\\x1b[2J: end that program or choose another name",
        "messages of another channel, pier\\x1b[2J, arrive on this content topic",
        "nothing can be sent: 420\\x1b[2J",
    ]
