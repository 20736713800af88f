"""What the events and the log say of a node, a wrong key, a sender id or a topic in use twice, and failed sends."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from fairway.channel.trouble_log import TroubleLog
from fairway.events import (
    ChannelStatus,
    DeliveryError,
    FailureReason,
    ForeignMessages,
    NodeHealth,
    NodeStatusChanged,
    SendingBlocked,
    StatusChanged,
)
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.testing import virtual_time
from groups import in_group, run_in_group
from listening import join, listen


def test_a_lost_and_restored_connection_is_an_event_and_in_the_log(caplog):
    caplog.set_level(logging.WARNING, logger="fairway.channel")

    async def scenario(group):
        alice = await group.channel("alice")
        told = []
        alice.on("node-status", told.append)
        node = group.nodes["alice"]
        for change in (node.go_offline, lambda: node.go_online(NodeHealth.MINIMALLY_HEALTHY), node.go_online):
            before = len(told)
            change()
            await group.until(lambda before=before: len(told) > before)
        assert [(event.connected, event.health) for event in told] == [
            (False, NodeHealth.UNHEALTHY),
            (True, NodeHealth.MINIMALLY_HEALTHY),
            (True, NodeHealth.SUFFICIENTLY_HEALTHY),
        ]

    run_in_group(scenario)
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [
        "channel harbour: the node is gone, and what is sent waits for it",
        "channel harbour: the node is back",
    ]


@in_group()
async def test_a_channel_whose_node_is_away_at_the_start_says_so_and_sends_when_it_is_there(group):
    bob = await group.channel("bob")
    group.nodes["alice"] = group.network.node("alice")
    group.nodes["alice"].go_offline()
    alice = await group.channel("alice", options=replace(group.options, auto_start=False))
    told = []
    alice.on(NodeStatusChanged, told.append)
    await alice.start()
    receipt = await alice.send(b"later")
    await group.until(lambda: [event.connected for event in told] == [False])
    assert alice.status is ChannelStatus.SYNCING
    group.nodes["alice"].go_online()
    assert await group.take(aiter(bob), 1) == [b"later"]
    await receipt.delivered()


# Nothing but the store brings what was missed, and only when the node is back.
@in_group(sync_min_interval_ms=0, retry_interval_ms=0)
async def test_a_channel_is_syncing_while_its_node_is_away_and_until_the_store_has_answered(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    await group.until(lambda: bob.status is ChannelStatus.SYNCED)
    told = []
    bob.on(StatusChanged, lambda event: told.append(event.status))
    listen(bob, lambda event: told.append(event.payload))
    # The first listener also hears what happened before.
    await group.until(lambda: told[-1:] == [ChannelStatus.SYNCED])
    told.clear()
    group.nodes["bob"].go_offline()
    await group.until(lambda: bob.status is ChannelStatus.SYNCING)
    await (await alice.send(b"while you were away")).sent()
    group.nodes["bob"].go_online()
    await group.until(lambda: bob.status is ChannelStatus.SYNCED)
    await group.until(lambda: len(told) == 3)
    assert told == [ChannelStatus.SYNCING, b"while you were away", ChannelStatus.SYNCED]


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "fairway.channel.trouble"]


@virtual_time()
async def test_a_node_that_refuses_everything_is_logged_and_the_channel_is_not_synced_until_it_takes_something(caplog):
    with LocalNetwork(NetworkFaults(invalid_message=1.0)) as network:
        async with join(network, "alice") as alice:
            told = []
            alice.on(SendingBlocked, told.append)
            alice.on(StatusChanged, told.append)
            receipt = await alice.send(b"hello")
            await asyncio.sleep(600)
            assert alice.status is ChannelStatus.SYNCING
            assert len([event for event in told if isinstance(event, SendingBlocked)]) == 1
            [line] = lines(caplog)
            assert "channel harbour: nothing could be sent for 1 min" in line
            assert "INVALID_MESSAGE" in line
            network.faults = NetworkFaults()
            await receipt.sent()
            assert alice.status is ChannelStatus.SYNCED


@virtual_time()
async def test_a_send_that_fails_is_logged(caplog):
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            receipt = await alice.send(b"hello", by=["bob\x1b[2J"])
            await asyncio.sleep(400)
            [line] = lines(caplog)
            assert f"the send of message {receipt.message_id[:8]} has failed, and is still tried" in line
            assert "not acknowledged by bob\\x1b[2J" in line


def test_a_trouble_that_lasts_has_lines_at_a_falling_rate_which_say_how_many_events_they_leave_out(caplog):
    log = TroubleLog("harbour", "alice")
    failed = DeliveryError(
        request_id="r", message_id="m" * 64, reason=FailureReason.NOT_ACKNOWLEDGED, detail="not acknowledged"
    )
    minutes = []
    for minute in range(7 * 24 * 60):
        before = len(lines(caplog))
        log.note(failed, 60_000 * minute)
        log.note(ForeignMessages(count=1, channel_id="pier"), 60_000 * minute)
        minutes += [minute] * (len(lines(caplog)) > before)
    assert minutes[:8] == [0, 1, 3, 7, 15, 31, 63, 123]
    assert len(minutes) < 7 * 24 + 10
    assert lines(caplog)[-1].endswith("(59 more since the last line)")
    log.note(failed, 60_000 * 9 * 24 * 60)
    assert not lines(caplog)[-1].endswith("since the last line)")
