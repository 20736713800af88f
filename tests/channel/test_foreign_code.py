"""Handlers, ciphers, nodes and stores that raise what is no `Exception`: the channel goes on, or says why not."""

from __future__ import annotations

import asyncio
import logging

import pytest

from fairway.errors import ForeignCodeError, NodeUnavailableError, StorageError
from fairway.nodes.local import LocalNetwork
from fairway.storage.memory_store import MemoryStore
from fairway.testing import virtual_time
from groups import in_group, run_in_group
from listening import join


class ControlFlow(BaseException):
    """An exception that no ``except Exception`` catches, such as those by which test frameworks end a test."""


def cancelled_future():
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    return future


async def await_what_was_cancelled():
    await cancelled_future()


async def cancel_this_task():
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


def awaits(error):
    async def fail():
        await asyncio.sleep(0)
        raise error

    return fail


def raises(error):
    def fail():
        raise error

    return fail


SYNCHRONOUS = {
    "an ordinary error": raises(ValueError("unforeseen")),
    "the result of what was cancelled": lambda: cancelled_future().result(),
    "GeneratorExit": raises(GeneratorExit()),
    "StopIteration": raises(StopIteration()),
    "control flow": raises(ControlFlow("over")),
}
ASYNCHRONOUS = {
    "an awaited error": awaits(ValueError("unforeseen")),
    "an await of what was cancelled": await_what_was_cancelled,
    "a cancellation of the task that calls": cancel_this_task,
    "an awaited StopAsyncIteration": awaits(StopAsyncIteration()),
    "an awaited GeneratorExit": awaits(GeneratorExit()),
    "awaited control flow": awaits(ControlFlow("over")),
}


def second_call(fail):
    """Return a function that fails at its second call, and the list of its arguments."""
    called = []

    def work(argument):
        called.append(argument)
        return fail() if len(called) == 2 else None

    return work, called


def as_plain(work):
    return work


def as_coroutine_function(work):
    async def handler(argument):
        result = work(argument)
        if result is not None:
            await result

    return handler


def as_task(work):
    """Return a plain function that returns a task of the application."""
    handler = as_coroutine_function(work)
    return lambda argument: asyncio.ensure_future(handler(argument))


HANDLERS = [(as_plain, fail) for fail in SYNCHRONOUS] + [
    (kind, fail) for fail in (*SYNCHRONOUS, *ASYNCHRONOUS) for kind in (as_coroutine_function, as_task)
]


@pytest.mark.parametrize(
    ("kind", "failure"),
    # A coroutine cannot raise StopIteration: Python makes a RuntimeError of it.
    [each for each in HANDLERS if each[1] != "StopIteration" or each[0] is as_plain],
)
def test_a_handler_may_raise_anything_and_gets_the_message_again(caplog, kind, failure):
    caplog.set_level(logging.CRITICAL, logger="fairway.channel")

    async def scenario(group):
        work, called = second_call((SYNCHRONOUS | ASYNCHRONOUS)[failure])
        alice, bob, failed = await group.channel("alice"), await group.channel("bob", receive=kind(work)), []
        bob.on("handler-failed", failed.append)
        sent = [b"%d" % number for number in range(6)]
        for payload in sent:
            await alice.send(payload)
        await group.until(lambda: len(called) == 7 and bob.statistics().unfinished == 0)
        assert sorted(bytes(message) for message in called) == sorted([*sent, b"1"])
        assert len(failed) == 1
        assert bob.is_started()

    run_in_group(scenario, max_unread_messages=3)


@pytest.mark.parametrize("failure", [*SYNCHRONOUS, *ASYNCHRONOUS])
def test_an_event_handler_may_raise_anything_and_gets_the_next_events(caplog, failure):
    caplog.set_level(logging.CRITICAL, logger="fairway.channel")

    async def scenario(group):
        alice = await group.channel("alice")
        work, called = second_call((SYNCHRONOUS | ASYNCHRONOUS)[failure])
        alice.on("message-sent", work)
        for number in range(4):
            await (await alice.send(b"%d" % number)).sent()
        await group.until(lambda: len(called) == 4 and alice.statistics().handler_failures == 1)

    run_in_group(scenario, sync_min_interval_ms=0)


class FailsOnce:
    """A cipher that hides nothing and fails at the second call of one of its methods."""

    def __init__(self, method, fail):
        self._method, self._fail, self._calls = method, fail, 0

    def encrypt(self, plaintext):
        return self._do("encrypt", plaintext)

    def decrypt(self, ciphertext):
        return self._do("decrypt", ciphertext)

    def _do(self, method, data):
        self._calls += method == self._method
        if method == self._method and self._calls == 2:
            return self._fail()
        return data


class AwaitedCipher(FailsOnce):
    """The same with methods that are awaited."""

    async def encrypt(self, plaintext):
        return await self._done("encrypt", plaintext)

    async def decrypt(self, ciphertext):
        return await self._done("decrypt", ciphertext)

    async def _done(self, method, data):
        result = self._do(method, data)
        return data if result is data else await result


CIPHERS = [(FailsOnce, fail) for fail in SYNCHRONOUS.values()]
CIPHERS += [(AwaitedCipher, fail) for fail in ASYNCHRONOUS.values()]
NAMES = [*SYNCHRONOUS, *ASYNCHRONOUS]


@pytest.mark.parametrize(("kind", "fail"), CIPHERS, ids=NAMES)
@in_group(sync_min_interval_ms=0)
async def test_encrypt_may_raise_anything_and_fails_only_its_own_send(group, kind, fail):
    alice = await group.channel("alice", encryption=kind("encrypt", fail))
    bob = await group.channel("bob", encryption=kind("", fail))
    failed = []
    alice.on("delivery-error", failed.append)
    receipts = [await alice.send(b"%d" % number) for number in range(4)]
    assert await group.take(aiter(bob), 3) == [b"0", b"2", b"3"]
    assert [event.request_id for event in failed] == [receipts[1].request_id]


@pytest.mark.parametrize(("kind", "fail"), CIPHERS, ids=NAMES)
@in_group()
async def test_decrypt_may_raise_anything_and_the_message_arrives_with_a_retransmission(group, kind, fail):
    alice = await group.channel("alice", encryption=kind("", fail))
    bob = await group.channel("bob", encryption=kind("decrypt", fail))
    for number in range(4):
        await alice.send(b"%d" % number)
    assert await group.take(aiter(bob), 4) == [b"0", b"1", b"2", b"3"]


class Moody(LocalNetwork):
    """A network of which every second answer to a node is an exception."""

    def __init__(self, error):
        super().__init__()
        self._error = error
        self._is_good = True

    def publish(self, publisher, message):
        self._turn()
        return super().publish(publisher, message)

    def answer(self, asker, query, cursor):
        self._turn()
        return super().answer(asker, query, cursor)

    def _turn(self):
        self._is_good = not self._is_good
        if not self._is_good:
            raise self._error


@pytest.mark.parametrize(
    "error", [asyncio.CancelledError(), GeneratorExit(), ControlFlow("over"), KeyError("x")], ids=repr
)
@virtual_time()
async def test_a_node_may_raise_anything_and_fails_only_that_request(error, caplog):
    caplog.set_level(logging.CRITICAL, logger="fairway.channel")
    with Moody(error) as network:
        alice = await join(network, "alice")
        for number in range(4):
            await (await alice.send(b"%d" % number)).sent()
        # He was away, and has to ask the store.
        async with join(network, "bob") as bob:
            stream = aiter(bob)
            assert [bytes(await anext(stream)) for _ in range(4)] == [b"0", b"1", b"2", b"3"]
            assert bob.statistics().store_failures > 0
        await alice.close()


@virtual_time()
async def test_a_channel_whose_connected_node_ends_its_subscription_has_failed(caplog, monkeypatch):
    caplog.set_level(logging.ERROR, logger="fairway.channel")
    with LocalNetwork() as network:
        node = network.node("alice")
        ended, subscribe = [], node.subscribe

        async def remember(*arguments):
            ended.append(await subscribe(*arguments))
            return ended[-1]

        monkeypatch.setattr(node, "subscribe", remember)
        async with join(network, "alice") as alice:
            ended[0].close()
            await asyncio.sleep(1)
            assert not alice.is_started()
            with pytest.raises(NodeUnavailableError, match="ended the subscription"):
                await alice.send(b"hello")
            assert "channel harbour has failed" in caplog.text
            await alice.start()
            await (await alice.send(b"hello")).sent()


@virtual_time()
async def test_a_channel_whose_tasks_other_code_cancels_has_failed_and_can_be_started_again(caplog):
    caplog.set_level(logging.ERROR, logger="fairway.channel")
    with LocalNetwork() as network:
        async with join(network, "alice") as alice:
            receipt = await alice.send(b"hello")
            waiting = asyncio.ensure_future(receipt.delivered())
            await asyncio.sleep(1)
            for task in asyncio.all_tasks() - {asyncio.current_task(), waiting}:
                task.cancel()
            with pytest.raises(ForeignCodeError, match="other code cancelled its task"):
                await waiting
            assert not alice.is_started()
            assert "channel harbour has failed" in caplog.text
            await alice.start()
            bob = await join(network, "bob")
            await alice.receipt(receipt.request_id).delivered()
            await bob.close()


class RaisingStore(MemoryStore):
    """A store whose ``submit`` raises from a moment on."""

    error = None

    def submit(self, write, done, *, hurry=True):
        if self.error is not None:
            raise self.error
        super().submit(write, done)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyError("x"), StopIteration()], ids=repr)
def test_a_store_may_raise_anything_and_fails_the_channel(caplog, error):
    caplog.set_level(logging.CRITICAL, logger="fairway.channel")

    async def scenario(group):
        store = RaisingStore()
        alice = await group.channel("alice", store=store)
        waiting = asyncio.ensure_future(anext(aiter(alice)))
        await asyncio.sleep(0)
        store.error = error
        for call in (alice.send(b"x"), waiting):
            with pytest.raises(StorageError, match=type(error).__name__):
                await call
        assert not alice.is_started()

    run_in_group(scenario)


def test_a_clock_that_raises_fails_the_channel(caplog):
    caplog.set_level(logging.CRITICAL, logger="fairway.channel")

    async def scenario(group):
        broken = []

        def clock():
            if broken:
                raise broken[0]
            return int(asyncio.get_running_loop().time() * 1_000) + 10**12

        alice = await group.channel("alice", clock=clock)
        broken.append(asyncio.CancelledError())
        await group.until(lambda: not alice.is_started())
        broken.clear()

    run_in_group(scenario)
