"""Whatever arrives of several messages, in whatever order: each that can be whole is delivered once."""

import random

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from examples import examples
from fairway.options import SegmentationConfig
from fairway.protocol.segmentation.reassembler import Reassembler
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS
from segment_answers import answered

SHARED_PAYLOADS = [random.Random(seed).randbytes(900) for seed in range(2)]


class ReassemblyMachine(RuleBasedStateMachine):
    """Senders send, the network reorders, repeats and loses, a receiver reassembles."""

    sent = Bundle("sent")

    @initialize(
        segment_format=st.sampled_from([WAKU_SEGMENTS, LIP_243]),
        rate=st.sampled_from([0.0, 0.25, 1.0]),
    )
    def begin(self, segment_format, rate):
        config = SegmentationConfig(segment_size_bytes=192, parity_rate=rate)
        self.segmenter = Segmenter(config, segment_format)
        self.reassembler = Reassembler(config, segment_format)
        self.payload_of = {}
        self.needed = {}
        self.arrived = {}
        self.delivered = {}
        self.clocks = {}

    @rule(
        target=sent,
        sender_id=st.sampled_from(["alice", "bob", "carol"]),
        payload=st.one_of(
            st.binary(min_size=1, max_size=2_000),
            st.integers(1, 2_000).map(bytes),
            st.sampled_from(SHARED_PAYLOADS),
        ),
    )
    def send(self, sender_id, payload):
        message = len(self.payload_of)
        known = {(sender, sent) for sender, sent in self.payload_of.values()}
        if (sender_id, payload) in known:
            # Repeated sendings have tests of their own: here it must be certain what is whole.
            payload += message.to_bytes(4, "big")
        parts = self.segmenter.split(payload).segments
        clock = self.clocks.get(sender_id, 0)
        self.clocks[sender_id] = clock + len(parts)
        self.payload_of[message] = sender_id, payload
        self.needed[message] = parts[0].data_count
        self.arrived[message] = set()
        return message, sender_id, clock, parts

    @rule(sending=sent, data=st.data())
    def some_segments_arrive(self, sending, data):
        message, sender_id, clock, parts = sending
        for order in data.draw(st.lists(st.integers(0, len(parts) - 1), max_size=len(parts))):
            self._arrive(message, sender_id, clock + order, parts[order], order)

    @rule(sending=sent, data=st.data())
    def all_segments_arrive(self, sending, data):
        message, sender_id, clock, parts = sending
        for order in data.draw(st.permutations(range(len(parts)))):
            self._arrive(message, sender_id, clock + order, parts[order], order)

    def _arrive(self, message, sender_id, order_key, part, order):
        known, before = order in self.arrived[message], message in self.delivered
        self.arrived[message].add(order)
        outcome = self.reassembler.accept(sender_id, f"{message}/{order}", order_key, part.content, now_ms=0)
        match answered(outcome):
            case "whole" | "complete" as answer:
                assert (sender_id, outcome.payload) == self.payload_of[message]
                assert answer == "whole" or not before
                self.delivered[message] = outcome.payload
            case "kept":
                assert not known
                assert not before
            case "duplicate":
                assert known
                assert not before
            case "late":
                assert before
            case _:
                raise AssertionError(outcome)

    @invariant()
    def whatever_can_be_whole_was_delivered(self):
        for message, arrived in getattr(self, "arrived", {}).items():
            tells_data_count = any(order < self.needed[message] for order in arrived)
            if len(arrived) >= self.needed[message] and (tells_data_count or message in self.delivered):
                assert self.delivered.get(message) == self.payload_of[message][1]
            elif len(arrived) < self.needed[message]:
                assert message not in self.delivered

    @invariant()
    def what_is_held_is_what_was_not_delivered(self):
        if hasattr(self, "reassembler"):
            waiting = [
                message for message, arrived in self.arrived.items() if arrived and message not in self.delivered
            ]
            statistics = self.reassembler.statistics()
            assert statistics.open_sets == len(waiting)
            assert statistics.open_segments == sum(len(self.arrived[message]) for message in waiting)


ReassemblyMachine.TestCase.settings = examples(0.4, stateful_step_count=25)
TestReassembly = ReassemblyMachine.TestCase
