import pytest

from fairway.options import Profile

YEAR = 365 * 86_400_000
HOUR = 3_600_000


def test_what_is_not_delivered_moves_no_clock_until_it_is(new_channel, a_message, start):
    bob = new_channel("bob")
    bob.receive(a_message("m2", "m1", lamport=start + 500), None, start)
    bob.receive(a_message("sync-1", lamport=start + 900, content=None), None, start)
    bob.receive(a_message("e", lamport=None), None, start)
    assert bob.lamport == start
    bob.receive(a_message("m1", lamport=start + 100), None, start)
    assert bob.lamport == start + 500


@pytest.mark.parametrize("stamp", [1 << 63, (1 << 64) - 1, 1_700_000_000_000 + YEAR])
def test_a_peer_far_ahead_moves_a_clock_only_as_far_as_is_tolerated(new_channel, a_message, start, stamp):
    bob = new_channel("bob")
    for number in range(10):
        bob.receive(a_message(f"m{number}", sender="mallory", lamport=stamp), None, start)
    assert bob.lamport == start + HOUR
    assert bob.send(b"x", start).lamport_timestamp == start + HOUR + 1
    assert bob.history.get("m0").lamport == stamp, "the log keeps the order that everybody agrees on"


def test_a_peer_far_ahead_does_not_take_over_what_others_cite(new_channel, send, a_message, start):
    bob = new_channel("bob", causal_history_size=3)
    honest = [send(bob, b"%d" % n, start).message_id for n in range(3)]
    for number in range(5):
        bob.receive(a_message(f"m{number}", sender="mallory", lamport=start + YEAR + number), None, start)
    # Once each, beside the newest, like everything that nobody else cites.
    once = send(bob, b"x", start)
    assert [e.message_id for e in once.causal_history] == ["m0", "m1", "m2", "m3", "m4", *honest]
    newest = [*honest[1:], once.message_id]
    again = bob.send(b"y", start)
    assert [e.message_id for e in again.causal_history] == newest

    # Once the wall clock is there, they are messages like others.
    later = start + YEAR
    assert [e.message_id for e in bob.send(b"z", later).causal_history] == [again.message_id, "m2", "m3", "m4"]


def test_within_the_tolerance_nothing_is_passed_over(new_channel, a_message, start):
    bob = new_channel("bob")
    bob.receive(a_message("early", lamport=start + HOUR), None, start)
    assert [e.message_id for e in bob.send(b"x", start).causal_history] == ["early"]


def test_own_messages_are_cited_also_after_the_wall_clock_was_set_back(new_channel, send, start):
    bob = new_channel("bob")
    sent = [send(bob, b"%d" % n, start).message_id for n in range(2)]
    assert [e.message_id for e in bob.send(b"x", start - YEAR).causal_history] == sent


def test_on_the_logos_wire_the_unit_is_a_second(new_channel, send, a_message, start):
    bob = new_channel("bob", profile=Profile.LOGOS)
    assert bob.lamport == start // 1_000
    assert send(bob, b"x", start + 7_999).lamport_timestamp == start // 1_000 + 7
    bob.receive(a_message("m1", lamport=start), None, start)
    assert bob.lamport == (start + HOUR) // 1_000


def test_a_busy_channel_on_the_logos_wire_counts_messages_and_its_newest_are_still_cited(new_channel, send, start):
    """With ten messages a second the clock runs nine seconds ahead in each: after ten minutes more than an hour."""
    alice = new_channel("alice", profile=Profile.LOGOS, causal_history_size=0)
    bob = new_channel("bob", profile=Profile.LOGOS)
    alice.lamport += 3 * 3_600
    bob.lamport += 3 * 3_600
    for number in range(100):
        message = send(alice, b"%d" % number, start)
        if number % 5:
            bob.receive(message, None, start)
    assert bob.lamport == alice.lamport
    assert bob.send(b"x", start).causal_history[-1].message_id == message.message_id
