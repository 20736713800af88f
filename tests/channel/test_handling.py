"""When a message is finished, and what happens to one on which the handler raises."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError
from fairway.events import HandlerFailed, Limit, LimitReached, MessageReceived, MessageSetAside
from fairway.options import Advanced, Receive
from fairway.storage.memory_store import MemoryStore
from fairway.storage.sqlite_store import SqliteStore
from groups import in_group
from listening import listen


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="fairway.channel")


async def _inbox_on_disk(channel, copy):
    """Return the number of messages in the inbox of a copy of a channel's store."""
    copy.unlink(missing_ok=True)
    await channel.backup(copy)
    store = SqliteStore(copy)
    stored = store.open(channel.channel_id, channel.sender_id, channel.content_topic)
    store.close()
    return len(stored.inbox)


async def _next_message(events):
    async for event in events:
        if isinstance(event, MessageReceived):
            return event
    raise AssertionError("the events ended")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@in_group(on_disk=True)
async def test_finishing_a_message_early_finishes_no_later_one(group, tmp_path, kind):
    store = MemoryStore() if kind == "memory" else tmp_path / "bob.db"
    alice, bob = await group.channel("alice"), await group.channel("bob", store=store)
    stream = aiter(bob)
    await alice.send(b"one")
    bob.finish(await anext(stream))
    await bob.stop()
    await bob.start()
    await (await alice.send(b"two")).delivered()
    assert await group.take(stream, 1) == [b"two"]
    await bob.close()
    bob = await group.channel("bob", store=store)
    assert await group.take(aiter(bob), 1) == [b"two"]


@in_group(on_disk=True)
async def test_a_message_finished_while_the_channel_is_stopped_is_not_handed_over_again(group, tmp_path):
    alice, bob = await group.channel("alice"), await group.channel("bob", store=tmp_path / "bob.db")
    stream = aiter(bob)
    await alice.send(b"one")
    message = await anext(stream)
    await bob.stop()
    bob.finish(message)
    await bob.start()
    await alice.send(b"two")
    assert await group.take(stream, 1) == [b"two"]
    assert bob.statistics().unfinished == 1


@in_group(on_disk=True)
async def test_a_message_that_the_loop_over_events_has_not_finished_stays_on_disk_over_restarts(group, tmp_path):
    alice, bob = (
        await group.channel("alice"),
        await group.channel("bob", store=tmp_path / "bob.db", receive=Receive.EVENTS),
    )
    events = bob.events()
    await alice.send(b"one")
    for _ in range(3):
        assert (await _next_message(events)).payload == b"one"
        assert await _inbox_on_disk(bob, tmp_path / "copy.db") == 1
        await bob.stop()
        await bob.start()
    assert (await _next_message(events)).payload == b"one"
    await (await alice.send(b"two")).delivered()
    assert (await _next_message(events)).payload == b"two"
    assert await _inbox_on_disk(bob, tmp_path / "copy.db") == 1
    assert bob.statistics().unfinished == 1


@in_group()
async def test_a_handler_that_still_has_a_message_after_a_restart_gets_it_once(group):
    begun, gate = [], asyncio.Event()

    async def slow(message):
        begun.append(message.payload)
        await gate.wait()

    alice, bob = await group.channel("alice"), await group.channel("bob", receive=slow)
    await alice.send(b"one")
    await group.until(lambda: begun)
    await bob.stop()
    await bob.start()
    await (await alice.send(b"two")).delivered()
    assert (begun, bob.statistics().unfinished) == ([b"one"], 2)
    gate.set()
    await group.until(lambda: bob.statistics().unfinished == 0)
    assert begun == [b"one", b"two"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@in_group(on_disk=True, advanced=Advanced(handling_retry_ms=5), max_unread_messages=4)
async def test_messages_on_which_the_handler_always_raises_are_set_aside(group, tmp_path, kind):
    store = MemoryStore() if kind == "memory" else tmp_path / "bob.db"
    mallory, alice = await group.channel("mallory"), await group.channel("alice")
    handled, told, read = [], [], []
    bob = await group.channel("bob", store=store, receive=lambda message: handled.append(json.loads(message.payload)))
    # A full inbox takes no messages, and so no acknowledgements.
    listen(alice, read.append)
    bob.on("message-set-aside", told.append)
    for number in range(4):
        await mallory.send(b"no json %d" % number)
    await (await alice.send(b'{"a": 1}')).delivered()
    await group.until(lambda: handled == [{"a": 1}] and len(told) == 4)
    assert bob.statistics().unfinished == 0
    assert bob.set_aside() == tuple(told)
    assert {(each.sender_id, each.attempts) for each in told} == {("mallory", 3)}
    assert all("JSONDecodeError" in each.error for each in told)

    await bob.close()
    again = []
    bob = await group.channel("bob", store=store, receive=again.append)
    assert bob.set_aside() == tuple(told)
    assert bob.statistics().unfinished == 0
    await asyncio.sleep(0)
    bob.hand_over_again(told[2])
    assert [(message.payload, message.redelivered) for message in again] == [(b"no json 2", True)]
    bob.finish(told[0])
    for gone in (told[0], told[2]):
        with pytest.raises(ConfigurationError, match="not set aside"):
            bob.hand_over_again(gone)
    await bob.close()
    bob = await group.channel("bob", store=store)
    assert bob.set_aside() == (told[1], told[3])
    assert bob.statistics().unfinished == 0


@in_group(on_disk=True, advanced=Advanced(handling_retry_ms=3_600_000))
async def test_attempts_are_counted_over_restarts(group, tmp_path):
    alice = await group.channel("alice")
    options = replace(group.options, auto_start=False)
    failures, aside = [], []

    def refuse(_):
        raise ValueError("no")

    bob = await group.channel("bob", store=tmp_path / "bob.db", options=options, receive=refuse)
    for life in range(1, 4):
        bob.on(HandlerFailed, failures.append)
        bob.on(MessageSetAside, aside.append)
        await bob.start()
        if life == 1:
            await (await alice.send(b"poison")).delivered()
        await group.until(lambda life=life: len(failures) == life)
        await group.until(lambda life=life: len(aside) == (life == 3))
        await bob.close()
        bob = await group.channel("bob", store=tmp_path / "bob.db", options=options, receive=refuse)
    assert aside[0].attempts == 3


@in_group(max_handling_attempts=1, advanced=Advanced(max_set_aside=2))
async def test_the_messages_set_aside_are_bounded(group):
    limits = []

    def refuse(_):
        raise ValueError("no")

    alice, bob = await group.channel("alice"), await group.channel("bob", receive=refuse)
    bob.on(LimitReached, limits.append)
    for number in range(3):
        await alice.send(str(number).encode())
    await group.until(lambda: limits)
    assert limits == [LimitReached(limit=Limit.SET_ASIDE, bound=2)]
    assert len(bob.set_aside()) == 2


@pytest.mark.parametrize("reader", ["loop", "events", "handler"])
@in_group()
async def test_a_message_for_later_is_handed_over_again_and_others_meanwhile(group, reader):
    loop, seen = asyncio.get_running_loop(), []

    def handle(message):
        seen.append((bytes(message), message.redelivered, round(loop.time())))
        if bytes(message) == b"one" and not message.redelivered:
            bob.hand_over_later(message, after_ms=30_000)
            bob.finish(message)  # a message for later stays

    async def read():
        async for message in bob if reader == "loop" else bob.events():
            if isinstance(message, MessageReceived):
                handle(message)

    receive = {"loop": Receive.LOOP, "events": Receive.EVENTS, "handler": handle}[reader]
    alice, bob = await group.channel("alice"), await group.channel("bob", receive=receive)
    reading = asyncio.ensure_future(read()) if reader != "handler" else None
    begun = round(loop.time())
    for payload in (b"one", b"two"):
        await alice.send(payload)
    await asyncio.sleep(20)
    assert [(each[0], each[1]) for each in seen] == [(b"one", False), (b"two", False)]
    assert bob.statistics().unfinished == 1
    await asyncio.sleep(20)
    assert [(each[0], each[1]) for each in seen[2:]] == [(b"one", True)]
    assert seen[2][2] - begun >= 30
    if reading is not None:
        reading.cancel()


@in_group(on_disk=True)
async def test_a_message_for_later_is_handed_over_at_the_next_start_if_that_is_earlier(group, tmp_path):
    alice, bob = await group.channel("alice"), await group.channel("bob", store=tmp_path / "bob.db")
    await alice.send(b"one")
    bob.hand_over_later(await anext(aiter(bob)), after_ms=3_600_000)
    await bob.close()
    bob = await group.channel("bob", store=tmp_path / "bob.db")
    again = await anext(aiter(bob))
    assert (bytes(again), again.redelivered) == (b"one", True)
    bob.finish(again)
    with pytest.raises(ConfigurationError, match="not waiting to be finished"):
        bob.hand_over_later(again, after_ms=1)


@in_group()
async def test_a_channel_refuses_another_way_to_receive_than_its_own(group):
    by_loop = await group.channel("alice")
    by_handler = await group.channel("bob", receive=print)
    by_events = await group.channel("carol", receive=Receive.EVENTS)
    for channel in (by_loop, by_handler, by_events):
        with pytest.raises(ConfigurationError, match=r"create_reliable_channel\(receive=...\)"):
            channel.on(MessageReceived, print)
    for channel, way in ((by_handler, "its handler"), (by_events, r"events\(\)")):
        with pytest.raises(ConfigurationError, match=f"receives by {way}"):
            aiter(channel)
    with pytest.raises(ConfigurationError, match="receive must be a function of a message"):
        await group.channel("dave", receive="events")


@pytest.mark.parametrize("receive", ["loop", "handler"])
@in_group()
async def test_a_loop_over_events_shows_messages_and_finishes_none_that_another_reader_gets(group, receive):
    gate = asyncio.Event()
    way = Receive.LOOP if receive == "loop" else lambda _: gate.wait()
    alice, bob = await group.channel("alice"), await group.channel("bob", receive=way)
    events = bob.events()
    for payload in (b"one", b"two"):
        await (await alice.send(payload)).delivered()
        assert (await _next_message(events)).payload == payload
    assert bob.statistics().unfinished == 2
    gate.set()
    if receive == "loop":
        assert await group.take(aiter(bob), 2) == [b"one", b"two"]
    else:
        await group.until(lambda: bob.statistics().unfinished == 0)


@in_group()
async def test_ephemeral_messages_for_a_loop_that_does_not_run_take_bounded_room(group):
    alice, bob = await group.channel("alice"), await group.channel("bob")
    for number in range(1_010):
        await alice.send_ephemeral(b"%d" % number)
    await asyncio.sleep(10)
    messages = aiter(bob)
    assert await group.take(messages, 1_000) == [b"%d" % number for number in range(1_000)]
    await alice.send_ephemeral(b"later")
    assert await group.take(messages, 1) == [b"later"]
