"""The world itself: its clock, its participants, their absences and crashes."""

from __future__ import annotations

import pytest

from fairway.events import MessageDelivered, MessageReceived, MessageSent
from fairway.options import ReliableChannelOptions
from fairway.protocol.encryption import AesGcm
from fairway.simulation import NetworkFaults, World

MINUTE_MS = 60_000


def received(world, name):
    return [event.payload for _, event in world.participants[name].events if isinstance(event, MessageReceived)]


def test_everybody_hears_everybody_and_time_passes_without_waiting():
    world = World(["alice", "bob", "carol"], seed=1)
    began = world.now_ms
    world.send("alice", b"hello")
    assert world.run(MINUTE_MS, until=lambda: bool(received(world, "bob") and received(world, "carol")))
    assert world.now_ms - began < 1_000
    assert received(world, "alice") == []


def test_a_run_ends_when_its_time_is_up_and_says_that_nothing_happened():
    world = World(["alice"], seed=1)
    began = world.now_ms
    assert not world.run(MINUTE_MS, until=lambda: False)
    assert world.now_ms == began + MINUTE_MS


def test_actions_happen_at_their_time_in_the_order_in_which_they_were_planned():
    world = World([], seed=1)
    seen = []
    world.at(world.now_ms + 20, lambda: seen.append(("late", world.now_ms)))
    for name in ("first", "second"):
        world.at(world.now_ms + 10, lambda name=name: seen.append((name, world.now_ms)))
    began = world.now_ms
    world.run(MINUTE_MS)
    assert seen == [("first", began + 10), ("second", began + 10), ("late", began + 20)]


def test_observers_see_every_event_with_its_time_and_participant():
    world = World(["alice", "bob"], seed=1)
    seen = []
    before = {name: len(participant.events) for name, participant in world.participants.items()}
    world.observers.append(lambda at_ms, name, event: seen.append((name, at_ms, event)))
    world.send("alice", b"hello")
    world.run(MINUTE_MS)
    for name in ("alice", "bob"):
        told = [(at_ms, event) for who, at_ms, event in seen if who == name]
        assert told == world.participants[name].events[before[name] :]
    assert any(isinstance(event, MessageDelivered) for _, _, event in seen)


def test_who_is_offline_neither_sends_nor_receives_and_catches_up():
    world = World(["alice", "bob"], seed=1)
    world.go_offline("bob")
    world.send("alice", b"one")
    world.send("alice", b"two")
    world.send("bob", b"mine")
    world.run(10_000)
    assert received(world, "bob") == received(world, "alice") == []
    world.go_online("bob")
    world.run(2 * MINUTE_MS)
    assert received(world, "bob") == [b"one", b"two"]
    assert received(world, "alice") == [b"mine"]


def test_whoever_goes_offline_unawares_is_told_by_the_node_that_it_did_not_take_the_message():
    world = World(["alice", "bob"], seed=1)
    world.participants["alice"].online = False
    world.send("alice", b"hello")
    world.run(1_000)
    assert not [e for _, e in world.participants["alice"].events if isinstance(e, MessageSent)]
    world.participants["alice"].online = True
    world.run(MINUTE_MS)
    assert received(world, "bob") == [b"hello"]


def test_a_crash_loses_nothing_that_was_made_durable_and_delivers_nothing_twice():
    world = World(["alice", "bob"], seed=1)
    world.send("alice", b"hello")
    for _ in range(20):
        world.run(3)
        world.crash("alice")
        world.crash("bob")
    world.run(2 * MINUTE_MS)
    assert received(world, "bob") == [b"hello"]
    delivered = [e for _, e in world.participants["alice"].events if isinstance(e, MessageDelivered)]
    assert len(delivered) == 1


def test_a_crash_keeps_somebody_offline_who_was():
    world = World(["alice", "bob"], seed=1)
    world.go_offline("bob")
    world.crash("bob")
    world.send("alice", b"hello")
    world.run(10_000)
    assert received(world, "bob") == []


def test_who_joins_later_finds_what_was_said_before():
    world = World(["alice", "bob"], seed=1)
    world.send("alice", b"one")
    world.send("alice", b"two")
    world.run(MINUTE_MS)
    world.join("carol")
    world.send("bob", b"three")
    world.run(MINUTE_MS)
    assert received(world, "carol") == [b"one", b"two", b"three"]


def test_ephemeral_messages_travel_but_are_not_stored():
    world = World(["alice", "bob"], seed=1)
    world.send_ephemeral("alice", b"typing")
    world.run(1_000)
    assert received(world, "bob") == [b"typing"]
    assert list(world.network.stored()) == []


@pytest.mark.parametrize("slow", [False, True])
def test_a_world_may_be_encrypted_with_hooks_of_either_kind(slow):
    class Slow:
        def __init__(self):
            self.cipher = AesGcm(bytes(32))

        async def encrypt(self, plaintext):
            return self.cipher.encrypt(plaintext)

        async def decrypt(self, ciphertext):
            return self.cipher.decrypt(ciphertext)

    world = World(["alice", "bob"], seed=1, encryption=lambda _: Slow() if slow else AesGcm(bytes(32)))
    for payload in (b"one", b"two"):
        world.send("alice", payload)
    world.run(MINUTE_MS)
    assert received(world, "bob") == [b"one", b"two"]
    assert all(b"one" not in stored.message.payload for stored in world.network.stored())


def test_a_hook_that_fails_in_a_world_is_a_failing_hook():
    class Failing:
        async def encrypt(self, plaintext):
            raise OSError

        async def decrypt(self, ciphertext):
            raise OSError

    world = World(["alice", "bob"], seed=1, encryption=lambda _: Failing())
    world.send("alice", b"hello")
    world.run(MINUTE_MS)
    assert received(world, "bob") == []
    assert list(world.network.stored()) == []


def test_no_participant_is_ever_left_with_something_overdue():
    world = World(["alice", "bob", "carol"], seed=3, faults=NetworkFaults(loss=0.3, duplication=0.2))
    for number in range(5):
        world.send("alice", bytes([number]) * 3_000)
    for _ in range(2_000):
        world.run(37)
        for participant in world.participants.values():
            deadline = participant.stack.next_deadline()
            assert deadline is None or deadline > world.now_ms


def test_a_world_whose_participants_never_speak_is_silent():
    world = World(["alice", "bob"], seed=1, options=ReliableChannelOptions())
    world.run(60 * MINUTE_MS)
    assert world.network.published == 0
