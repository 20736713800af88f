"""Which members are present: arrivals, silence, and messages that prove nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from fairway.channel.reliable_channel import ReliableChannel
from fairway.channel.requests import Request
from fairway.errors import ConfigurationError, DeliveryFailedError, NoOneThereError, RequestTimeoutError
from fairway.events import AwayReason, MemberArrived, MemberAway
from fairway.identity import Identity
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.nodes.local.network import LocalNode
from fairway.options import Profile, ReliableChannelOptions, SdsConfig
from fairway.testing import Machine, Process, SimulatedDisk, virtual_time
from listening import heard_by, join

MINUTE_S = 60
HOUR_S = 3_600


def present(channel: ReliableChannel) -> set[str]:
    return {member.sender_id for member in channel.members() if member.is_present}


def absent(channel: ReliableChannel) -> set[str]:
    return {member.sender_id for member in channel.members() if not member.is_present}


def changes_seen_by(channel: ReliableChannel) -> list[MemberArrived | MemberAway]:
    changes: list[MemberArrived | MemberAway] = []
    channel.on(MemberArrived, changes.append)
    channel.on(MemberAway, changes.append)
    return changes


async def started(process: Process, network: LocalNetwork, name: str, **more) -> ReliableChannel:
    """Start a member in a process of its own."""

    async def start() -> ReliableChannel:
        channel = await join(network, name, **more)
        await channel.start()
        return channel

    return await process.spawn(start())


def node_of(network: LocalNetwork, name: str) -> LocalNode:
    return next(node for node in network.nodes if node.name == name)


def kill(process: Process, network: LocalNetwork) -> None:
    """End a process as ``kill -9`` does: it says no goodbye."""
    node_of(network, process.name).leave()
    process.kill()


async def chat(channel: ReliableChannel, seconds: int, every: int = 10) -> None:
    for number in range(seconds // every):
        await channel.send(b"line %d" % number)
        await asyncio.sleep(every)


@virtual_time()
async def test_a_member_is_present_from_its_first_word_and_is_heard_without_sending_messages():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob") as bob:
            arrivals = changes_seen_by(alice)
            assert alice.members() == bob.members() == ()
            await alice.send(b"anybody?")
            await asyncio.sleep(MINUTE_S)
            assert (present(alice), present(bob)) == ({"bob"}, {"alice"})
            (member,) = alice.members()
            assert member.since_ms
            assert member.last_heard_ms
            assert member.since_ms <= member.last_heard_ms
            assert arrivals == [MemberArrived(sender_id="bob")]
            await chat(alice, 5 * MINUTE_S)
            assert alice.members()[0].since_ms == member.since_ms
            assert (alice.members()[0].last_heard_ms or 0) > member.last_heard_ms


@virtual_time()
async def test_a_killed_member_is_away_within_minutes_of_a_conversation_and_arrives_again_at_its_return():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob"):
            changes = changes_seen_by(alice)
            machine = Machine(asyncio.get_running_loop())
            first = Process("carol", machine)
            await started(first, network, "carol")
            await chat(alice, 2 * MINUTE_S)
            assert present(alice) == {"bob", "carol"}
            heard_ms = {member.sender_id: member.last_heard_ms or 0 for member in alice.members()}["carol"]
            kill(first, network)
            await chat(alice, 5 * MINUTE_S)
            assert (present(alice), absent(alice)) == ({"bob"}, {"carol"})
            away = changes[-1]
            assert isinstance(away, MemberAway)
            assert (away.sender_id, away.reason) == ("carol", AwayReason.SILENT)
            assert away.last_heard_ms >= heard_ms
            await started(Process("carol", machine), network, "carol")
            await chat(alice, 2 * MINUTE_S)
            assert present(alice) == {"bob", "carol"}
            assert changes[-1] == MemberArrived(sender_id="carol")


@virtual_time()
async def test_a_quiet_member_stays_present_in_a_quiet_and_in_a_busy_channel_that_loses_messages():
    with LocalNetwork(NetworkFaults(loss=0.3)) as network:
        async with join(network, "alice") as alice, join(network, "bob"), join(network, "carol") as carol:
            changes = [changes_seen_by(channel) for channel in (alice, carol)]
            await alice.send(b"good night")
            await asyncio.sleep(24 * HOUR_S)
            await chat(alice, HOUR_S)
            assert present(alice) == {"bob", "carol"}
            assert [len(seen) for seen in changes] == [2, 2]


@pytest.mark.full
@virtual_time()
async def test_a_hundred_members_are_all_present_and_none_of_them_flickers():
    with LocalNetwork(NetworkFaults(loss=0.1)) as network:
        async with AsyncExitStack() as group:
            members = [await group.enter_async_context(join(network, f"member {number}")) for number in range(100)]
            changes = changes_seen_by(members[0])
            await chat(members[1], 6 * MINUTE_S, every=40)
            assert len(present(members[0])) == 99
            assert len(changes) == 99
            await asyncio.sleep(HOUR_S)
            assert len(changes) == 99


@virtual_time()
async def test_messages_of_a_store_prove_no_presence_and_their_senders_are_listed_as_absent():
    with LocalNetwork() as network:
        process = Process("bob", Machine(asyncio.get_running_loop()))
        bob = await started(process, network, "bob")
        await (await bob.send(b"the last words of bob")).sent()
        kill(process, network)
        async with join(network, "carol") as carol:
            changes = changes_seen_by(carol)
            assert [message.sender_id async for message in _first(carol, 1)] == ["bob"]
            await asyncio.sleep(MINUTE_S)
            assert (present(carol), absent(carol), changes) == (set(), {"bob"}, [])


@virtual_time()
async def test_a_repair_by_another_member_proves_no_presence_of_the_author():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            process = Process("bob", Machine(asyncio.get_running_loop()))
            bob = await started(process, network, "bob")
            await alice.send(b"bob?")
            receipt = await bob.send(b"the last words of bob")
            await receipt.delivered()
            kill(process, network)
            network.node("carol").store_available = False
            async with join(network, "carol") as carol:
                await alice.send(b"carol?")
                lines = [message async for message in _first(carol, 2)]
                assert {message.sender_id for message in lines} == {"alice", "bob"}
                assert present(carol) == {"alice"}


async def _first(channel: ReliableChannel, count: int):
    number = 0
    async for message in channel:
        yield message
        number += 1
        if number == count:
            return


@virtual_time()
async def test_members_with_clocks_that_are_wrong_by_minutes_are_present():
    with LocalNetwork() as network:
        loop = asyncio.get_running_loop()
        async with join(network, "alice") as alice:
            slow = await started(Process("slow", Machine(loop, skew_ms=-600_000)), network, "slow")
            fast = await started(Process("fast", Machine(loop, skew_ms=600_000)), network, "fast")
            await chat(alice, 2 * MINUTE_S)
            assert present(alice) == {"slow", "fast"}
            assert present(slow) == {"alice", "fast"}
            assert present(fast) == {"alice", "slow"}


@virtual_time()
async def test_after_a_restart_no_member_is_present_until_it_is_heard(tmp_path):
    with LocalNetwork() as network:
        async with join(network, "bob") as bob:
            async with join(network, "alice", store=tmp_path / "alice.db") as alice:
                await chat(alice, MINUTE_S)
                assert present(alice) == {"bob"}
            async with join(network, "alice", store=tmp_path / "alice.db") as alice:
                (member,) = alice.members()
                assert (member.sender_id, member.is_present, member.last_heard_ms) == ("bob", False, None)
                await bob.send(b"welcome back")
                await asyncio.sleep(1)
                assert present(alice) == {"bob"}


@pytest.mark.parametrize(
    "options",
    [ReliableChannelOptions(sync_min_interval_ms=0), ReliableChannelOptions(sds=SdsConfig(causal_history_size=0))],
)
@virtual_time()
async def test_in_a_channel_without_sync_messages_nobody_goes_away_by_silence(options):
    with LocalNetwork() as network:
        async with join(network, "alice", options=options) as alice, join(network, "bob", options=options) as bob:
            await bob.send(b"I am a sensor")
            await chat(alice, HOUR_S)
            assert present(alice) == {"bob"}


@virtual_time()
async def test_nobody_goes_away_while_the_own_node_is_offline():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob"):
            await chat(alice, MINUTE_S)
            node_of(network, "alice").go_offline()
            await chat(alice, 24 * HOUR_S, every=HOUR_S)
            assert present(alice) == {"bob"}


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("signed", [False, True])
@virtual_time()
async def test_a_member_that_closes_its_channel_is_away_at_once_and_present_again_when_it_returns(profile, signed):
    keys = {name: Identity.new() for name in ("alice", "bob")}
    members = {name: key.public_key for name, key in keys.items()}

    def options(name: str) -> dict[str, Any]:
        more = {"identity": keys[name], "members": members} if signed else {}
        return {"options": ReliableChannelOptions(profile=profile), **more}

    with LocalNetwork() as network:
        async with join(network, "alice", **options("alice")) as alice:
            changes = changes_seen_by(alice)
            async with join(network, "bob", **options("bob")) as bob:
                await chat(alice, MINUTE_S)
                assert present(alice) == {"bob"}
                await chat(bob, MINUTE_S)
            await asyncio.sleep(1)
            (member,) = alice.members()
            assert not member.is_present
            assert isinstance(changes[-1], MemberAway)
            assert changes[-1].reason is AwayReason.GOODBYE
            async with join(network, "bob", **options("bob")):
                await alice.send(b"welcome back")
                await asyncio.sleep(MINUTE_S)
                assert present(alice) == {"bob"}


@virtual_time()
async def test_a_channel_that_closes_offline_says_no_goodbye_and_closes():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            async with join(network, "bob"):
                await chat(alice, MINUTE_S)
                node_of(network, "bob").go_offline()
            await asyncio.sleep(MINUTE_S)
            assert present(alice) == {"bob"}


async def answer(request: Request) -> bytes:
    return b"yes"


@virtual_time()
async def test_a_request_to_a_member_that_said_goodbye_fails_at_once_and_sends_nothing():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "carol"):
            async with join(network, "bob") as bob:
                bob.on_request(answer)
                assert bytes(await alice.request(b"tea?", to="bob")) == b"yes"
            await asyncio.sleep(1)
            with pytest.raises(NoOneThereError, match="bob is away"):
                await alice.request(b"tea?", to="bob")
            assert len([message for message in await alice.history() if message.is_own]) == 1
            async with join(network, "bob") as bob:
                bob.on_request(answer)
                await alice.send(b"bob?")
                await asyncio.sleep(MINUTE_S)
                assert bytes(await alice.request(b"tea?", to="bob")) == b"yes"


@virtual_time()
async def test_a_request_to_nobody_in_particular_fails_at_once_if_the_channel_was_silent_for_long():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            with pytest.raises(RequestTimeoutError):
                await alice.request(b"anybody?", timeout=MINUTE_S)
            await chat(alice, 3 * MINUTE_S)
            for to in (None, "bob"):
                with pytest.raises(NoOneThereError):
                    await alice.request(b"anybody?", to=to, timeout=MINUTE_S)
            async with join(network, "bob") as bob:
                bob.on_request(answer)
                await bob.send(b"here I am")
                await asyncio.sleep(1)
                assert bytes(await alice.request(b"anybody?")) == b"yes"


@virtual_time()
async def test_after_the_node_was_offline_a_member_that_left_before_may_have_returned():
    with LocalNetwork() as network:
        node = network.node("alice")
        async with join(network, "alice") as alice:
            async with join(network, "bob"):
                await chat(alice, MINUTE_S)
            await asyncio.sleep(1)
            node.go_offline()
            async with join(network, "bob") as bob:
                bob.on_request(answer)
                await asyncio.sleep(MINUTE_S)
                node.go_online()
                assert bytes(await alice.request(b"tea?", to="bob")) == b"yes"


@virtual_time()
async def test_a_request_that_is_repeated_after_a_crash_finds_the_reply_of_a_member_that_left(tmp_path):
    with LocalNetwork() as network:
        machine = Machine(asyncio.get_running_loop())
        process = Process("alice", machine)
        alice = await started(process, network, "alice", store=tmp_path / "alice.db")
        async with join(network, "bob") as bob:
            requests = bob.requests()
            process.spawn(alice.request(b"tea?", to="bob", timeout=HOUR_S, request_id="the first tea"))
            request = await anext(requests)
            await alice.backup(tmp_path / "copy.db")
            kill(process, network)
            await request.reply(b"yes")
        async with join(network, "alice", store=tmp_path / "copy.db") as alice:
            await chat(alice, 3 * MINUTE_S)
            with pytest.raises(NoOneThereError):
                await alice.request(b"tea?", to="bob")
            again = await alice.request(b"tea?", to="bob", timeout=HOUR_S, request_id="the first tea")
            assert bytes(again) == b"yes"


@virtual_time()
async def test_a_send_waits_for_all_members_that_are_present_also_over_a_lossy_network():
    with LocalNetwork(NetworkFaults(loss=0.4)) as network:
        async with AsyncExitStack() as group:
            names = ["alice", "bob", "carol", "dave"]
            alice, *others = [await group.enter_async_context(join(network, name)) for name in names]
            await alice.send(b"who is here?")
            await asyncio.sleep(2 * MINUTE_S)
            assert present(alice) == {"bob", "carol", "dave"}
            payloads = [heard_by(other) for other in others]
            receipt = await alice.send(b"to everybody")
            with pytest.raises(ConfigurationError, match="to_all_present must be True or False, not NoneType"):
                await receipt.delivered(to_all_present=None)
            acknowledgement = await receipt.delivered(to_all_present=True)
            assert acknowledgement.delivered_to == ("bob", "carol", "dave")
            assert all(b"to everybody" in each for each in payloads)


@virtual_time()
async def test_a_send_waits_neither_for_a_member_that_leaves_nor_for_one_that_arrives():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob"), AsyncExitStack() as leaving:
            await leaving.enter_async_context(join(network, "carol"))
            await chat(alice, MINUTE_S)
            node_of(network, "carol").go_deaf(noticed_after_ms=600_000)
            receipt = await alice.send(b"to everybody")
            waits = asyncio.ensure_future(receipt.delivered(to_all_present=True))
            await asyncio.sleep(20)
            assert not waits.done()
            async with join(network, "dave"):
                node_of(network, "dave").go_deaf(noticed_after_ms=600_000)
                await leaving.aclose()
                assert (await waits).delivered_to == ("bob",)
                assert receipt.failure is None


@virtual_time()
async def test_a_send_stops_waiting_for_a_killed_member_when_it_is_away():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob"):
            process = Process("carol", Machine(asyncio.get_running_loop()))
            await started(process, network, "carol")
            await chat(alice, MINUTE_S)
            kill(process, network)
            receipt = await alice.send(b"to everybody")
            assert (await receipt.delivered(to_all_present=True)).delivered_to == ("bob",)
            assert absent(alice) == {"carol"}
            assert (receipt.failure, receipt.has_ended) == (None, True)
            assert alice.statistics().protocol.failed_requests == 0
            assert alice.statistics().protocol.open_requests == 0


@virtual_time()
async def test_a_member_that_is_heard_and_does_not_acknowledge_makes_the_send_fail():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice, join(network, "bob"), join(network, "carol") as carol:
            await chat(alice, MINUTE_S)
            node_of(network, "carol").go_deaf(noticed_after_ms=HOUR_S * 1_000)
            receipt = await alice.send(b"to everybody")
            waits = asyncio.ensure_future(receipt.delivered(to_all_present=True))
            while not waits.done():
                await carol.send_ephemeral(b"typing")
                await asyncio.sleep(10)
            with pytest.raises(DeliveryFailedError, match="not acknowledged by carol"):
                await waits


@virtual_time()
async def test_without_a_present_member_a_send_waits_for_the_first_acknowledgement():
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            waits = asyncio.ensure_future((await alice.send(b"anybody?")).delivered(to_all_present=True))
            await asyncio.sleep(10)
            assert not waits.done()
            async with join(network, "bob"):
                assert (await waits).delivered_to == ("bob",)


@virtual_time()
async def test_a_sender_that_is_killed_while_it_waits_for_all_present_can_wait_again_after_its_restart():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        machine = Machine(asyncio.get_running_loop())
        first, second = Process("alice", machine), Process("alice", machine)
        alice = await started(first, network, "alice", store=disk.store("alice"))
        async with join(network, "bob") as bob, join(network, "carol") as carol:
            await chat(alice, MINUTE_S)
            node_of(network, "carol").go_deaf(noticed_after_ms=30_000)
            receipt = await first.spawn(alice.send(b"to everybody", request_id="the last order"))
            first.spawn(receipt.delivered(to_all_present=True))
            await asyncio.sleep(20)
            assert receipt.progress.delivered_to == ("bob",)
            kill(first, network)
            disk.power_loss("alice")
            alice = await started(second, network, "alice", store=disk.store("alice"))
            await bob.send(b"welcome back")
            await carol.send(b"welcome back")
            await asyncio.sleep(MINUTE_S)
            assert present(alice) == {"bob", "carol"}
            again = alice.receipt("the last order").delivered(to_all_present=True)
            assert (await second.spawn(again)).delivered_to == ("bob", "carol")
            await second.spawn(alice.close())
