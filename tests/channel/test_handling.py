"""When a message counts as handled, and what becomes of one that handlers cannot stand."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from dataclasses import replace

import pytest

from fairway.errors import ConfigurationError
from fairway.events import HandlerFailed, Limit, LimitReached, MessageReceived, MessageSetAside
from fairway.storage.memory_store import MemoryStore


@pytest.fixture(autouse=True)
def _quiet(caplog):
    caplog.set_level(logging.CRITICAL, logger="fairway.channel")


def _inbox_on_disk(path):
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT count(*) FROM inbox").fetchone()[0]
    finally:
        connection.close()


async def _next_message(events):
    async for event in events:
        if isinstance(event, MessageReceived):
            return event
    raise AssertionError("the events ended")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_message_that_is_finished_early_takes_no_later_one_along_over_stop_and_start(
    in_group_on_disk, tmp_path, kind
):
    async def scenario(group):
        store = MemoryStore() if kind == "memory" else tmp_path / "bob.db"
        alice, bob = await group.channel("alice"), await group.channel("bob", store=store)
        stream = bob.messages()
        await alice.send(b"one")
        bob.finish(await anext(stream))
        await bob.stop()
        await bob.start()
        await (await alice.send(b"two")).delivered()
        assert await group.take(stream, 1) == [b"two"]
        await bob.close()
        bob = await group.channel("bob", store=store)
        assert await group.take(bob.messages(), 1) == [b"two"]

    in_group_on_disk(scenario)


def test_a_message_from_before_a_stop_can_be_finished_after_the_start(in_group_on_disk, tmp_path):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob", store=tmp_path / "bob.db")
        events = bob.events()
        await alice.send(b"one")
        message = await _next_message(events)
        await bob.stop()
        await bob.start()
        bob.finish(message)
        assert bob.statistics().unfinished == 0

    in_group_on_disk(scenario)


def test_what_is_finished_while_the_channel_is_stopped_does_not_come_again(in_group_on_disk, tmp_path):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob", store=tmp_path / "bob.db")
        stream = bob.messages()
        await alice.send(b"one")
        message = await anext(stream)
        await bob.stop()
        bob.finish(message)
        await bob.start()
        await alice.send(b"two")
        assert await group.take(stream, 1) == [b"two"]
        assert bob.statistics().unfinished == 1

    in_group_on_disk(scenario)


def test_what_a_handler_finished_during_the_start_does_not_come_again(in_group_on_disk, tmp_path):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob", store=tmp_path / "bob.db")
        await (await alice.send(b"one")).delivered()
        await bob.close()
        heard = []
        for _ in range(2):
            bob = await group.channel(
                "bob", store=tmp_path / "bob.db", options=replace(group.options, auto_start=False)
            )
            bob.on(MessageReceived, lambda message: heard.append(message.payload))
            await bob.start()
            await bob.close()
        assert heard == [b"one"]

    in_group_on_disk(scenario)


def test_with_events_a_message_stays_on_disk_while_it_is_handled_over_any_number_of_starts(in_group_on_disk, tmp_path):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob", store=tmp_path / "bob.db")
        events = bob.events()
        await alice.send(b"one")
        for _ in range(3):
            assert (await _next_message(events)).payload == b"one"
            await group.until(lambda: not bob.statistics().uncommitted)
            assert _inbox_on_disk(tmp_path / "bob.db") == 1
            await bob.stop()
            await bob.start()
        assert (await _next_message(events)).payload == b"one"
        await (await alice.send(b"two")).delivered()
        assert (await _next_message(events)).payload == b"two"
        await group.until(lambda: not bob.statistics().uncommitted)
        assert _inbox_on_disk(tmp_path / "bob.db") == 1
        assert bob.statistics().unfinished == 1

    in_group_on_disk(scenario)


def test_events_that_wait_over_a_restart_bring_each_message_once(in_group):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob")
        events = bob.events()
        await (await alice.send(b"one")).delivered()
        await bob.stop()
        await bob.start()
        await (await alice.send(b"two")).delivered()
        assert [(await _next_message(events)).payload for _ in range(2)] == [b"one", b"two"]

    in_group(scenario)


def test_a_handler_that_ends_after_a_restart_does_not_finish_what_its_successor_handles(in_group):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob")
        begun, gates = [], [asyncio.Event(), asyncio.Event()]

        class Slow:
            def __call__(self, message):
                begun.append(message)
                return gates[len(begun) - 1].wait()

        bob.on(MessageReceived, Slow())
        await alice.send(b"one")
        await group.until(lambda: len(begun) == 1)
        await bob.stop()
        await bob.start()
        await group.until(lambda: len(begun) == 2)
        gates[0].set()
        await asyncio.sleep(0.02)
        assert bob.statistics().unfinished == 1
        gates[1].set()
        await group.until(lambda: bob.statistics().unfinished == 0)

    in_group(scenario)


def test_a_handler_that_raises_gets_the_message_again_in_the_same_life(in_group):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob")
        failing, steady = [], []

        async def fails_once(message):
            failing.append(message.payload)
            if len(failing) == 1:
                raise ValueError("the database is away")

        bob.on(MessageReceived, fails_once)
        bob.on(MessageReceived, lambda message: steady.append(message.payload))
        await alice.send(b"one")
        await group.until(lambda: bob.statistics().unfinished == 0 and len(failing) == 2)
        assert steady == [b"one"]
        assert bob.set_aside() == ()

    in_group(scenario, handling_retry_ms=5)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_messages_that_no_handler_can_stand_are_set_aside_and_stop_nothing(in_group_on_disk, tmp_path, kind):
    async def scenario(group):
        store = MemoryStore() if kind == "memory" else tmp_path / "bob.db"
        mallory, alice = await group.channel("mallory"), await group.channel("alice")
        bob = await group.channel("bob", store=store)
        handled, told, read = [], [], []
        # Who reads nothing takes in nothing when the inbox is full, acknowledgements neither.
        alice.on(MessageReceived, read.append)
        bob.on(MessageReceived, lambda message: handled.append(json.loads(message.payload)))
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
        bob = await group.channel("bob", store=store)
        assert bob.set_aside() == tuple(told)
        assert bob.statistics().unfinished == 0
        again = []
        bob.on(MessageReceived, again.append)
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

    in_group_on_disk(scenario, handling_retry_ms=5, max_unread_messages=4)


def test_attempts_are_counted_over_restarts(in_group_on_disk, tmp_path):
    async def scenario(group):
        alice = await group.channel("alice")
        options = replace(group.options, auto_start=False)
        failures, aside = [], []

        def refuse(_):
            raise ValueError("no")

        bob = await group.channel("bob", store=tmp_path / "bob.db", options=options)
        for life in range(1, 4):
            bob.on(MessageReceived, refuse)
            bob.on(HandlerFailed, failures.append)
            bob.on(MessageSetAside, aside.append)
            await bob.start()
            if life == 1:
                await (await alice.send(b"poison")).delivered()
            await group.until(lambda life=life: len(failures) == life)
            await group.until(lambda life=life: len(aside) == (life == 3))
            await bob.close()
            bob = await group.channel("bob", store=tmp_path / "bob.db", options=options)
        assert aside[0].attempts == 3

    in_group_on_disk(scenario, handling_retry_ms=3_600_000)


def test_what_is_set_aside_is_bounded_and_says_so(in_group):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob")
        limits = []

        def refuse(_):
            raise ValueError("no")

        bob.on(MessageReceived, refuse)
        bob.on(LimitReached, limits.append)
        for number in range(3):
            await alice.send(str(number).encode())
        await group.until(lambda: limits)
        assert limits == [LimitReached(limit=Limit.SET_ASIDE, bound=2)]
        assert len(bob.set_aside()) == 2

    in_group(scenario, max_handling_attempts=1, max_set_aside=2)


@pytest.mark.parametrize("reader", ["loop", "events", "handler"])
def test_a_message_that_cannot_be_handled_now_comes_again_later_and_others_meanwhile(in_group, reader):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob")
        loop, seen = asyncio.get_running_loop(), []

        def handle(message):
            seen.append((bytes(message), message.redelivered, round(loop.time())))
            if bytes(message) == b"one" and not message.redelivered:
                bob.hand_over_later(message, after_ms=30_000)
                bob.finish(message)  # what is handed over later stays

        async def read():
            async for message in bob.messages() if reader == "loop" else bob.events():
                if isinstance(message, MessageReceived):
                    handle(message)

        reading = asyncio.ensure_future(read()) if reader != "handler" else None
        if reading is None:
            bob.on(MessageReceived, handle)
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

    in_group(scenario)


def test_a_message_for_later_comes_at_the_next_start_if_that_is_earlier(in_group_on_disk, tmp_path):
    async def scenario(group):
        alice, bob = await group.channel("alice"), await group.channel("bob", store=tmp_path / "bob.db")
        await alice.send(b"one")
        async with bob.messages() as stream:
            bob.hand_over_later(await anext(stream), after_ms=3_600_000)
        await bob.close()
        bob = await group.channel("bob", store=tmp_path / "bob.db")
        again = await anext(bob.messages())
        assert (bytes(again), again.redelivered) == (b"one", True)
        bob.finish(again)
        with pytest.raises(ConfigurationError, match="not waiting to be finished"):
            bob.hand_over_later(again, after_ms=1)

    in_group_on_disk(scenario)
