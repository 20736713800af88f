"""Channels over a medium that loses, delays, duplicates and reorders; and what holds all the same."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import examples
from fairway.options import BloomPolicy, IdRule, Profile, RepairConfig, SdsConfig
from fairway.protocol.sds.acknowledgements import Evidence
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import DependenciesLost, MessageArrived, MessageReady, MessageReviewed
from fairway.wire.sds import Kind

START = 1_700_000_000_000
NAMES = ("alice", "bob", "carol", "dave")
numbers = st.integers(0, 11)
fates = st.lists(st.sampled_from(["now", "now", "later", "twice", "never"]), max_size=3)


class Medium(RuleBasedStateMachine):
    """Two to four participants; a transmission is on its way to each of the others until it is taken off the air."""

    def __init__(self):
        super().__init__()
        self.now_ms = START
        self.on_air = []
        self.everything = {}
        self.wanted = {}
        """How many are to acknowledge a message before its sender forgets it."""
        self.count = 0

    @initialize(
        participants=st.integers(2, 4),
        profile=st.sampled_from([Profile.WAKU, Profile.LOGOS]),
        cited=st.sampled_from([1, 2, 5]),
        policies=st.lists(st.sampled_from(BloomPolicy), min_size=4, max_size=4),
    )
    def begin(self, participants, profile, cited, policies):
        rule = IdRule.UNIQUE if profile is Profile.WAKU else IdRule.KECCAK_TIMESTAMP
        config = SdsConfig(
            causal_history_size=cited,
            bloom_capacity=300,
            lost_timeout_ms=0,
            id_rule=rule,
            repair=RepairConfig(t_min_ms=1_000, t_max_ms=5_000),
        )
        self.channels = {
            name: MessageChannel("ch", name, replace(config, bloom_policy=policy), now_ms=START, profile=profile)
            for name, policy in zip(NAMES[:participants], policies, strict=False)
        }
        self.codec = profile.codec
        self.delivered = {name: [] for name in self.channels}
        self.arrived = {name: set() for name in self.channels}

    def put_on_air(self, sender, encoded, fates=()):
        """Transmit: to each of the others now, later, twice, or never; later where nothing is said."""
        others = [name for name in self.channels if name != sender]
        for name, fate in zip(others, (*fates, *["later"] * 3), strict=False):
            if fate in {"later", "twice"}:
                self.on_air.append((name, encoded))
            if fate in {"now", "twice"}:
                self.hand_over(name, encoded)

    def name_of(self, number):
        return sorted(self.channels)[number % len(self.channels)]

    def hand_over(self, name, encoded):
        channel = self.channels[name]
        message = self.codec.decode(encoded)
        held_before = set(self.delivered[name]) | {i for i, m in self.everything.items() if m.sender_id == name}
        for outcome in channel.receive(message, b"h" * 32, self.now_ms, encoded):
            self.check(name, outcome, message, held_before)

    def check(self, name, outcome, message, held):
        match outcome:
            case MessageArrived(message=new, kind=Kind.CONTENT):
                assert new.message_id not in self.arrived[name], "arrived twice"
                self.arrived[name].add(new.message_id)
            case MessageReady(message=new, dependencies_met=met):
                assert new.message_id not in held, "delivered twice, or one's own"
                assert all(entry.message_id in held for entry in new.causal_history), "delivered before its causes"
                assert met
                assert new == self.everything[new.message_id]
                held.add(new.message_id)
                self.delivered[name].append(new.message_id)
            case MessageReviewed(review=review):
                assert self.everything[review.message_id].sender_id == name
                assert name not in review.acknowledged_by
                if review.evidence in {Evidence.CITED, Evidence.DESCENDANT}:
                    assert review.participant == message.sender_id
                    assert review.message_id in self.channels[review.participant].history, "does not hold it"
                if len(review.acknowledged_by) >= self.wanted[review.message_id]:
                    self.channels[name].forget_outgoing(review.message_id)
            case DependenciesLost():
                pytest.fail("nothing may be given up")

    @rule(number=numbers, content=st.sampled_from([b"ok", b"yes"]), wanted=st.integers(1, 2), fates=fates)
    def send(self, number, content, wanted, fates):
        name = self.name_of(number)
        message = self.channels[name].send(content, self.now_ms)
        assert message.message_id not in self.everything, "ids are unique whatever is said"
        self.everything[message.message_id] = message
        self.wanted[message.message_id] = wanted
        self.put_on_air(name, self.codec.encode(message), fates)

    @rule(senders=st.lists(numbers, min_size=2, max_size=6), fates=fates)
    def all_speak_at_once(self, senders, fates):
        for number in senders:
            self.send(number, b"ok", 1, fates)

    @rule(number=numbers, fates=fates)
    def sync(self, number, fates):
        name = self.name_of(number)
        message = self.channels[name].send_sync(self.now_ms)
        if message is not None:
            self.put_on_air(name, self.codec.encode(message), fates)

    @precondition(lambda self: self.on_air)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "arrives", "arrives", "is doubled", "is lost"]))
    def something_on_air(self, data, fate):
        index = data.draw(st.integers(0, len(self.on_air) - 1))
        name, encoded = self.on_air[index] if fate == "is doubled" else self.on_air.pop(index)
        if fate != "is lost":
            self.hand_over(name, encoded)

    @precondition(lambda self: self.on_air)
    @rule(count=st.integers(1, 10))
    def a_quiet_moment(self, count):
        arriving, self.on_air = self.on_air[:count], self.on_air[count:]
        for name, encoded in arriving:
            self.hand_over(name, encoded)

    @rule(number=numbers, fates=fates)
    def send_again(self, number, fates):
        name = self.name_of(number)
        for waiting in self.channels[name].outgoing:
            self.put_on_air(name, self.codec.encode(waiting.message), fates)

    @rule(passed_ms=st.integers(1, 6_000))
    def time_passes(self, passed_ms):
        self.now_ms += passed_ms
        for name, channel in self.channels.items():
            for message_id, encoded in channel.sweep_repair(self.now_ms):
                assert self.codec.decode(encoded) == self.everything[message_id], "an answer is the original"
                self.put_on_air(name, encoded)
            for outcome in channel.sweep_incoming(self.now_ms):
                self.check(name, outcome, None, set())

    @invariant()
    def histories_are_in_order(self):
        for channel in self.channels.values():
            order = [(record.lamport, record.message_id) for record in channel.history]
            assert order == sorted(order)

    @invariant()
    def nothing_is_held_that_was_not_sent(self):
        for channel in self.channels.values():
            assert len(channel.history) + len(channel.parked) <= len(self.everything)
            assert len(channel.missing) <= len(self.everything)
            assert len(channel.repair.requests) <= len(channel.missing)
            assert len(channel.outgoing) <= len(self.everything)

    def teardown(self):
        """The medium heals; after some rounds everybody has everything, and every author knows it of somebody."""
        if not self.everything:
            return
        for _ in range(60):
            while self.on_air:
                self.a_quiet_moment(len(self.on_air))
            if all(len(c.history) == len(self.everything) and not len(c.outgoing) for c in self.channels.values()):
                break
            self.time_passes(30_000)
            for name, channel in self.channels.items():
                waiting = [outgoing.message for outgoing in channel.outgoing]
                for message in (*waiting, channel.send_sync(self.now_ms)):
                    if message is not None:
                        self.put_on_air(name, self.codec.encode(message))
        expected = sorted((m.lamport_timestamp, i) for i, m in self.everything.items())
        for name, channel in self.channels.items():
            assert [(record.lamport, record.message_id) for record in channel.history] == expected
            own = {i for i, m in self.everything.items() if m.sender_id == name}
            assert sorted(self.delivered[name]) == sorted(self.everything.keys() - own)
            assert not channel.missing
            assert not channel.parked
            assert len(channel.outgoing) == 0 or len(self.channels) == 2


TestMedium = Medium.TestCase
TestMedium.settings = examples(0.5, stateful_step_count=40)
