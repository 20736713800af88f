"""Groups whose key is renewed: who leaves reads nothing more, who joins reads from then on or with the history."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import replace

import pytest

from fairway import ConfigurationError, DeliveryFailedError, GroupKeys, Identity
from fairway.environment import time_ns
from fairway.nodes.local import NetworkFaults
from fairway.options import Profile
from fairway.storage.memory_store import MemoryStore
from groups import in_group, run_in_group
from listening import heard_by, listen

LOSSES = pytest.mark.parametrize("loss", [0.0, 0.3])


def identity_of(name):
    return Identity(hashlib.sha256(name.encode()).digest())


def key_of(name):
    return identity_of(name).public_key


class Team:
    """The channels and the keys of a group; alice is its administrator."""

    def __init__(self, group, folder, *members, administrators=(), has_stores=True):
        self.group, self.folder, self.has_stores = group, folder, has_stores
        others = {name: key_of(name) for name in administrators}
        self.keys = {"alice": GroupKeys.create(folder / "alice", identity_of("alice"), "alice", administrators=others)}
        for name in members:
            self.keys["alice"].add(name, key_of(name))

    async def channel(self, name, **more):
        """Make the channel of a member; its keys are new, or those of the last time."""
        keys = self.keys.get(name)
        if keys is None:
            keys = GroupKeys.join(self.folder / name, identity_of(name), self.keys["alice"].id)
        self.keys[name] = GroupKeys.load(self.folder / name, identity_of(name))
        if name not in self.group.nodes:
            self.group.nodes[name] = self.group.network.node(name)
        self.group.nodes[name].store_available = self.has_stores
        return await self.group.channel(name, encryption=self.keys[name], **more)

    def add(self, name, **how):
        self.keys["alice"].add(name, key_of(name), **how)


async def until(condition):
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")


async def say(channel, payload, *hearers):
    await (await channel.send(payload, by=set(hearers))).delivered()


@LOSSES
@pytest.mark.parametrize("has_stores", [True, False], ids=["stores", "no stores"])
def test_who_is_removed_reads_nothing_more_and_who_is_added_reads_from_then_on(tmp_path, loss, has_stores):
    async def scenario(group):
        team = Team(group, tmp_path, "bob", "dave", has_stores=has_stores)
        alice, bob, dave = [await team.channel(name) for name in ("alice", "bob", "dave")]
        heard = {channel.sender_id: heard_by(channel) for channel in (alice, bob, dave)}
        await say(alice, b"one", "bob", "dave")
        team.keys["alice"].remove("bob")
        await say(alice, b"two", "dave")
        await say(dave, b"three", "alice")
        team.add("carol")
        carol = await team.channel("carol")
        heard["carol"] = heard_by(carol)
        await say(alice, b"four", "dave", "carol")
        await say(carol, b"five", "dave", "alice")
        await asyncio.sleep(8_000)
        assert heard == {
            "alice": [b"three", b"five"],
            "bob": [b"one"],
            "dave": [b"one", b"two", b"four", b"five"],
            "carol": [b"four"],
        }
        assert carol.statistics().protocol.missing == 0

    run_in_group(scenario, faults=NetworkFaults(loss=loss))


@LOSSES
def test_a_new_member_may_get_the_history(tmp_path, loss):
    async def scenario(group):
        team = Team(group, tmp_path, "bob")
        alice, bob = await team.channel("alice"), await team.channel("bob")
        for number in range(3):
            await say(alice, b"before %d" % number, "bob")
            team.keys["alice"].renew()
        team.add("carol", with_history=True)
        carol = await team.channel("carol")
        heard = heard_by(carol)
        await say(bob, b"now", "alice")
        await until(lambda: len(heard) == 4)
        assert heard == [b"before 0", b"before 1", b"before 2", b"now"]

    run_in_group(scenario, faults=NetworkFaults(loss=loss))


@LOSSES
def test_a_member_that_was_away_reads_all_epochs_of_that_time(tmp_path, loss):
    async def scenario(group):
        team, store = Team(group, tmp_path, "bob", "dave"), MemoryStore()
        alice, bob, _ = [
            await team.channel("alice"),
            await team.channel("bob", store=store),
            await team.channel("dave"),
        ]
        heard = heard_by(bob)
        await say(alice, b"0", "bob", "dave")
        await bob.close()
        for number in range(1, 5):
            team.keys["alice"].renew()
            await say(alice, b"%d" % number, "dave")
        bob = await team.channel("bob", store=store)
        heard = heard_by(bob)
        await until(lambda: len(heard) == 4)
        assert heard == [b"1", b"2", b"3", b"4"]

    run_in_group(scenario, faults=NetworkFaults(loss=loss))


@in_group()
async def test_a_message_before_the_key_waits_for_it(group, tmp_path):
    team, store = Team(group, tmp_path), MemoryStore()
    alice = await team.channel("alice")
    heard = heard_by(alice)
    bob = await team.channel("bob", store=store)
    await bob.send(b"am I in?", request_id="first")
    await asyncio.sleep(100)
    await bob.close()
    bob = await team.channel("bob", store=store)
    await asyncio.sleep(100)
    assert heard == []
    assert not team.keys["bob"].is_member
    team.add("bob")
    await until(lambda: heard == [b"am I in?"])
    assert team.keys["bob"].members.keys() == {"alice", "bob"}


@in_group()
async def test_who_was_removed_learns_it_and_is_not_heard(group, tmp_path):
    team = Team(group, tmp_path, "bob", "dave")
    alice, bob, dave = [await team.channel(name) for name in ("alice", "bob", "dave")]
    heard = heard_by(dave)
    await say(bob, b"one", "alice", "dave")
    group.nodes["bob"].go_offline()
    team.keys["alice"].remove("bob")
    await say(alice, b"two", "dave")
    await asyncio.sleep(100)
    group.nodes["bob"].go_online()
    receipt = await bob.send(b"I do not know it yet")
    await until(lambda: not team.keys["bob"].is_member)
    receipt = await bob.send(b"let me in")
    with pytest.raises(DeliveryFailedError, match="removed from the group"):
        await receipt.delivered()
    await asyncio.sleep(300)
    assert heard == [b"one", b"two"]
    assert dave.statistics().protocol.unverified > 0


@LOSSES
def test_two_administrators_who_change_the_group_at_the_same_time_agree(tmp_path, loss):
    async def scenario(group):
        team = Team(group, tmp_path, "bob", "erin", administrators=["dave"])
        channels = {name: await team.channel(name) for name in ("alice", "bob", "dave", "erin")}
        heard = {name: heard_by(channel) for name, channel in channels.items()}
        await say(channels["alice"], b"one", "bob", "dave", "erin")
        await until(lambda: team.keys["dave"].is_member)
        group.nodes["dave"].go_offline()
        team.keys["dave"].remove("bob")
        team.add("carol")
        await channels["dave"].send(b"dave removed bob")
        await channels["alice"].send(b"alice added carol")
        group.nodes["dave"].go_online()
        carol = await team.channel("carol")
        present = ("alice", "carol", "dave", "erin")
        await until(lambda: all(tuple(team.keys[name].members) == present for name in present))
        await until(lambda: len({team.keys[name].epoch for name in present}) == 1)
        await say(channels["alice"], b"two", "dave", "erin", "carol")
        await say(carol, b"three", "dave", "erin", "alice")
        assert set(heard["erin"]) == {b"one", b"dave removed bob", b"alice added carol", b"two", b"three"}
        assert b"two" not in heard["bob"]

    run_in_group(scenario, faults=NetworkFaults(loss=loss))


@LOSSES
def test_an_administrator_killed_after_a_renewal_hands_the_key_out_after_its_restart(tmp_path, loss):
    async def scenario(group):
        team, store = Team(group, tmp_path, "bob", "dave"), MemoryStore()
        alice, bob, dave = (
            await team.channel("alice", store=store),
            await team.channel("bob"),
            await team.channel("dave"),
        )
        heard = {"bob": heard_by(bob), "dave": heard_by(dave)}
        await say(alice, b"one", "bob", "dave")
        group.nodes["alice"].go_offline()
        await alice.close()
        team.keys["alice"].remove("bob")
        group.nodes["alice"].go_online()
        alice = await team.channel("alice", store=store)
        await say(alice, b"two", "dave")
        await say(dave, b"three", "alice")
        await asyncio.sleep(300)
        assert heard == {"bob": [b"one"], "dave": [b"one", b"two"]}

    run_in_group(scenario, faults=NetworkFaults(loss=loss))


@in_group()
async def test_a_group_has_the_identity_and_the_members(group, tmp_path):
    team = Team(group, tmp_path)
    for wrong in ({"identity": identity_of("bob")}, {"members": {"bob": key_of("bob")}}):
        with pytest.raises(ConfigurationError, match="leave out identity and members"):
            await team.channel("alice", **wrong)
    with pytest.raises(ConfigurationError, match="the name 'alice' in the group"):
        await group.channel("alicia", encryption=team.keys["alice"])
    await team.channel("alice", identity=identity_of("alice"))


@pytest.mark.parametrize("profile", list(Profile), ids=lambda profile: profile.value)
def test_long_messages_pass_renewals(tmp_path, profile):
    async def scenario(group):
        team = Team(group, tmp_path, "bob", "carol", has_stores=False)
        options = replace(profile.options(), retry_interval_ms=2_000, max_retry_attempts=1_000)
        options = replace(options, segmentation=replace(options.segmentation, segment_size_bytes=1_000))
        channels = [await team.channel(name, options=options) for name in ("alice", "bob", "carol")]
        receipts = []
        for _ in range(3):
            receipts += [await channel.send(channel.sender_id.encode() * 2_000, count=2) for channel in channels]
            await asyncio.sleep(0.5)
            team.keys["alice"].renew()
        for receipt in receipts:
            await receipt.delivered()

    run_in_group(scenario, faults=NetworkFaults(loss=0.3))


@LOSSES
def test_a_retransmission_of_an_earlier_message_stays_closed_for_who_came_later(tmp_path, loss):
    async def scenario(group):
        team = Team(group, tmp_path, "bob")
        alice, bob = await team.channel("alice"), await team.channel("bob")
        heard = {"bob": heard_by(bob)}
        await say(alice, b"one", "bob")
        group.nodes["bob"].go_offline()
        receipt = await alice.send(b"before carol", by={"bob"})
        await asyncio.sleep(0.5)
        team.add("carol")
        carol = await team.channel("carol")
        heard["carol"] = heard_by(carol)
        await asyncio.sleep(3)
        group.nodes["bob"].go_online()
        await receipt.delivered()
        await say(alice, b"after", "bob", "carol")
        assert heard == {"bob": [b"one", b"before carol", b"after"], "carol": [b"after"]}

    run_in_group(scenario, faults=NetworkFaults(loss=loss))


@in_group()
async def test_a_program_that_sends_ephemeral_messages_before_it_has_the_key_still_gets_it(
    group, tmp_path, monkeypatch
):
    monkeypatch.setattr("fairway.protocol.encryption.ciphering.MAX_PENDING", 5)
    team = Team(group, tmp_path)
    alice, bob = await team.channel("alice"), await team.channel("bob")
    heard = heard_by(alice)
    tasks = [asyncio.create_task(bob.send_ephemeral(b"reading %d" % number)) for number in range(20)]
    await asyncio.sleep(10)
    team.add("bob")
    await until(lambda: team.keys["bob"].is_member)
    await bob.send(b"here")
    await until(lambda: b"here" in heard)
    for task in tasks:
        await task


@LOSSES
def test_a_running_program_hands_out_what_another_program_changed_in_its_file(tmp_path, loss):
    async def scenario(group):
        team = Team(group, tmp_path, "bob", "dave")
        alice, bob, dave = [await team.channel(name) for name in ("alice", "bob", "dave")]
        heard = {"bob": heard_by(bob), "dave": heard_by(dave)}
        await say(alice, b"one", "bob", "dave")
        GroupKeys.load(tmp_path / "alice", identity_of("alice")).remove("bob")
        await until(lambda: team.keys["dave"].members.keys() == {"alice", "dave"})
        await say(alice, b"two", "dave")
        await say(dave, b"three", "alice")
        await asyncio.sleep(300)
        assert heard == {"bob": [b"one"], "dave": [b"one", b"two"]}

    run_in_group(scenario, faults=NetworkFaults(loss=loss))


@in_group()
async def test_the_last_messages_of_a_former_member_whose_clock_was_ahead_arrive_late(group, tmp_path):
    team = Team(group, tmp_path, "bob", "dave")
    alice, dave = await team.channel("alice"), await team.channel("dave")
    bob = await team.channel("bob", clock=lambda: time_ns() // 1_000_000 + 1_800_000)
    heard = heard_by(dave)
    await say(bob, b"one", "alice", "dave")
    group.nodes["dave"].go_offline()
    await say(bob, b"two", "alice")
    team.keys["alice"].remove("bob")
    await alice.send(b"three", by={"dave"})
    await asyncio.sleep(1)
    group.nodes["dave"].go_online()
    await until(lambda: b"three" in heard)
    assert heard == [b"one", b"two", b"three"]


@in_group()
async def test_a_record_makes_no_message_too_large_for_the_network(group, tmp_path):
    team = Team(group, tmp_path, *(f"member {number}" for number in range(30)), "bob")
    options = replace(
        group.options,
        segmentation=replace(group.options.segmentation, segment_size_bytes=4_000),
        advanced=replace(group.options.advanced, max_wire_message_bytes=11_500),
        bloom_filter_size=100,
    )
    alice, bob = [await team.channel(name, options=options) for name in ("alice", "bob")]
    heard = heard_by(bob)
    receipt = await alice.send(bytes(4_000), by={"bob"})
    await receipt.sent()
    await until(lambda: team.keys["bob"].is_member)
    await receipt.delivered()
    assert heard == [bytes(4_000)]


@LOSSES
def test_what_another_member_accepted_of_a_former_member_holds_nobody_up(tmp_path, loss):
    async def scenario(group):
        team = Team(group, tmp_path, "carol", "dave", has_stores=False)
        alice, carol, dave = [await team.channel(name) for name in ("alice", "carol", "dave")]
        heard = heard_by(alice)
        await say(alice, b"one", "carol", "dave")
        group.nodes["alice"].go_offline()
        team.keys["alice"].remove("carol")
        await asyncio.sleep(100)
        await say(carol, b"two", "dave")
        group.nodes["alice"].go_online()
        await say(dave, b"three", "alice")
        assert heard == [b"three"]

    run_in_group(scenario, faults=NetworkFaults(loss=loss))


class World:
    """A random group: members come, go, crash and are away, and two administrators change it at the same time."""

    MEMBERS = ("alice", "bob", "carol", "dave", "erin", "frank")
    ADMINISTRATORS = ("alice", "bob")

    def __init__(self, group, team, draws):
        self.group, self.team, self.draws = group, team, draws
        self.channels, self.heard, self.sent = {}, {name: [] for name in self.MEMBERS}, {}
        self.stores = {name: MemoryStore() for name in self.MEMBERS}
        self.readers = {}
        """Names of the members of each epoch, by its number, as any administrator saw them."""

    async def start(self, name):
        self.channels[name] = await self.team.channel(name, store=self.stores[name])
        heard = self.heard[name]
        listen(self.channels[name], lambda message: None if message.redelivered else heard.append(bytes(message)))

    async def step(self, number):
        name, administrator = self.draws.choice(self.MEMBERS), self.team.keys[self.draws.choice(self.ADMINISTRATORS)]
        node, is_member = self.group.nodes[name], name in administrator.members
        match self.draws.choice(["change", "change", "away", "crash", *["send"] * 8]):
            case "change" if administrator.is_member and name not in self.ADMINISTRATORS:
                administrator.remove(name) if is_member else administrator.add(name, key_of(name))
            case "away":
                (node.go_offline if node.status.connected else node.go_online)()
            case "crash":
                await self.channels[name].close()
                await self.start(name)
            case "send" if self.team.keys[name].is_member:
                payload = b"%s, step %d" % (name.encode(), number)
                self.sent[payload] = self.team.keys[name].epoch
                await self.channels[name].send(payload)
        self.note_members()

    def note_members(self):
        for name in self.ADMINISTRATORS:
            keys = self.team.keys[name]
            self.readers.setdefault(keys.epoch, set()).update(keys.members)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 10))])
def test_members_of_a_random_group_read_what_they_may_and_nothing_else(tmp_path, seed):
    async def scenario(group):
        team = Team(group, tmp_path, "carol", administrators=["bob"], has_stores=seed % 2 == 0)
        world = World(group, team, random.Random(seed))
        for name in World.MEMBERS:
            await world.start(name)
        for number in range(40):
            await world.step(number)
            await asyncio.sleep(world.draws.choice([0, 0.1, 2, 20]))
        for node in group.nodes.values():
            if not node.status.connected:
                node.go_online()
        await asyncio.sleep(1_000)
        world.note_members()
        members = set(team.keys["alice"].members)
        assert len({(team.keys[name].epoch, *team.keys[name].members) for name in members}) == 1
        for name in members:
            await say(world.channels[name], b"last, " + name.encode(), *(members - {name}))
        for name, heard in world.heard.items():
            last = {payload for payload in heard if payload.startswith(b"last, ")}
            assert last == ({b"last, " + other.encode() for other in members - {name}} if name in members else set())
            for payload in set(heard) - last:
                later = [readers for epoch, readers in world.readers.items() if epoch >= world.sent[payload]]
                assert any(name in readers for readers in later), (name, payload)
            assert len(heard) == len(set(heard))

    run_in_group(scenario, faults=NetworkFaults(loss=0.3), seed=seed)
