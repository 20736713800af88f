"""`fairway.Channels`: many channels of one participant in one store, which one loop reads."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter, defaultdict
from contextlib import suppress

import pytest

import fairway
from fairway.channel.channels import SharedArguments
from fairway.errors import (
    ChannelClosedError,
    ConfigurationError,
    StorageError,
    StoreCorruptError,
    StoreFullError,
    StoreLockedError,
    StoreMismatchError,
)
from fairway.events import MessageReceived
from fairway.testing import (
    DiskFault,
    DiskFaults,
    LocalNetwork,
    Machine,
    NetworkFaults,
    Process,
    SimulatedDisk,
    run,
    virtual_time,
)

TOPIC = "/fairway/1/{channel}/proto"
MANY = 300
ROOMS = [f"room-{number}" for number in range(5)]


def channels_of(network, name, store, **settings):
    return fairway.Channels(network.node(), store=store, sender_id=name, content_topic=TOPIC, **settings)


async def open_all(channels, names):
    return await asyncio.gather(*map(channels.open, names))


async def until_killed(program):
    with suppress(StorageError):
        await program


async def take(loop, count):
    return [(message.channel_id, bytes(message)) for message in [await anext(loop) for _ in range(count)]]


@pytest.mark.full
@virtual_time()
async def test_hundreds_of_channels_in_one_store_lose_nothing_over_a_lossy_network():
    names = [f"room-{number}" for number in range(MANY)]
    with LocalNetwork(NetworkFaults(loss=0.2)) as network, SimulatedDisk() as disk:
        async with (
            channels_of(network, "alice", disk.store("alice")) as alice,
            channels_of(network, "bob", disk.store("bob")) as bob,
        ):
            await asyncio.gather(open_all(alice, names), open_all(bob, names))
            for each in range(2):
                await asyncio.gather(*(alice[name].send(f"{each} in {name}".encode()) for name in names))
            received = await take(aiter(bob), 2 * MANY)
            for name in names:
                assert [text for room, text in received if room == name] == [
                    f"{each} in {name}".encode() for each in (0, 1)
                ]
            await asyncio.sleep(60)
            assert not [name for name in names if len(bob[name].gaps())]
    assert len(received) == 2 * MANY


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2))])
def test_after_crashes_amid_the_commits_of_several_channels_each_has_what_it_accepted(seed):
    async def main():
        accepted: defaultdict[str, list[bytes]] = defaultdict(list)
        heard: defaultdict[str, list[bytes]] = defaultdict(list)

        async def sender(node, disk, life):
            channels = fairway.Channels(node, store=disk.store("alice"), sender_id="alice", content_topic=TOPIC)
            opened = await open_all(channels, ROOMS)

            async def talk(channel):
                for number in range(10):
                    text = f"{channel.channel_id}, life {life}, {number}".encode()
                    await channel.send(text)
                    accepted[channel.channel_id].append(text)

            await asyncio.gather(*map(talk, opened))
            await asyncio.Event().wait()

        async def reader(node, disk):
            channels = fairway.Channels(node, store=disk.store("bob"), sender_id="bob", content_topic=TOPIC)
            await open_all(channels, ROOMS)
            async for message in channels:
                if message.redelivered and bytes(message) in heard[message.channel_id]:
                    continue
                heard[message.channel_id].append(bytes(message))

        with LocalNetwork(NetworkFaults(loss=0.2), seed=seed) as network, SimulatedDisk(seed=seed) as disk:
            nodes = {name: network.node(name) for name in ("alice", "bob")}
            machines = {name: Machine(asyncio.get_running_loop()) for name in nodes}
            running: dict[str, Process] = {}
            dead: list[str] = []

            def crashed(name):
                running[name].kill()
                dead.append(name)

            def begin(name, life):
                running[name] = Process(name, machines[name])
                program = sender(nodes[name], disk, life) if name == "alice" else reader(nodes[name], disk)
                # Power can be lost during the opening, too.
                running[name].spawn(until_killed(program))

            disk.on_crash = crashed
            disk.faults = DiskFaults(crash_before=0.03, crash_after=0.03, answer_ms=(0, 20))
            for name in nodes:
                begin(name, 0)
            crashes = 0
            for life in range(1, 20):
                await asyncio.sleep(20)
                while dead:
                    crashes += 1
                    begin(dead.pop(), life)
            disk.faults = DiskFaults()
            await asyncio.sleep(20)
            while dead:
                begin(dead.pop(), 20)
            await asyncio.sleep(600)
        assert crashes > 5
        for room in ROOMS:
            assert set(accepted[room]) <= set(heard[room]), room
            # A send that was under way at a crash may have been accepted or not; no message is heard twice.
            assert max(Counter(heard[room]).values()) == 1

    run(main(), seed=seed)


@virtual_time()
async def test_a_restart_opens_the_channels_of_the_store_whose_names_match():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        async with channels_of(network, "alice", disk.store("alice")) as alice:
            assert alice.names() == []
            for name in ("room-2", "lobby", "room-1"):
                await alice.open(name)
            await alice["lobby"].send(b"hello")
        async with channels_of(network, "alice", disk.store("alice")) as alice:
            assert alice.names() == ["room-2", "lobby", "room-1"]
            assert alice.names("room-*") == ["room-2", "room-1"]
            with pytest.raises(ConfigurationError, match=r"'lobby' is not open: call channels\.open\('lobby'\)"):
                alice["lobby"]
            lobby = await alice.open("lobby")
            assert lobby is alice["lobby"]
            assert [bytes(message) for message in await lobby.history()] == [b"hello"]


@virtual_time()
async def test_a_channel_is_one_object_while_it_is_open_and_a_new_one_after_it_was_closed():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        async with channels_of(network, "alice", disk.store("alice")) as alice:
            first, second = await open_all(alice, ["team", "team"])
            assert first is second is await alice.open("team")
            await first.send(b"before")
            await first.close()
            again = await alice.open("team")
            assert again is not first
            assert [bytes(message) for message in await again.history()] == [b"before"]
        with pytest.raises(ChannelClosedError, match="make new ones with the same store"):
            await alice.open("team")


@virtual_time()
async def test_one_loop_takes_from_all_channels_in_turn_and_finishes_what_it_has_read():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        names = ["busy", "quiet"]
        async with channels_of(network, "alice", disk.store("alice")) as alice:
            await open_all(alice, names)
            async with channels_of(network, "bob", disk.store("bob")) as bob:
                await open_all(bob, names)
                for number in range(20):
                    await alice["busy"].send(b"%d" % number)
                await alice["quiet"].send(b"hello")
                await asyncio.sleep(60)
                loop = aiter(bob)
                assert ("quiet", b"hello") in await take(loop, 3)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(60):
                        await take(loop, 19)
            async with channels_of(network, "bob", disk.store("bob")) as bob:
                await open_all(bob, names)
                await alice["quiet"].send(b"the end")
                assert await take(aiter(bob), 1) == [("quiet", b"the end")]


@virtual_time()
async def test_a_message_that_a_crash_interrupts_comes_again():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        seen: list[MessageReceived] = []

        async def life():
            channels = channels_of(network, "bob", disk.store("bob"))
            await open_all(channels, ["one", "two"])
            async for message in channels:
                seen.append(message)
                await asyncio.sleep(600)

        async with channels_of(network, "alice", disk.store("alice")) as alice:
            await open_all(alice, ["one", "two"])
            machine = Machine(asyncio.get_running_loop())
            first = Process("bob", machine)
            first.spawn(life())
            await asyncio.sleep(1)
            for name in ("one", "two"):
                await alice[name].send(name.encode())
            await asyncio.sleep(60)
            first.kill()
            disk.power_loss("bob")
            Process("bob", machine).spawn(life())
            await asyncio.sleep(3_600)
        assert len(seen) == 3
        assert {message.channel_id for message in seen[1:]} == {"one", "two"}
        assert all(message.redelivered for message in seen[1:])


@virtual_time()
async def test_a_handler_gets_the_messages_of_all_channels():
    got: list[tuple[str, bytes]] = []

    async def handle(message):
        got.append((message.channel_id, bytes(message)))

    with LocalNetwork() as network, SimulatedDisk() as disk:
        async with (
            channels_of(network, "alice", disk.store("alice")) as alice,
            channels_of(network, "bob", disk.store("bob"), receive=handle) as bob,
        ):
            await asyncio.gather(open_all(alice, ["one", "two"]), open_all(bob, ["one", "two"]))
            for name in ("one", "two"):
                await (await alice[name].send(name.encode())).delivered()
            await asyncio.sleep(1)
            assert got == [("one", b"one"), ("two", b"two")]
            with pytest.raises(ConfigurationError, match="receive in another way"):
                aiter(bob)


@virtual_time()
async def test_a_full_disk_fails_all_channels_and_each_is_opened_again():
    with LocalNetwork() as network, SimulatedDisk() as disk:
        async with (
            channels_of(network, "alice", disk.store("alice")) as alice,
            channels_of(network, "bob", disk.store("bob")) as bob,
        ):
            await asyncio.gather(open_all(alice, ["one", "two"]), open_all(bob, ["one", "two"]))
            await asyncio.sleep(60)
            loop = aiter(alice)
            disk.strike("alice", DiskFault.FULL)
            with pytest.raises(StoreFullError):
                await alice["one"].send(b"refused")
            for _ in range(2):
                with pytest.raises(StoreFullError) as raised:
                    await anext(loop)
                assert "in channel" in raised.value.__notes__[0]
            assert not alice["two"].is_started()
            one, two = await open_all(alice, ["one", "two"])
            assert one.is_started()
            await (await two.send(b"there is room")).delivered()
            await (await bob["one"].send(b"an answer")).delivered()
            assert await take(loop, 1) == [("one", b"an answer")]


@virtual_time()
async def test_a_copy_restores_all_channels(tmp_path):
    with LocalNetwork() as network:
        path, copy = tmp_path / "alice.db", tmp_path / "copy.db"
        async with channels_of(network, "alice", path) as alice:
            for name in ROOMS:
                await (await alice.open(name)).send(name.encode())
            await alice.backup(copy)
            await alice[ROOMS[0]].send(b"not in the copy")
        async with channels_of(network, "alice", copy) as alice:
            assert alice.names() == ROOMS
            for name in ROOMS:
                assert [bytes(message) for message in await (await alice.open(name)).history()] == [name.encode()]


@virtual_time()
async def test_one_damaged_channel_is_refused_and_the_others_open(tmp_path):
    path = tmp_path / "alice.db"
    with LocalNetwork() as network:
        async with channels_of(network, "alice", path) as alice:
            for name in ("one", "two"):
                await alice.open(name)
            await alice["two"].send(b"kept")
        content = path.read_bytes()
        broken = content.replace(b"1/sds/", b"1/sdt/")
        assert broken != content
        path.write_bytes(broken)
        async with channels_of(network, "alice", path) as alice:
            with pytest.raises(StoreCorruptError, match="'1/sdt/' is damaged"):
                await alice.open("one")
            with pytest.raises(ConfigurationError, match="is not open"):
                alice["one"]
            assert [bytes(message) for message in await (await alice.open("two")).history()] == [b"kept"]


def test_a_channel_of_many_takes_the_arguments_of_a_single_one():
    of_the_place = {"node", "channel_id", "sender_id", "content_topic", "store", "encoder", "decoder"}
    arguments = inspect.signature(fairway.create_reliable_channel).parameters.keys() - of_the_place
    assert SharedArguments.__optional_keys__ == arguments


@virtual_time()
async def test_arguments_that_cannot_work_are_refused(tmp_path):
    with LocalNetwork() as network:
        with pytest.raises(TypeError, match="unexpected keyword argument 'opinions'"):
            channels_of(network, "alice", tmp_path / "a.db", opinions=None)
        with pytest.raises(ConfigurationError, match=r"store must be .*give the path of a file"):
            channels_of(network, "alice", None)
        with pytest.raises(ConfigurationError, match=r"put \{channel\} into '/a/1/team/proto'"):
            fairway.Channels(network.node(), store="a.db", sender_id="alice", content_topic="/a/1/team/proto")
        async with channels_of(network, "alice", tmp_path / "a.db") as alice:
            await alice.open("team")
            with pytest.raises(ConfigurationError, match=r"pattern must be text, not NoneType; give .* room-\*"):
                alice.names(None)
            for backup in (alice.backup(None), alice["team"].backup(None)):
                with pytest.raises(ConfigurationError, match="path must be text or a PathLike, not NoneType"):
                    await backup
            with pytest.raises(StoreLockedError):
                await channels_of(network, "alice", tmp_path / "a.db").open("other")
        with pytest.raises(StoreMismatchError, match="sender 'alice', not 'bob'"):
            await channels_of(network, "bob", tmp_path / "a.db").open("team")
