"""The world itself: its clock, its participants, their absences and crashes."""

from __future__ import annotations

import pytest

from fairway.channel.receipt import Receipt
from fairway.events import ChunkInfo, MessageDelivered, MessageReceived, MessageSent, RequestSent
from fairway.options import ReliableChannelOptions, SegmentationConfig
from fairway.protocol.encryption import AesGcm
from fairway.simulation import World
from fairway.simulation.program import Habits, Reading
from fairway.simulation.world import Observer
from fairway.waku.local import NO_FAULTS, NetworkFaults

MINUTE_MS = 60_000


@pytest.fixture
def make():
    """Make worlds whose programs run, and let go of them after the test."""
    worlds = []

    def make(*names, seed=1, watch=None, **more):
        world = World([], seed=seed, **more)
        worlds.append(world)
        if watch is not None:
            world.observers.append(watch)
        for name in names:
            world.join(name)
        world.run(1_000)
        return world

    yield make
    for world in worlds:
        world.close()


def told(world, name, kind):
    participant = world.participants.get(name) or world.departed[name]
    return [event for _, event in participant.events if isinstance(event, kind)]


def received(world, name):
    return [event.payload for event in told(world, name, MessageReceived)]


def of_stored_without_that(stored, so_far, of_stored=Receipt.of_stored, **more):
    """Return a receipt of an earlier life, which waits until the event that all was sent comes again."""
    receipt, known = Receipt(stored.request_id, stored.message_id), of_stored(stored, so_far, **more).progress
    for index in known.chunks_sent:
        is_parity = index >= known.total_chunks
        chunk = ChunkInfo(
            chunk_index=index - known.total_chunks if is_parity else index,
            total_chunks=known.total_chunks,
            is_parity=is_parity,
        )
        receipt.observe(
            MessageSent(
                request_id=stored.request_id, message_id=stored.message_id, chunk_info=chunk, message_hash=bytes(32)
            )
        )
    return receipt


class Watch(Observer):
    """Keeps what it is told."""

    def __init__(self):
        self.seen = []

    def told(self, at_ms, name, event):
        self.seen.append((name, "told", event))

    def received(self, at_ms, name, message):
        self.seen.append((name, "received", message))

    def finished(self, at_ms, name, message):
        self.seen.append((name, "finished", message))

    def accepted(self, at_ms, name, request_id):
        self.seen.append((name, "accepted", request_id))

    def told_late(self, at_ms, name, request_id):
        self.seen.append((name, "told late", request_id))

    def published(self, at_ms, name, message):
        self.seen.append((name, "published", message))

    def began(self, at_ms, name):
        self.seen.append((name, "began", at_ms))

    def of(self, name, what):
        return [value for who, kind, value in self.seen if (who, kind) == (name, what)]


def test_everybody_hears_everybody_and_time_passes_without_waiting(make):
    world = make("alice", "bob", "carol")
    began_ms = world.now_ms
    world.send("alice", b"hello")
    assert world.run(MINUTE_MS, until=lambda: bool(received(world, "bob") and received(world, "carol")))
    assert world.now_ms - began_ms < 1_000
    assert received(world, "alice") == []


def test_a_run_ends_when_its_time_is_up_and_says_that_nothing_happened(make):
    world = make("alice")
    began_ms = world.now_ms
    assert not world.run(MINUTE_MS, until=lambda: False)
    assert world.now_ms == began_ms + MINUTE_MS


def test_actions_happen_at_their_time_in_the_order_in_which_they_were_planned(make):
    world = make()
    seen = []
    world.at(world.now_ms + 20, lambda: seen.append(("late", world.now_ms)))
    for name in ("first", "second"):
        world.at(world.now_ms + 10, lambda name=name: seen.append((name, world.now_ms)))
    began_ms = world.now_ms
    world.run(MINUTE_MS)
    assert seen == [("first", began_ms + 10), ("second", began_ms + 10), ("late", began_ms + 20)]


def test_observers_see_all_that_participants_do_and_are_told(make):
    watch = Watch()
    world = make("alice", "bob", watch=watch)
    sends = {world.send("alice", payload) for payload in (b"hello", b"goodbye")}
    world.run(MINUTE_MS)
    assert [len(watch.of(name, "began")) for name in ("alice", "bob")] == [1, 1]
    assert set(watch.of("alice", "accepted")) == sends
    assert {event.request_id for event in watch.of("alice", "told") if isinstance(event, MessageDelivered)} == sends
    assert watch.of("bob", "received") == told(world, "bob", MessageReceived)
    assert len(watch.of("bob", "received")) == 2
    assert watch.of("bob", "finished") == watch.of("bob", "received")
    assert len(watch.of("alice", "published")) >= 2
    for name in ("alice", "bob"):
        assert world.participants[name].events[-1][0] <= world.now_ms


@pytest.mark.parametrize("reading", Reading)
def test_applications_read_in_each_way_that_a_channel_offers(make, reading):
    world = make("alice", "bob", habits_of=lambda _: Habits(reading=reading), faults=NO_FAULTS)
    for number in range(3):
        world.send("alice", b"%d" % number)
        world.run(MINUTE_MS)
    assert received(world, "bob") == [b"0", b"1", b"2"]
    assert len(told(world, "alice", MessageDelivered)) == 3


def test_a_handler_that_raises_is_called_again_until_it_does_not(make):
    watch = Watch()
    world = make("alice", "bob", watch=watch, habits_of=lambda _: Habits(reading=Reading.HANDLERS, raises=0.2))
    for number in range(8):
        world.send("alice", b"%d" % number)
    world.run(10 * MINUTE_MS)
    assert len(watch.of("bob", "finished")) == 8
    handed = [message.payload for message in watch.of("bob", "received")]
    assert set(handed) == {b"%d" % number for number in range(8)}
    assert len(handed) > 8


@pytest.mark.parametrize("seed", range(10))
def test_a_program_that_failed_amid_its_first_message_gets_further_once_it_is_started_again(make, seed):
    # One life in ten of such a program fails amid a message.
    habits = Habits(reading=Reading.MESSAGES, raises=1.0)
    world = make("alice", "bob", seed=seed, habits_of=lambda _: habits, faults=NO_FAULTS)
    world.send("alice", b"one")
    world.run(2 * MINUTE_MS)
    assert world.participants["bob"].channel is not None
    assert not world.participants["bob"].channel.statistics().unfinished


def test_who_is_offline_neither_sends_nor_receives_and_catches_up(make):
    world = make("alice", "bob")
    world.go_offline("bob")
    world.send("alice", b"one")
    world.run(1_000)
    world.send("alice", b"two")
    world.send("bob", b"mine")
    world.run(10_000)
    assert received(world, "bob") == received(world, "alice") == []
    world.go_online("bob")
    world.run(2 * MINUTE_MS)
    assert received(world, "bob") == [b"one", b"two"]
    assert received(world, "alice") == [b"mine"]


def test_whoever_is_cut_off_learns_that_the_node_did_not_take_the_message_and_sends_it_again(make):
    world = make("alice", "bob")
    world.cut_off("alice")
    world.send("alice", b"hello")
    world.run(1_000)
    assert received(world, "bob") == []
    world.go_online("alice")
    world.run(2 * MINUTE_MS)
    assert received(world, "bob") == [b"hello"]
    assert told(world, "alice", MessageSent)


def test_whoever_has_noticed_that_it_is_cut_off_finds_no_network_after_a_restart(make):
    world = make("alice", "bob")
    world.cut_off("alice")
    world.go_offline("alice")
    world.crash("alice")
    world.send("alice", b"hello")
    world.run(2 * MINUTE_MS)
    assert not told(world, "alice", MessageSent)
    world.go_online("alice")
    world.run(2 * MINUTE_MS)
    assert received(world, "bob") == [b"hello"]


def test_a_crash_loses_nothing_that_was_made_durable_and_delivers_nothing_twice(make):
    world = make("alice", "bob")
    world.send("alice", b"hello")
    world.run(1)
    for _ in range(20):
        world.run(3)
        world.crash("alice")
        world.crash("bob")
    world.run(2 * MINUTE_MS)
    new = [message.payload for message in told(world, "bob", MessageReceived) if not message.redelivered]
    assert new == [b"hello"]
    assert len(told(world, "alice", MessageDelivered)) == 1
    assert {participant.lives for participant in world.participants.values()} == {21}


def test_a_crash_keeps_somebody_offline_who_was(make):
    world = make("alice", "bob")
    world.go_offline("bob")
    world.crash("bob")
    world.send("alice", b"hello")
    world.run(10_000)
    assert received(world, "bob") == []


def test_who_joins_later_finds_what_was_said_before(make):
    world = make("alice", "bob")
    for payload in (b"one", b"two"):
        world.send("alice", payload)
        world.run(MINUTE_MS)
    world.join("carol")
    world.run(MINUTE_MS)
    world.send("bob", b"three")
    world.run(MINUTE_MS)
    assert received(world, "carol") == [b"one", b"two", b"three"]


def test_ephemeral_messages_travel_but_are_not_stored(make):
    world = make("alice", "bob")
    world.send_ephemeral("alice", b"typing")
    world.run(1_000)
    assert received(world, "bob") == [b"typing"]
    assert world.network.statistics().stored == 0


@pytest.mark.parametrize("slow", [False, True])
def test_a_world_may_be_encrypted_with_hooks_of_either_kind(make, slow):
    class Slow:
        def __init__(self):
            self.cipher = AesGcm(bytes(32))

        async def encrypt(self, plaintext):
            return self.cipher.encrypt(plaintext)

        async def decrypt(self, ciphertext):
            return self.cipher.decrypt(ciphertext)

    world = make("alice", "bob", encryption=lambda _: Slow() if slow else AesGcm(bytes(32)))
    said = [b"nobody else may read this", b"nor this"]
    for payload in said:
        world.send("alice", payload)
        world.run(MINUTE_MS)
    assert received(world, "bob") == said
    stored = list(world.network.stored())
    assert stored
    assert all(said[0] not in each.message.payload for each in stored)


def test_a_hook_that_fails_in_a_world_is_a_failing_hook(make):
    class Failing:
        async def encrypt(self, plaintext):
            raise OSError

        async def decrypt(self, ciphertext):
            raise OSError

    world = make("alice", "bob", encryption=lambda _: Failing())
    world.send("alice", b"hello")
    world.run(MINUTE_MS)
    assert received(world, "bob") == []
    assert world.network.statistics().stored == 0


def test_no_participant_is_ever_left_with_something_overdue(make):
    world = make("alice", "bob", "carol", seed=3, faults=NetworkFaults(loss=0.3, duplication=0.2))
    for number in range(5):
        world.send("alice", bytes([number]) * 3_000)
    for _ in range(1_000):
        world.run(37)
        for participant in world.participants.values():
            deadline_ms = participant.stack.next_deadline()
            # A channel may be late by the moment that a machine takes to wake it.
            assert deadline_ms is None or deadline_ms >= world.now_ms


def test_a_world_whose_participants_never_speak_is_silent(make):
    world = make("alice", "bob")
    world.run(60 * MINUTE_MS)
    assert world.network.statistics().published == 0


def test_whoever_left_hears_and_says_nothing_more(make):
    world = make("alice", "bob", "carol")
    world.send("alice", b"one")
    left = world.leave("bob")
    world.run(MINUTE_MS)
    assert "bob" not in world.participants
    assert world.departed == {"bob": left}
    assert received(world, "bob") == []
    assert received(world, "carol") == [b"one"]


def test_what_somebody_sent_before_leaving_still_arrives(make):
    world = make("alice", "bob")
    world.send("alice", b"farewell")
    world.run(1)
    world.leave("alice")
    world.run(MINUTE_MS)
    assert received(world, "bob") == [b"farewell"]


def test_sides_of_a_partition_hear_only_themselves_until_it_is_mended(make):
    world = make("alice", "bob", "carol", "dave", "erin")
    world.sever(["alice", "bob"], ["carol", "dave"])
    world.send("alice", b"here")
    world.send("carol", b"there")
    world.run(MINUTE_MS)
    assert [received(world, name) for name in ("alice", "bob")] == [[], [b"here"]]
    assert [received(world, name) for name in ("carol", "dave")] == [[], [b"there"]]
    assert received(world, "erin") == []
    world.mend()
    world.run(5 * MINUTE_MS)
    assert all(set(received(world, name)) >= {b"here", b"there"} for name in ("bob", "dave", "erin"))
    assert (received(world, "alice"), received(world, "carol")) == ([b"there"], [b"here"])


def test_what_fails_with_an_error_of_its_own_is_told_to_observers(make):
    failures = []

    class Watch(Observer):
        def failed(self, at_ms, name, error):
            failures.append((name, error))

    world = make("alice", "bob", watch=Watch())
    boom = RuntimeError("a bug")

    def fail(*_):
        raise boom

    # What a bug in the application does to it.
    world.participants["bob"].program.take = fail
    world.send("alice", b"hello")
    world.run(5_000)
    assert failures == [("bob", boom)]
    assert not world.participants["bob"].is_running
    world.run(MINUTE_MS)
    assert world.participants["bob"].lives == 2
    assert received(world, "bob") == [b"hello"]


def test_a_program_that_starts_again_knows_all_that_it_knew(make):
    world = make("alice", "bob", faults=NetworkFaults(loss=0.5))
    for number in range(10):
        world.send("alice", b"%d " % number + bytes(2_000 * number))
        world.send("bob", b"%d" % number)
        world.run(5_000)
    bob = world.participants["bob"]

    def known():
        # Each life draws its waits anew.
        return {(change.table, change.key): change for change in bob.stack.snapshot() if change.table != "jitter"}

    before = known()
    world.crash("bob")
    assert world.run(1_000, until=lambda: bob.channel is not None)
    assert len(before) > 50
    assert known() == before


@pytest.mark.parametrize("knows_sent", [True, False], ids=["a sound receipt", "a receipt that does not say so"])
def test_observers_are_told_of_a_receipt_that_says_only_later_that_all_was_sent(make, monkeypatch, knows_sent):
    options = ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=1_024, parity_rate=1.0))
    watch = Watch()
    # Nobody acknowledges, so that nothing is repeated and the send stays open.
    world = make("alice", watch=watch, options=options)
    request_id = world.send("alice", bytes(2_000))
    world.run(MINUTE_MS)
    assert told(world, "alice", RequestSent)
    if not knows_sent:
        monkeypatch.setattr(Receipt, "of_stored", of_stored_without_that)
    world.crash("alice")
    world.run(MINUTE_MS)
    assert told(world, "alice", RequestSent)
    world.join("bob")
    world.run(10 * MINUTE_MS)
    assert watch.of("alice", "told late") == ([] if knows_sent else [request_id])
