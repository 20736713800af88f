"""A node that takes only so many messages a second sets one pace for all that leaves through it; nothing is lost."""

from __future__ import annotations

import heapq
import itertools
import random

import pytest

from fairway.events import DeliveryError, IrretrievableMessage, Limit, LimitReached, MessageDelivered, MessageReceived
from fairway.nodes.protocols.request_limiter import RequestLimiter, RequestRate
from fairway.options import Advanced, ReliableChannelOptions, RepairConfig, SdsConfig, SegmentationConfig
from fairway.protocol.effects import NodeAnswer, Purpose

pytestmark = pytest.mark.xdist_group("pace")  # what its tests share is made once

HOP_MS = 5
MESSAGES = 800


class Road:
    """Peers and one service node between them, which loses nothing and refuses who asks too much (429)."""

    def __init__(self, peers, per_second, burst, *, says_too_many=True):
        self.peers, self.says_too_many = peers, says_too_many
        self.limiter = RequestLimiter(RequestRate(per_second=per_second, burst=burst))
        self.now_ms = peers[0].now_ms
        self.takes = lambda name: self.limiter.admit(name, self.now_ms / 1_000)
        self.taken = []
        self.refused = 0
        self._due, self._count = [], 0

    def later(self, act):
        self._count += 1
        heapq.heappush(self._due, (self.now_ms + HOP_MS, self._count, act))

    def collect(self):
        for peer in self.peers:
            for publication in list(peer.unanswered):
                peer.unanswered.remove(publication)
                self.later(lambda peer=peer, publication=publication: self.answer(peer, publication))

    def answer(self, peer, publication):
        taken = self.takes(peer.name)
        self.refused += not taken
        if taken:
            self.taken.append((peer.name, publication))
            for other in self.peers:
                if other is not peer:
                    self.later(lambda other=other: self.deliver(other, publication))
        too_many = self.says_too_many and not taken
        answer = NodeAnswer(accepted=taken, too_many=too_many)
        peer.do(peer.stack.published(publication.token, answer, self.now_ms))

    def deliver(self, peer, publication):
        peer.now_ms = self.now_ms
        peer.receive(publication)

    def run(self, for_ms, act_at=()):
        """Let time pass, doing things at times; return when nothing is due before its end."""
        end_ms = self.now_ms + for_ms
        for at_ms, act in act_at:
            self._count += 1
            heapq.heappush(self._due, (self.now_ms + at_ms, self._count, act))
        while True:
            self.collect()
            deadlines = [(at, peer) for peer in self.peers if (at := peer.stack.next_deadline()) is not None]
            at, peer = min(deadlines, key=lambda pair: pair[0], default=(end_ms + 1, None))
            if self._due and self._due[0][0] <= at:
                at, _, act = heapq.heappop(self._due)
                peer = None
            if at > end_ms:
                break
            self.now_ms = max(self.now_ms, at)
            for each in self.peers:
                each.now_ms = self.now_ms
            if peer is None:
                act()
            else:
                peer.tick()
        self.now_ms = end_ms


@pytest.fixture(scope="module")
def burst(peer):
    """Send as many messages, one each millisecond, through a node that takes 50 a second."""
    options = ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=15))
    alice, bob = peer("alice", options), peer("bob", options)
    road = Road([alice, bob], per_second=50, burst=100)
    sends = [(number, lambda number=number: alice.send(b"number %d" % number)) for number in range(MESSAGES)]
    road.run(90_000, sends)
    return alice, bob, road


def test_a_burst_through_a_node_with_a_limit_arrives_once_and_in_order(burst):
    alice, bob, _ = burst
    assert bob.payloads() == [b"number %d" % number for number in range(MESSAGES)]
    assert all(event.dependencies_met for event in bob.events(MessageReceived))
    assert len(alice.events(MessageDelivered)) == MESSAGES
    assert not alice.events(DeliveryError)


def test_on_a_network_that_loses_nothing_a_burst_is_not_retransmitted(burst):
    _, _, road = burst
    purposes = [publication.purpose for name, publication in road.taken if name == "alice"]
    assert purposes.count(Purpose.RETRY) == 0
    assert purposes.count(Purpose.CONTENT) == MESSAGES


def test_the_pace_is_learned_from_few_refusals_and_keeps_near_the_limit(burst):
    _, _, road = burst
    assert road.refused < 100
    contents = [publication for _, publication in road.taken if publication.purpose is Purpose.CONTENT]
    took_s = (contents[-1].message.timestamp_ns - contents[0].message.timestamp_ns) / 1e9
    assert took_s < 1.25 * (MESSAGES - 100) / 50


def test_a_message_gets_its_timestamp_when_it_leaves_however_long_it_waited(burst):
    _, _, road = burst
    times = [publication.message.timestamp_ns for _, publication in road.taken]
    assert max(times) - min(times) > 10e9
    # What was refused was stamped anew: its first stamp would be older than that of what was taken before it.
    assert all(later > earlier - 100e6 for earlier, later in itertools.pairwise(times))


def test_a_pace_that_holds_content_back_is_announced_once(burst):
    alice, _, _ = burst
    told = [event for event in alice.events(LimitReached) if event.limit is Limit.NODE_PACE]
    assert len(told) == 1


def test_a_node_that_takes_one_message_a_second_is_used_at_that_pace(peer):
    options = ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=15))
    alice, bob = peer("alice", options), peer("bob", options)
    road = Road([alice, bob], per_second=1, burst=1)
    for number in range(60):
        alice.send(b"number %d" % number)
    road.run(300_000)
    assert bob.payloads() == [b"number %d" % number for number in range(60)]
    assert road.refused < 30
    assert len([1 for _, publication in road.taken if publication.purpose is Purpose.RETRY]) <= 3


@pytest.mark.parametrize(("per_second", "of_all"), [(1, 0.35), (5, 0.7)])
def test_an_overloaded_node_that_does_not_say_too_many_is_not_flooded_and_gets_messages_in_order(
    peer, per_second, of_all
):
    options = ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=15))
    alice, bob = peer("alice", options), peer("bob", options)
    road = Road([alice, bob], per_second=per_second, burst=per_second, says_too_many=False)
    for number in range(300):
        alice.send(b"number %d" % number)
    road.run(60_000)
    received = bob.payloads()
    assert received == [b"number %d" % number for number in range(len(received))]
    assert len(received) > 60 * per_second * of_all
    assert road.refused < 5 * len(road.taken)


def test_what_a_node_refused_for_half_a_minute_leaves_within_seconds_of_its_recovery(peer):
    options = ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=15))
    alice, bob = peer("alice", options), peer("bob", options)
    road = Road([alice, bob], per_second=1_000, burst=1_000, says_too_many=False)
    recovers_ms = road.now_ms + 30_000
    road.takes = lambda _name: road.now_ms >= recovers_ms
    for number in range(300):
        alice.send(b"number %d" % number)
    road.run(36_000)
    assert bob.payloads() == [b"number %d" % number for number in range(300)]
    assert road.refused < 30


def test_a_node_that_refuses_every_other_message_at_random_is_not_left_at_a_crawl(peer, seed):
    options = ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=15))
    alice, bob = peer("alice", options), peer("bob", options)
    road = Road([alice, bob], per_second=1, burst=1, says_too_many=False)
    chance = random.Random(seed)
    road.takes = lambda _name: chance.random() < 0.5
    for number in range(300):
        alice.send(b"number %d" % number)
    road.run(60_000)
    assert sorted(bob.payloads()) == sorted(b"number %d" % number for number in range(300)), seed


def test_a_refused_segment_is_sent_again_before_later_ones(peer):
    alice = peer(options=ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=1)))
    for number in range(3):
        alice.send(b"number %d" % number)
    for _ in range(4):
        alice.answer(accepted=False, too_many=True)
        alice.pass_time(20_000, answer=False)
    alice.pass_time(20_000)
    sent = [alice.sds(publication).content for publication in alice.content()]
    assert sent == [b"number 0"] * 5 + [b"number 1", b"number 2"]


def test_a_refused_transmission_is_no_attempt_and_its_retry_waits_from_when_it_was_taken(peer):
    alice = peer(options=ReliableChannelOptions(sync_min_interval_ms=0))
    alice.send(b"hello")
    alice.answer(accepted=False)
    alice.pass_time(3_600_000, answer=False)
    alice.answer(accepted=False)
    alice.pass_time(10_000, answer=False)
    taken_ms = alice.now_ms
    alice.answer()
    assert not alice.published(Purpose.RETRY)
    alice.pass_time(29_999)
    assert not alice.published(Purpose.RETRY)
    alice.pass_time(1)
    [retry] = alice.published(Purpose.RETRY)
    assert retry.message.timestamp_ns // 1_000_000 == taken_ms + 30_000


@pytest.mark.parametrize("after_ms", [0, 5_000], ids=["said-before-it-is-refused", "said-after-it-was-refused"])
def test_one_message_that_the_node_never_takes_does_not_stop_the_others(peer, after_ms):
    alice = peer(options=ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=2), sync_min_interval_ms=0))
    alice.send(b"number 0")
    for _ in range(after_ms // 250):
        # From then on the node is tried with one at a time.
        for publication in list(alice.unanswered):
            alice.answer(publication, accepted=False)
        alice.pass_time(250, answer=False)
    for number in range(1, 4):
        alice.send(b"number %d" % number)
    taken = set()
    for _ in range(400):
        for publication in list(alice.unanswered):
            content = alice.sds(publication).content
            alice.answer(publication, accepted=content != b"number 0")
            if content != b"number 0":
                taken.add(content)
        alice.pass_time(250, answer=False)
    assert taken == {b"number 1", b"number 2", b"number 3"}
    assert not alice.events(DeliveryError)


def test_several_messages_that_the_node_never_takes_do_not_stop_the_others(peer):
    # Sync messages leave now and then, and show each time whose fault it is.
    alice = peer(
        options=ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=1), sync_min_interval_ms=30_000)
    )
    said = [b"number %d" % number for number in range(15)]
    for payload in said:
        alice.send(payload)
    taken = set()
    for _ in range(60_000 // 50):
        for publication in list(alice.unanswered):
            content = alice.sds(publication).content
            alice.answer(publication, accepted=content not in said[:3])
            taken |= {content} - {*said[:3]}
        alice.pass_time(50, answer=False)
    assert taken.issuperset(said[3:])


def test_one_sync_message_waits_at_most_however_often_the_node_refuses_it(peer):
    alice, bob = peer("alice"), peer("bob")
    for number in range(3):
        bob.send(b"from bob %d" % number)
    alice.receive(*bob.published(Purpose.CONTENT))
    alice.send(b"from alice")
    for _ in range(2_400):
        for publication in list(alice.unanswered):
            alice.answer(publication, accepted=False)
        alice.pass_time(250, answer=False)
        assert alice.stack.statistics().queued <= 2
    assert len(alice.published(Purpose.SYNC)) > 4


@pytest.mark.parametrize("seconds", range(8, 20, 2), ids="delivered-after-{}s".format)
def test_a_refused_segment_leaves_although_its_message_was_delivered_without_it(peer, seconds):
    options = ReliableChannelOptions(
        segmentation=SegmentationConfig(segment_size_bytes=64, parity_rate=0.5),
        sds=SdsConfig(repair=RepairConfig(enabled=False)),
    )
    alice, bob = peer("alice", options), peer("bob", options)
    alice.send(b"several segments" * 16)
    refused = alice.sds(alice.content()[1]).message_id
    taken = []

    def pass_time(for_ms, *, takes=lambda _: True, bob_is_heard=True):
        for _ in range(for_ms // 250):
            for publication in list(alice.unanswered):
                message_id = alice.sds(publication).message_id
                is_taken = takes(message_id)
                alice.answer(publication, accepted=is_taken)
                if is_taken:
                    taken.append(message_id)
                    bob.receive(publication)
            for publication in list(bob.unanswered) if bob_is_heard else ():
                bob.answer(publication)
                alice.receive(publication)
            alice.pass_time(250, answer=False)
            bob.pass_time(250, answer=False)

    for number in range(seconds):
        alice.send(b"number %d" % number)
        pass_time(1_000, takes=lambda message_id: message_id != refused, bob_is_heard=False)
    alice.receive(*bob.unanswered)
    assert b"several segments" * 16 in bob.payloads()
    assert alice.events(MessageDelivered)
    assert refused not in taken
    if seconds % 4:
        alice = alice.restart()
    pass_time(6_000)
    assert taken.count(refused) == 1
    pass_time(2 * 3_600_000)
    assert not bob.events(IrretrievableMessage)


@pytest.mark.full
def test_repairs_and_sync_messages_get_their_turn_within_a_long_burst(peer):
    options = ReliableChannelOptions(advanced=Advanced(max_concurrent_publishes=4))
    alice, bob = peer("alice", options), peer("bob", options)
    road = Road([alice, bob], per_second=5, burst=5)
    for number in range(500):
        alice.send(b"number %d" % number)
        bob.send(b"reply %d" % number)
    road.run(60_000)
    contents = [name for name, publication in road.taken if publication.purpose is Purpose.CONTENT]
    syncs = [name for name, publication in road.taken if publication.purpose is Purpose.SYNC]
    assert contents.count("alice") > 150
    assert syncs
