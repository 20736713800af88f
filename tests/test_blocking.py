"""`fairway.blocking`: the API without asyncio, for programs with threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from fairway import GroupKeys, Identity, blocking
from fairway.errors import ChannelClosedError, ConfigurationError, EventLoopError, NoOneThereError
from fairway.events import MessageReceived, MessageSent
from fairway.files import FileReceived
from fairway.options import ReliableChannelOptions
from fairway.wire.envelope import Envelope

_SOON = ReliableChannelOptions(sync_min_interval_ms=50)
_PATIENCE_S = 60.0


@contextmanager
def _pair(**alices: object) -> Iterator[tuple[blocking.BlockingChannel, blocking.BlockingChannel]]:
    network = f"local:{uuid4()}"
    with blocking.connect(network) as node_a, blocking.connect(network) as node_b:
        topic = "/tests/1/blocking/proto"
        with (
            blocking.create_reliable_channel(node_a, "team", "alice", topic, **{"options": _SOON, **alices}) as alice,  # type: ignore[arg-type]
            blocking.create_reliable_channel(node_b, "team", "bob", topic, options=_SOON) as bob,
        ):
            yield alice, bob


def test_a_script_sends_reads_and_waits_for_the_acknowledgement() -> None:
    with _pair() as (alice, bob):
        receipt = alice.send(b"who is on watch?")
        receipt.sent(timeout=_PATIENCE_S)
        message = next(iter(bob))
        assert (message.sender_id, bytes(message)) == ("alice", b"who is on watch?")
        assert receipt.delivered(timeout=_PATIENCE_S).delivered_to == ("bob",)
        assert receipt.has_ended
        assert receipt.failure is None
        assert alice.receipt(receipt.request_id).progress.delivered_to == ("bob",)
        assert [each.payload for each in bob.history()] == [b"who is on watch?"]
        assert [each.chunks_sent for each in receipt.updates()] == [(0,)]


def test_a_script_reads_who_is_here_and_waits_for_all_of_them() -> None:
    with _pair() as (alice, bob):
        alice.send(b"anybody?").delivered(timeout=_PATIENCE_S)
        assert [(member.sender_id, member.is_present) for member in alice.members()] == [("bob", True)]
        receipt = alice.send(b"to everybody")
        assert receipt.delivered(timeout=_PATIENCE_S, to_all_present=True).delivered_to == ("bob",)
        bob.close()
        events = alice.events()
        while alice.members()[0].is_present:
            events.next(timeout=_PATIENCE_S)
        with pytest.raises(NoOneThereError, match="bob is away"):
            alice.request(b"tea?", to="bob")


def test_a_wait_that_timed_out_loses_nothing() -> None:
    with _pair() as (alice, bob):
        messages = iter(bob)
        with pytest.raises(TimeoutError, match=r"nothing came within 0\.01 s; repeat the wait"):
            messages.next(timeout=0.01)
        with pytest.raises(ConfigurationError, match="timeout must be a number or None, not str; it is in seconds"):
            messages.next(timeout="1")  # type: ignore[arg-type]
        alice.send(b"late")
        assert messages.next(timeout=_PATIENCE_S).payload == b"late"
        alone = alice.send(b"for nobody else", by=["carol"])
        with pytest.raises(TimeoutError):
            alone.delivered(timeout=0.01)
        assert not alone.has_ended


def test_the_loop_ends_when_the_channel_closes() -> None:
    with _pair() as (alice, bob):
        alice.send(b"last")
        reading = iter(bob)
        assert reading.next(timeout=_PATIENCE_S).payload == b"last"
        with ThreadPoolExecutor() as threads:
            rest = threads.submit(list, reading)
            bob.close()
            assert rest.result(_PATIENCE_S) == []
        with pytest.raises(ChannelClosedError, match="closed"):
            bob.send(b"too late")


def test_many_threads_use_one_channel() -> None:
    with _pair() as (alice, bob):
        texts = [b"%d" % number for number in range(50)]
        with ThreadPoolExecutor(8) as threads:
            receipts = list(threads.map(alice.send, texts))
        messages = iter(bob)
        assert sorted(messages.next(timeout=_PATIENCE_S).payload for _ in texts) == sorted(texts)
        for receipt in receipts:
            receipt.delivered(timeout=_PATIENCE_S)


def test_threads_that_send_at_one_time_share_messages_of_the_network() -> None:
    with _pair(options=replace(_SOON, batch_ms=1_000)) as (alice, bob):
        texts = [b"%d" % number for number in range(20)]
        with ThreadPoolExecutor(len(texts)) as threads:
            receipts = list(threads.map(alice.send, texts))
        loop = iter(bob)
        messages = [loop.next(timeout=_PATIENCE_S) for _ in texts]
        assert sorted(message.payload for message in messages) == sorted(texts)
        assert len({message.message_hashes for message in messages}) < len(texts)
        assert len({receipt.request_id for receipt in receipts}) == len(texts)
        for receipt in receipts:
            receipt.delivered(timeout=_PATIENCE_S)


def test_a_handler_may_block_and_use_the_channel() -> None:
    answered = threading.Event()

    def reply(message: MessageReceived) -> None:
        alice.send(b"re: " + message.payload).sent(timeout=_PATIENCE_S)
        answered.set()

    with _pair(receive=reply) as (alice, bob):
        sent = threading.Event()
        remove = alice.on(MessageSent, lambda _: sent.set())
        bob.send(b"hello")
        assert answered.wait(_PATIENCE_S)
        assert sent.wait(_PATIENCE_S)
        remove()
        assert iter(bob).next(timeout=_PATIENCE_S).payload == b"re: hello"


def test_requests_are_answered_by_a_handler_or_a_loop() -> None:
    with _pair() as (alice, bob), ThreadPoolExecutor() as threads:
        remove = bob.on_request(lambda request: b"re: " + request.payload)
        assert alice.request(b"tea?", to="bob").payload == b"re: tea?"
        remove()
        requests = bob.requests()
        with pytest.raises(TimeoutError):
            requests.next(timeout=0.01)
        answer = threads.submit(alice.request, b"milk?", to="bob")
        request = requests.next(timeout=_PATIENCE_S)
        assert (request.sender_id, request.payload) == ("alice", b"milk?")
        assert request.reply(b"no, thanks")
        assert answer.result(_PATIENCE_S).payload == b"no, thanks"
        assert not request.is_open


def test_workers_take_the_requests_of_their_group() -> None:
    with _pair() as (alice, bob), ThreadPoolExecutor() as threads:
        remove = bob.on_request(lambda request: f"{request.group}: ".encode() + request.payload, group="kitchen")
        assert alice.request(b"tea?", group="kitchen", timeout=_PATIENCE_S).payload == b"kitchen: tea?"
        remove()
        answer = threads.submit(alice.request, b"milk?", group="kitchen", timeout=_PATIENCE_S)
        bob.requests(group="kitchen").next(timeout=_PATIENCE_S).reply(b"no")
        assert answer.result(_PATIENCE_S).payload == b"no"


def test_a_handler_of_requests_may_be_a_coroutine_function() -> None:
    async def describe(request: blocking.BlockingRequest) -> bytes:
        assert request.deadline_ms
        return f"{request.content_type}: {bytes(request).decode()}".encode()

    with _pair() as (alice, bob):
        with pytest.raises(ConfigurationError, match="handler must be a function of a request"):
            bob.on_request(b"tea")  # type: ignore[arg-type]
        bob.on_request(describe)
        question = Envelope(b"tea?", content_type="text/plain")
        assert alice.request(question, to="bob").payload == b"text/plain: tea?"


def test_many_handlers_may_wait_for_other_handlers() -> None:
    with _pair() as (alice, bob), ThreadPoolExecutor(40) as threads:
        alice.on_request(lambda request: b"for " + request.payload)
        bob.on_request(lambda request: bob.request(request.payload, to="alice", timeout=_PATIENCE_S).payload)
        replies = threads.map(lambda number: alice.request(b"%d" % number, to="bob").payload, range(40))
        assert sorted(replies) == sorted(b"for %d" % number for number in range(40))


def test_a_message_unfinished_at_an_error_comes_again(tmp_path: Path) -> None:
    network, topic = f"local:{uuid4()}", "/tests/1/blocking/proto"

    def reader(node: blocking.BlockingNode) -> blocking.BlockingChannel:
        return blocking.create_reliable_channel(node, "team", "bob", topic, store=tmp_path / "bob.db")

    def fail(bob: blocking.BlockingChannel) -> None:
        with bob:
            alice.send(b"work")
            for _ in bob:
                raise ZeroDivisionError

    with (
        blocking.connect(network) as here,
        blocking.connect(network) as there,
        blocking.create_reliable_channel(here, "team", "alice", topic) as alice,
    ):
        with pytest.raises(ZeroDivisionError):
            fail(reader(there))
        with reader(there) as bob:
            assert iter(bob).next(timeout=_PATIENCE_S).redelivered
        with reader(there) as bob, pytest.raises(TimeoutError):
            iter(bob).next(timeout=0.01)


def test_files_are_sent_and_received(tmp_path: Path) -> None:
    (tmp_path / "chart.pdf").write_bytes(bytes(3_000_000))

    def receive(bob: blocking.BlockingChannel) -> Path:
        receiver = blocking.BlockingFileReceiver.open(bob, tmp_path / "received")
        for message in bob:
            outcome = receiver.take(message)
            if isinstance(outcome, FileReceived):
                assert receiver.incomplete == ()
                assert receiver.path_of(outcome.sender_id, outcome.message_id) == outcome.path
                return outcome.path
        raise AssertionError("the channel closed")

    with _pair() as (alice, bob), ThreadPoolExecutor() as threads:
        received = threads.submit(receive, bob)
        assert blocking.send_file(alice, tmp_path / "chart.pdf").delivered_to == ("bob",)
        assert received.result(_PATIENCE_S).read_bytes() == bytes(3_000_000)


def test_a_coroutine_handler_runs_on_the_event_loop_where_nothing_may_block() -> None:
    errors: list[EventLoopError] = []
    called = threading.Event()

    async def handle(_: MessageReceived) -> None:
        try:
            alice.send(b"this would wait for itself")
        except EventLoopError as error:
            errors.append(error)
        called.set()

    with _pair(receive=handle) as (alice, bob):
        bob.send(b"hello")
        assert called.wait(_PATIENCE_S)
    assert "would wait for itself" in str(errors[0])


def test_a_node_with_asyncio_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"fairway\.blocking\.connect"):
        blocking.create_reliable_channel("node", "team", "alice", "/tests/1/blocking/proto")  # type: ignore[arg-type]


def test_many_channels_share_one_store_and_one_loop(tmp_path: Path) -> None:
    network = f"local:{uuid4()}"
    handled: list[tuple[str, bytes]] = []
    both = threading.Event()

    def handle(message: MessageReceived) -> None:
        handled.append((message.channel_id, bytes(message)))
        if len(handled) == 2:
            both.set()

    def of(node: blocking.BlockingNode, name: str, **more: object) -> blocking.BlockingChannels:
        return blocking.BlockingChannels(
            node,
            store=tmp_path / f"{name}.db",
            sender_id=name,
            content_topic="/tests/1/{channel}/proto",
            options=_SOON,
            **more,
        )

    with (
        blocking.connect(network) as node_a,
        blocking.connect(network) as node_b,
        of(node_a, "alice") as alice,
        of(node_b, "bob", receive=handle) as bob,
    ):
        for name in ("one", "two"):
            alice.open(name)
            bob.open(name).send(f"bob in {name}".encode())
            alice[name].send(f"alice in {name}".encode())
        messages = iter(alice)
        received = [messages.next(timeout=_PATIENCE_S) for _ in range(2)]
        assert {(each.channel_id, bytes(each)) for each in received} == {
            ("one", b"bob in one"),
            ("two", b"bob in two"),
        }
        assert both.wait(_PATIENCE_S)
        assert set(handled) == {("one", b"alice in one"), ("two", b"alice in two")}
        assert alice.names("o*") == ["one"]
        alice.backup(tmp_path / "copy.db")
    assert (tmp_path / "copy.db").exists()


def test_the_members_of_a_group_change_in_a_script(tmp_path: Path) -> None:
    keys = {name: Identity.new() for name in ("alice", "bob")}
    group = GroupKeys.create(tmp_path / "alice", keys["alice"], "alice")
    bobs = GroupKeys.join(tmp_path / "bob", keys["bob"], group.id)
    network, topic = f"local:{uuid4()}", "/tests/1/blocking/proto"
    with (
        blocking.connect(network) as node_a,
        blocking.connect(network) as node_b,
        blocking.create_reliable_channel(node_a, "team", "alice", topic, options=_SOON, encryption=group) as alice,
        blocking.create_reliable_channel(node_b, "team", "bob", topic, options=_SOON, encryption=bobs) as bob,
    ):
        bob.send(b"may I come aboard?")
        group.add("bob", keys["bob"].public_key)
        alice.send(b"welcome").delivered(timeout=_PATIENCE_S)
        assert bytes(next(iter(alice))) == b"may I come aboard?"
        assert bytes(next(iter(bob))) == b"welcome"


def test_a_thread_publishes_a_snapshot_from_which_another_starts() -> None:
    with _pair() as (alice, bob):
        for text in (b"1", b"2", b"3"):
            alice.send(text)
        messages = iter(bob)
        assert [messages.next(timeout=_PATIENCE_S).payload for _ in range(2)] == [b"1", b"2"]
        bob.snapshot(b"1 and 2").delivered(timeout=_PATIENCE_S)
        snapshot = alice.latest_snapshot()
        assert snapshot is not None
        assert (bytes(snapshot), snapshot.sender_id) == (b"1 and 2", "bob")
        assert [each.payload for each in snapshot.later] == [b"3"]
