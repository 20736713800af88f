"""SDS-R between participants: asking, answering, and staying silent."""

import heapq
from collections import Counter
from itertools import pairwise

import pytest

from fairway.options import Profile, RepairConfig
from fairway.protocol.sds.repair import in_response_group, request_offset
from fairway.protocol.sds.state import SdsState
from fairway.wire.sds import WAKU_SDS, HistoryEntry

LATER = 600_000


@pytest.fixture
def asking(a_message):
    """Make a sync message in which somebody asks for messages."""

    def make(*entries, sender="zoe"):
        return a_message("sync-1", sender=sender, content=None, repair_request=entries)

    return make


def wanted(message):
    return [entry.message_id for entry in message.repair_request] if message else []


# Asking


def test_a_request_can_ride_on_a_sync_message_that_has_nothing_else_to_tell(new_channel, a_message, start):
    bob = new_channel("bob")
    bob.receive(a_message("sync-1", "m1", content=None), None, start)
    assert bob.send_sync(start) is None
    sync = bob.send_sync(start + LATER)
    assert wanted(sync) == ["m1"]
    assert sync.causal_history == ()


def test_a_request_is_repeated_while_the_message_is_missing_less_often_after_some_time(new_channel, a_message, start):
    """js-waku and nim-sds ask once and never again."""
    bob = new_channel("bob", lost_timeout_ms=0)
    bob.receive(a_message("m2", "m1"), None, start)
    first = request_offset(Profile.WAKU.repair, "bob", "m1", *RepairConfig().window())
    now_ms, pauses = start, []
    for _ in range(10):
        due = bob.repair.requests.next_at()
        assert wanted(bob.send_sync(due - 1)) == []
        assert wanted(bob.send_sync(due)) == ["m1"]
        pauses.append(due - now_ms)
        now_ms = due
    factors = (2, 2, 2, 2, 2, 4, 8, 16, 32)
    assert pauses == [first, *(min(first * factor, 120_000) for factor in factors)]


def test_what_was_asked_for_in_vain_keeps_nothing_else_from_being_asked_for(new_channel, a_message, start):
    """Of what one message cites twenty are asked for at once, the others by and by."""
    bob = new_channel("bob", lost_timeout_ms=0)
    for number in range(4):
        bob.receive(a_message(f"m{number}", *[f"invented {number} {n}" for n in range(20)]), None, start)
    now_ms, asked = start, Counter()
    while len(asked) < 80 or min(asked.values()) < 10:
        now_ms += LATER
        asked.update(wanted(bob.send_sync(now_ms)))
    bob.receive(a_message("m", *[f"true {n}" for n in range(25)]), None, now_ms)
    bob.dependencies.sweep(now_ms)
    for _ in range(30):
        now_ms += LATER
        asked.update(wanted(bob.send_sync(now_ms)))
    assert all(asked[f"true {n}"] for n in range(25))


def test_hearing_somebody_else_ask_counts_as_having_asked(new_channel, a_message, asking, start):
    bob = new_channel("bob")
    bob.receive(a_message("m2", "m1"), None, start)
    first = request_offset(Profile.WAKU.repair, "bob", "m1", *RepairConfig().window())
    bob.receive(asking(HistoryEntry("m1", None, "zoe"), HistoryEntry("m1"), sender="carol"), None, start + first - 1)
    assert wanted(bob.send_sync(start + first)) == []
    assert wanted(bob.send_sync(start + first - 1 + 2 * first - 1)) == []
    assert wanted(bob.send_sync(start + first - 1 + 2 * first)) == ["m1"]


# Answering


def test_whoever_asks_again_and_again_is_answered_once_in_a_while(new_channel, send, asking, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start)
    entry = HistoryEntry(message.message_id, None, "alice")
    answered = []
    for second in range(1_000):
        now_ms = start + 1_000 * second
        alice.receive(asking(entry, sender=f"forger {second % 7}"), None, now_ms)
        answered += [second for _ in alice.sweep_repair(now_ms)]
    assert answered == [0, 30, 90, 210, 450, 690, 930], "after ever longer waits"


def test_answers_are_no_more_bytes_than_what_was_said_and_what_was_never_answered_is(new_channel, send, asking, start):
    """However many ask, and under however many names."""
    alice, now_ms = new_channel("alice"), start
    messages = [send(alice, bytes([number]) * 100_000, start) for number in range(100)]
    said = sum(len(alice.profile.codec.encode(message)) for message in messages)
    answers = []
    for number in range(600):
        now_ms += 10_000
        batch = [messages[(number * 10 + n) % 90] for n in range(10)]
        entries = [HistoryEntry(message.message_id, None, "alice") for message in batch]
        alice.receive(asking(*entries, sender=f"forger {number}"), None, now_ms)
        answers += alice.sweep_repair(now_ms)
    answered = sum(len(encoded) for _, encoded in answers)
    assert 0.9 * said < answered < 2 * said + 6_000_000 // 2, "and half a byte a millisecond"
    # What an honest participant lacks after all that is still answered.
    entry = HistoryEntry(messages[99].message_id, None, "alice")
    alice.receive(asking(entry, sender="bob"), None, now_ms)
    assert [message_id for message_id, _ in alice.sweep_repair(now_ms)] == [entry.message_id]


def test_a_large_message_is_answered_again_although_smaller_ones_are_asked_for_all_the_time(
    new_channel, send, asking, start
):
    alice, now_ms = new_channel("alice"), start
    contents = [bytes([number]) * 200 for number in range(20)] + [b"large" * 400]
    entries = [HistoryEntry(send(alice, content, start).message_id, None, "alice") for content in contents]
    large = entries[-1].message_id
    answered_ms = []
    for _ in range(600):
        now_ms += 10_000
        for first in range(0, len(entries), 5):
            alice.receive(asking(*entries[first : first + 5], sender="bob"), None, now_ms)
        answered_ms += [now_ms for message_id, _ in alice.sweep_repair(now_ms) if message_id == large]
    longest_ms = max(after - before for before, after in pairwise([start, *answered_ms, now_ms]))
    assert longest_ms < 30 * 60_000, "half of the time after which bob gives it up"


def test_what_was_said_in_an_earlier_life_pays_for_answers_as_well(new_channel, send, asking, start):
    alice, now_ms = new_channel("alice"), start
    messages = [send(alice, bytes([number]) * 5_000, start) for number in range(100)]
    reborn = new_channel("alice")
    SdsState(reborn).load(SdsState(alice).rows())
    for _ in range(2):
        answers, now_ms = [], now_ms + 60_000
        for message in messages:
            reborn.receive(asking(HistoryEntry(message.message_id, None, "alice")), None, now_ms)
            answers += reborn.sweep_repair(now_ms)
        assert len(answers) == len(messages)


def test_an_answer_that_rests_comes_later_and_not_never(next_deadline, new_channel, send, asking, start):
    alice = new_channel("alice")
    message = send(alice, b"hello", start)
    entry = HistoryEntry(message.message_id, None, "alice")
    alice.receive(asking(entry), None, start)
    alice.sweep_repair(start + 5)
    alice.receive(asking(entry, sender="carol"), None, start + 10)
    assert next_deadline(alice) == start + 30_005
    assert len(alice.sweep_repair(start + 30_005)) == 1


def test_an_answer_that_did_not_leave_counts_as_none(new_channel, send, asking, start):
    alice = new_channel("alice")
    message = send(alice, b"1" * 5_000, start)
    entry = HistoryEntry(message.message_id, None, "alice")
    alice.receive(asking(entry), None, start)
    assert len(alice.sweep_repair(start)) == 1
    for number in range(20):
        alice.receive(asking(entry, sender=f"p{number}"), None, start + 30_000)
        [(message_id, _)] = alice.sweep_repair(start + 30_000)
        alice.not_answered(message_id)


def test_a_message_that_still_waits_can_be_answered_too(new_channel, a_message, asking, start):
    """After a partition everybody may wait for somebody else's message; if only deliverers answered, nobody would."""
    bob = new_channel("bob")
    waiting = a_message("m2", "m1")
    bob.receive(waiting, None, start)
    bob.receive(asking(HistoryEntry("m2", None, "zoe"), sender="carol"), None, start)
    assert bob.sweep_repair(start + LATER) == [("m2", WAKU_SDS.encode(waiting))]


def test_an_answer_is_dropped_if_the_message_is_no_longer_kept(new_channel, a_message, asking, start):
    bob = new_channel("bob")
    bob.receive(a_message("m1"), None, start)
    bob.receive(asking(HistoryEntry("m1", None, "zoe"), sender="carol"), None, start)
    for number in range(1_000):
        bob.receive(a_message(f"n{number}"), None, start)
    assert bob.sweep_repair(start + LATER) == []


def test_only_so_many_requests_of_one_message_are_looked_at(new_channel, a_message, asking, start):
    bob = new_channel("bob")
    for number in range(20):
        bob.receive(a_message(f"m{number}"), None, start)
    entries = [HistoryEntry(f"m{number}", None, "zoe") for number in range(20)]
    bob.receive(asking(*entries, sender="carol"), None, start)
    assert len(bob.sweep_repair(start + LATER)) == 10


# Groups


def test_only_members_of_the_response_group_answer(new_channel, a_message, asking, start):
    answering = set()
    for number in range(40):
        peer = new_channel(f"p{number}")
        peer.participants.update(f"other {n}" for n in range(3 * 128))
        peer.receive(a_message("m1"), None, start)
        peer.receive(asking(HistoryEntry("m1", None, "zoe"), sender="carol"), None, start)
        if peer.sweep_repair(start + LATER):
            answering.add(peer.sender_id)
    assert answering == {f"p{n}" for n in range(40) if in_response_group(Profile.WAKU.repair, f"p{n}", "zoe", "m1", 4)}
    assert 0 < len(answering) < 25


def test_when_nobody_of_the_group_answers_everybody_does(new_channel, a_message, asking, start):
    """Groups have the same members at every request; if those have left, the message would be lost to all."""
    peers = [new_channel(f"p{number}") for number in range(5)]
    for peer in peers:
        peer.participants.update(f"other {n}" for n in range(9_000))
        peer.receive(a_message("m1"), None, start)
        peer.receive(asking(HistoryEntry("m1", None, "zoe"), sender="carol"), None, start)
        assert peer.sweep_repair(start + LATER) == []
        peer.receive(asking(HistoryEntry("m1", None, "zoe"), sender="carol"), None, start + LATER)
        assert len(peer.sweep_repair(start + 2 * LATER)) == 1
        peer.receive(a_message("m1"), None, start + 2 * LATER)
        peer.receive(asking(HistoryEntry("m1", None, "zoe"), sender="carol"), None, start + 2 * LATER)
        assert peer.sweep_repair(start + 3 * LATER) == []


# Everybody together, on a medium that everybody hears


class Broadcast:
    """Channels that all hear each other after a delay, and send a sync message when a request is due."""

    def __init__(self, channels, now_ms, delay_ms=50, sync_every_ms=10_000):
        self.channels = {channel.sender_id: channel for channel in channels}
        self.now_ms, self.delay_ms, self.sync_every_ms = now_ms, delay_ms, sync_every_ms
        self.on_air, self.count = [], 0
        self.answers, self.requests = [], []

    def put(self, sender, encoded):
        self.count += 1
        heapq.heappush(self.on_air, (self.now_ms + self.delay_ms, self.count, sender, encoded))

    def run(self, until_ms, silent=()):
        speaking = [c for name, c in self.channels.items() if name not in silent]
        while self.now_ms < until_ms:
            self.now_ms += self.delay_ms
            while self.on_air and self.on_air[0][0] <= self.now_ms:
                _, _, sender, encoded = heapq.heappop(self.on_air)
                for name, channel in self.channels.items():
                    if name != sender:
                        message = channel.profile.codec.decode(encoded)
                        channel.receive(message, None, self.now_ms, encoded)
            for channel in speaking:
                self.speak(channel)

    def speak(self, channel):
        for message_id, encoded in channel.sweep_repair(self.now_ms):
            self.answers.append((message_id, channel.sender_id, self.now_ms))
            self.put(channel.sender_id, encoded)
        due = channel.repair.requests.next_at()
        if due is not None and due <= self.now_ms:
            sync = channel.send_sync(self.now_ms)
            self.requests.append((channel.sender_id, self.now_ms, wanted(sync)))
            self.put(channel.sender_id, channel.profile.codec.encode(sync))


@pytest.mark.parametrize("profile", [Profile.WAKU, Profile.LOGOS], ids=["waku", "logos"])
def test_of_fifty_participants_few_ask_and_few_answer(new_channel, send, start, profile):
    """Forty have a message whose author has left, ten miss it; everybody hears everybody after 50 ms."""
    author = new_channel("author", profile=profile)
    lost, last = send(author, b"lost", start), send(author, b"last", start)
    peers = [new_channel(f"p{n}", profile=profile, bloom_capacity=50) for n in range(50)]
    for number, peer in enumerate(peers):
        if number >= 10:
            peer.receive(lost, None, start)
        peer.receive(last, None, start)
    medium = Broadcast(peers, start)
    medium.run(start + 300_000)
    assert all(lost.message_id in peer.history and last.message_id in peer.history for peer in peers)
    assert len(medium.requests) <= 2
    assert len(medium.answers) <= 2


def test_what_everybody_misses_is_asked_for_by_few(new_channel, send, start):
    author = new_channel("author")
    lost, last = send(author, b"lost", start), send(author, b"last", start)
    peers = [new_channel(f"p{n}", bloom_capacity=50, lost_timeout_ms=0) for n in range(20)]
    for peer in peers:
        peer.receive(last, None, start)
    medium = Broadcast(peers, start, delay_ms=500)
    medium.run(start + 1_200_000)
    assert 10 <= len(medium.requests) <= 70, "some three a minute in twenty minutes, not one by everybody each time"
    assert all(ids == [lost.message_id] for _, _, ids in medium.requests)


def test_many_gaps_of_many_participants_are_closed_with_about_one_answer_each(new_channel, send, start):
    author = new_channel("author")
    sent = [send(author, b"%d" % n, start + n) for n in range(30)]
    peers = [new_channel(f"p{n}", bloom_capacity=50) for n in range(20)]
    for number, peer in enumerate(peers):
        for place, message in enumerate(sent):
            if (number + place) % 3 or place > 27:
                peer.receive(message, None, start + place)
    medium = Broadcast(peers, start, delay_ms=100)
    medium.run(start + 500_000)
    assert all(len(peer.history) == 30 for peer in peers)
    assert 28 <= len(medium.answers) <= 40


def test_what_was_never_asked_for_need_not_wait_behind_what_was_asked_for_in_vain(new_channel, a_message, start):
    bob = new_channel("bob")
    for number in range(15):
        invented = (HistoryEntry(f"invented {number}-{each}") for each in range(20))
        bob.receive(a_message(f"forged {number}", *invented, sender="mallory", content=None), None, start)
    asked, now_ms = Counter(), start

    def ask_for(duration_ms):
        end_ms = now_ms + duration_ms
        for at_ms in range(now_ms, end_ms, 10_000):
            sync = bob.send_sync(at_ms)
            asked.update(entry.message_id for entry in (sync.repair_request if sync else ()))
        return end_ms

    now_ms = ask_for(1_800_000)
    assert len(asked) == 300, "all were asked for, and some of them more often"
    bob.receive(a_message("after it", "missed", lamport=now_ms), None, now_ms)
    now_ms = ask_for(bob.config.repair.window()[1] + 10_000)
    assert asked["missed"] == 1
    before = asked.copy()
    now_ms = ask_for(1_800_000)
    assert asked["missed"] > 1, "what was asked for in vain is asked for again"
    assert (asked - before).total() > 300


def test_what_a_message_lacks_alone_is_asked_for_as_often_as_may_be_beside_what_others_lack_in_plenty(
    new_channel, a_message, start
):
    bob = new_channel("bob")
    for number in range(6):
        invented = (HistoryEntry(f"invented {number}-{each}") for each in range(20))
        bob.receive(a_message(f"forged {number}", *invented, sender="mallory"), None, start)
    bob.receive(a_message("after it", "missed"), None, start)
    asked = Counter()
    for now_ms in range(start, start + bob.config.lost_timeout_ms, 20_000):
        asked.update(wanted(bob.send_sync(now_ms)))
    assert asked["missed"] >= 20, "every two minutes, once each of the others was asked for"
    assert len(asked) == 121
    assert min(asked.values()) >= 3, "nor is anything else forgotten"
