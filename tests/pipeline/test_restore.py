"""A store out of an archive: the live channel goes on from it as though it had been there."""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from functools import partial

import pytest

from listening import listen
from patience import PATIENCE_S

pytest.importorskip("pyarrow")

from typer.testing import CliRunner

from fairway.archives.restore import restore
from fairway.channel.creation import create_reliable_channel
from fairway.cli.pipeline import app
from fairway.errors import ConfigurationError
from fairway.events import MessageReceived
from fairway.nodes.local import LocalNetwork, NetworkFaults
from fairway.nodes.node import RoutedMessage
from fairway.options import Profile, ReliableChannelOptions, SdsConfig
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.run.reading import RunTables
from fairway.protocol.encryption import AesGcm
from fairway.storage.sqlite_store import SqliteStore
from fairway.testing import run
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash
from run_tables import write_run

TOPIC = "/fairway/1/harbour/proto"
SHARD = autoshard(TOPIC, 1, 8)
KEY = bytes(range(32))


@dataclass
class Talk:
    """A talk of alice, bob and carol over a bad network, in which everything arrived."""

    archived: list
    """Message hash and WakuMessage of everything that was sent."""
    received: dict
    """What each of them received, in order."""
    history: dict
    """The length of the log of each."""


def take(payloads: list[bytes], message: MessageReceived) -> None:
    payloads.append(message.payload)


def a_talk(encryption=None):
    async def scenario():
        async with AsyncExitStack() as talkers:
            network = talkers.enter_context(LocalNetwork(NetworkFaults(loss=0.3), seed=3))
            channels, received = {}, {}
            for name in ("alice", "bob", "carol"):
                opening = create_reliable_channel(network.node(), "harbour", name, TOPIC, encryption=encryption)
                channels[name] = await talkers.enter_async_context(opening)
                received[name] = []
                listen(channels[name], partial(take, received[name]))
            for number in range(8):
                for name, channel in channels.items():
                    await channel.send(f"{name} {number}".encode() if number else name.encode() * 60_000)
                    await asyncio.sleep(2)
            await asyncio.sleep(3_600)
            history = {name: channel.statistics().protocol.history for name, channel in channels.items()}
            return Talk([(kept.message_hash, kept.message) for kept in network.stored()], received, history)

    return run(scenario(), seed=3)


def run_folder(path, messages):
    """Write a run folder with the messages, for restoring to read."""
    rows = [
        {
            "message_hash": message_hash,
            "content_topic": message.content_topic,
            "payload": message.payload,
            "version": message.version or 0,
            "timestamp_ns": message.timestamp_ns,
            "meta": message.meta,
            "channel_id": "harbour",
            "sources": ["store"],
        }
        for message_hash, message in messages
    ]
    return RunTables(write_run(path, {"waku_messages": rows, "sds_messages": rows}))


@pytest.fixture(scope="module")
def talk():
    return a_talk()


@pytest.fixture(scope="module")
def sealed_talk():
    return a_talk(AesGcm(KEY))


@pytest.fixture
def tables(talk, tmp_path):
    return run_folder(tmp_path / "run", talk.archived)


def live(scenario, stored=()):
    """Run a scenario in a network whose store has some messages."""

    async def bounded():
        async with asyncio.timeout(PATIENCE_S):
            with LocalNetwork() as network:
                async with network.node() as author:
                    for _, message in stored:
                        await author.send(RoutedMessage.of(SHARD, message))
                await scenario(network)

    asyncio.run(bounded())


@pytest.mark.parametrize(("window", "held_bytes"), [(1, 1), (7, 2_000), (7, 2**30)])
def test_windows_of_any_size_give_the_same_store(talk, tables, tmp_path, monkeypatch, window, held_bytes):
    whole = restore(tables, tmp_path / "whole.db", channel_id="harbour", sender_id="dave")
    monkeypatch.setattr("fairway.archives.restore.WINDOW_MESSAGES", window)
    monkeypatch.setattr("fairway.pipeline.run.reading.TABLE_BYTES", held_bytes)
    shuffled = run_folder(tmp_path / "shuffled", random.Random(1).sample(talk.archived, len(talk.archived)))
    assert restore(shuffled, tmp_path / "dave.db", channel_id="harbour", sender_id="dave") == whole
    assert whole.delivered == 24


def test_whoever_was_away_reads_everything_in_order_and_talks_on(talk, tables, tmp_path):
    done = restore(tables, tmp_path / "dave.db", channel_id="harbour", sender_id="dave")
    assert (done.delivered, done.missing, done.parked) == (24, 0, 0)
    assert done.messages == len(talk.archived)
    restore(tables, tmp_path / "erin.db", channel_id="harbour", sender_id="erin", as_read=True)

    async def scenario(network):
        options = ReliableChannelOptions(sync_min_interval_ms=100)
        dave, erin = [
            await create_reliable_channel(
                network.node(), "harbour", name, TOPIC, store=tmp_path / f"{name}.db", options=options
            )
            for name in ("dave", "erin")
        ]
        async with dave, erin:
            stream = aiter(dave)
            got = [await anext(stream) for _ in range(24)]
            assert {message.payload for message in got} == {
                *talk.received["alice"],
                *talk.received["bob"],
            }
            assert [m.payload for m in got if m.sender_id == "alice"][1:] == [
                f"alice {n}".encode() for n in range(1, 8)
            ]
            receipt = await dave.send(b"I have read it all")
            assert dave.statistics().protocol.history > 24, "what was restored is the log that he goes on with"
            await receipt.sent()
            assert (await anext(aiter(erin))).payload == b"I have read it all"

    live(scenario)


def test_a_lost_store_comes_back_with_ones_own_messages_in_the_log(talk, tables, tmp_path):
    done = restore(tables, tmp_path / "alice.db", channel_id="harbour", sender_id="alice", as_read=True)
    assert done.delivered == 16
    assert done.history == talk.history["alice"]

    async def scenario(network):
        async with await create_reliable_channel(
            network.node(), "harbour", "alice", TOPIC, store=tmp_path / "alice.db"
        ) as alice:
            assert alice.statistics().unfinished == 0
            assert len(await alice.history()) == 16

    live(scenario)


def with_a_gap(talk, tmp_path):
    """Restore dave's store from an archive that lacks a message of bob's; return what came of it and that message."""
    decoded = {message_hash: WAKU_SDS.decode(message.payload) for message_hash, message in talk.archived}
    lost_id = next(sds.message_id for sds in decoded.values() if sds.content and sds.content.endswith(b"bob 1"))
    kept = [entry for entry in talk.archived if decoded[entry[0]].message_id != lost_id]
    done = restore(run_folder(tmp_path / "run", kept), tmp_path / "dave.db", channel_id="harbour", sender_id="dave")
    assert done.missing == 1
    assert done.parked > 0
    return done, next(entry for entry in talk.archived if decoded[entry[0]].message_id == lost_id)


def test_what_waits_for_a_gap_is_delivered_when_a_store_of_the_network_fills_it(talk, tmp_path):
    _, lost = with_a_gap(talk, tmp_path)

    async def scenario(network):
        options = ReliableChannelOptions(retrieve_frequency_ms=100)
        async with await create_reliable_channel(
            network.node(), "harbour", "dave", TOPIC, store=tmp_path / "dave.db", options=options
        ) as dave:
            stream = aiter(dave)
            got = [(await anext(stream)).payload for _ in range(24)]
            assert sorted(got) == sorted({*talk.received["alice"], *talk.received["bob"]})
            assert dave.statistics().protocol.parked == 0
            assert dave.statistics().protocol.missing == 0

    live(scenario, [lost])


def test_the_command_tells_how_many_wait_for_how_many_and_what_comes_next(talk, tmp_path):
    done, _ = with_a_gap(talk, tmp_path)
    words = ["restore", str(tmp_path / "run"), "--channel", "harbour", "--sender", "erin"]
    words += ["--channel-topic", f"harbour={TOPIC}", "--channel-topic", "other=/fairway/1/other/proto"]
    told = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "erin.db")])
    assert told.exit_code == 0, told.output
    first, last = told.output.splitlines()
    assert f"{done.delivered} messages of others to read" in first
    assert last.startswith(f"waiting: {done.parked} messages, for 1 that the archive lacks")
    assert last.endswith("given them up after 1 h online")


def test_what_waits_for_a_gap_that_nobody_fills_is_delivered_when_that_is_given_up(talk, tmp_path):
    done, _ = with_a_gap(talk, tmp_path)

    async def scenario(network):
        options = ReliableChannelOptions(sds=SdsConfig(lost_timeout_ms=300), sweep_in_buf_interval_ms=50)
        async with await create_reliable_channel(
            network.node(), "harbour", "dave", TOPIC, store=tmp_path / "dave.db", options=options
        ) as dave:
            assert dave.statistics().protocol.parked == done.parked, "the time starts anew with the channel"
            stream = aiter(dave)
            got = [(await anext(stream)).payload for _ in range(23)]
            assert b"bob 1" not in got
            assert dave.statistics().protocol.parked == 0

    live(scenario)


def test_around_gaps_everything_else_is_there_at_once_and_what_is_left_out_is_said(talk, tmp_path):
    _, (lost_hash, lost) = with_a_gap(talk, tmp_path)
    lost_id = WAKU_SDS.decode(lost.payload).message_id
    words = ["restore", str(tmp_path / "run"), "--channel", "harbour", "--sender", "erin", "--around-gaps"]
    told = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "erin.db")])
    assert told.exit_code == 0, told.output
    assert "23 messages of others to read" in told.output
    assert "1 left out" in told.output
    assert told.output.splitlines()[-1] == f"  {lost_id} by bob"
    words[words.index("erin")] = "frank"
    told = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "frank.db"), "--json"])
    done = json.loads(told.stdout)
    assert done["left_out"] == [{"message_id": lost_id, "sender_id": "bob"}]
    assert (done["parked"], done["missing"], done["delivered"], done["no_room"]) == (0, 1, 23, 0)
    with closing(SqliteStore(tmp_path / "frank.db")) as store:
        inbox = [message for _, message in store.open("harbour", "frank", TOPIC).inbox]
    unmet = [message for message in inbox if not message.dependencies_met]
    assert len(unmet) == done["around_gaps"] > 0
    assert all(lost_id not in message.sds_ids for message in inbox)
    assert [m.payload for m in inbox if m.sender_id == "alice"][1:] == [f"alice {n}".encode() for n in range(1, 8)]

    async def scenario(network):
        options = ReliableChannelOptions(retrieve_frequency_ms=100)
        async with await create_reliable_channel(
            network.node(), "harbour", "erin", TOPIC, store=tmp_path / "erin.db", options=options
        ) as erin:
            stream = aiter(erin)
            got = [(await anext(stream)).payload for _ in range(24)]
            assert got[-1] == b"bob 1", "what was left out is still asked for, and comes last"
            assert erin.statistics().protocol.missing == 0

    live(scenario, [(lost_hash, lost)])


def test_around_gaps_nothing_is_left_out_of_a_whole_archive(talk, tmp_path):
    run_folder(tmp_path / "run", talk.archived)
    words = ["restore", str(tmp_path / "run"), "--channel", "harbour", "--sender", "erin", "--around-gaps"]
    told = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "erin.db")])
    assert told.output.splitlines()[-1] == "nothing is left out: the archive has all messages that others cite"


@pytest.mark.full
def test_a_gap_at_the_beginning_of_a_long_channel_leaves_no_message_without_room(tmp_path):
    """Without going around it, most of the channel would have to wait, and the buffer of a participant is bounded."""
    said, newest = [], HistoryEntry("0" * 64, None, "alice")
    for number in range(2_500):
        time_ns = (1_700_000_000_000 + 1_000 * number) * 1_000_000
        sds = SdsMessage(
            message_id=f"{number:064x}",
            sender_id="alice",
            channel_id="harbour",
            lamport_timestamp=time_ns // 1_000_000,
            causal_history=(newest,) if number else (),
            content=b"%d" % number,
        )
        newest = HistoryEntry(sds.message_id, None, "alice")
        message = WakuMessage(payload=WAKU_SDS.encode(sds), content_topic=TOPIC, timestamp_ns=time_ns)
        said.append((message_hash(SHARD, message), message))
    tables = run_folder(tmp_path / "run", said[1:])
    options = ReliableChannelOptions(sds=SdsConfig(max_incoming_buffer=2_200))
    named = {"channel_id": "harbour", "options": options}
    done = restore(tables, tmp_path / "a.db", sender_id="bob", around_gaps=True, **named)
    assert (done.delivered, done.around_gaps, done.no_room, done.parked) == (2_499, 1, 0, 0)
    waits = restore(tables, tmp_path / "b.db", sender_id="bob", **named)
    assert (waits.delivered, waits.around_gaps, waits.left_out) == (0, 0, ())
    assert waits.parked + waits.no_room == 2_499
    assert waits.no_room > 0


def test_a_encrypted_channel_is_opened_with_the_key_file(sealed_talk, tmp_path):
    tables = run_folder(tmp_path / "run", sealed_talk.archived)
    keys = ChannelKeys.from_mapping({"harbour": {"cipher": "aes-256-gcm", "key": KEY.hex()}})
    done = restore(tables, tmp_path / "dave.db", channel_id="harbour", sender_id="dave", keys=keys)
    assert done.delivered == 24
    assert done.refused == 0
    assert restore(tables, tmp_path / "eve.db", channel_id="harbour", sender_id="eve").delivered == 0


def forged(timestamp_ns, cipher=None, **more):
    """Return a message under alice's name, in clear unless a cipher encrypts it."""
    said = SdsMessage(
        message_id="f" * 64,
        sender_id="alice",
        channel_id="harbour",
        lamport_timestamp=timestamp_ns // 1_000_000,
        content=b"forged",
    )
    payload = WAKU_SDS.encode(said) if cipher is None else cipher.encrypt(WAKU_SDS.encode(said))
    message = WakuMessage(payload=payload, content_topic=TOPIC, timestamp_ns=timestamp_ns, **more)
    return message_hash(SHARD, message), message


@pytest.mark.parametrize("named", ["harbour", TOPIC])
@pytest.mark.parametrize("cipher", [None, AesGcm(bytes(32))], ids=["in clear", "under another key"])
def test_with_keys_nothing_is_restored_that_they_did_not_open(sealed_talk, tmp_path, named, cipher):
    encrypted = sealed_talk.archived
    first, last = encrypted[0][1].timestamp_ns, encrypted[-1][1].timestamp_ns
    strangers = [
        forged(first - 1, cipher, meta=Profile.LOGOS.marker),  # its marker does not tell the channel's profile
        forged(first + 1, cipher),
        forged(2**62, cipher),  # the time until then does not count as caught up
    ]
    tables = run_folder(tmp_path / "run", [*encrypted, *strangers])
    entries = {named: {"cipher": "aes-256-gcm", "key": KEY.hex()}, "other": {"cipher": "aes-256-gcm", "key": "00" * 32}}
    (tmp_path / "keys.json").write_text(json.dumps(entries), encoding="utf-8")
    words = ["restore", str(tables.place), "--channel", "harbour", "--sender", "dave"]
    words += ["--store", str(tmp_path / "d.db")]
    told = CliRunner().invoke(app, [*words, "--keys", str(tmp_path / "keys.json")])
    assert told.exit_code == 0, told.output
    assert "3 of these refused: the channel's keys do not open them" in told.output
    with closing(SqliteStore(tmp_path / "d.db")) as store:
        inbox = [message.payload for _, message in store.open("harbour", "dave", TOPIC).inbox]
    assert len(inbox) == 24
    assert b"forged" not in inbox
    done = restore(
        tables, tmp_path / "e.db", channel_id="harbour", sender_id="e", keys=ChannelKeys.from_mapping(entries)
    )
    assert (done.refused, done.caught_up_to_ns) == (3, last)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"elsewhere": {"cipher": "aes-256-gcm", "key": KEY.hex()}}, "no key for the channel 'harbour'"),
        ({"harbour": {"cipher": "aes-256-gcm", "key": "00" * 32}}, "none of the .* opens with the key of 'harbour'"),
    ],
)
def test_keys_that_open_nothing_are_refused(tables, tmp_path, entries, text):
    with pytest.raises(ConfigurationError, match=text):
        restore(
            tables,
            tmp_path / "dave.db",
            channel_id="harbour",
            sender_id="dave",
            keys=ChannelKeys.from_mapping(entries),
        )
    assert not (tmp_path / "dave.db").exists()


def test_a_message_from_the_future_does_not_end_the_time_that_is_asked_for(talk, tmp_path):
    tables = run_folder(tmp_path / "run", [*talk.archived, forged(2**62)])
    done = restore(tables, tmp_path / "dave.db", channel_id="harbour", sender_id="dave")
    assert done.caught_up_to_ns <= time.time_ns()


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"channel_id": "elsewhere"}, "no channel 'elsewhere'"),
        ({"content_topic": "/fairway/1/other/proto"}, "nothing on"),
        ({"store": "there.db"}, "there already"),
    ],
)
def test_what_cannot_be_restored_is_refused_and_nothing_is_left(tables, tmp_path, wanted, text):
    (tmp_path / "there.db").write_bytes(b"")
    before = set(tmp_path.iterdir())
    store = tmp_path / wanted.pop("store", "new.db")
    with pytest.raises(ConfigurationError, match=text):
        restore(tables, store, **{"channel_id": "harbour", "sender_id": "dave", **wanted})
    assert set(tmp_path.iterdir()) == before
