"""The manager against a model that keeps nothing but lists, and a ledger of what really left."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from fractions import Fraction
from math import floor
from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from examples import examples
from fairway.options import RateLimitConfig
from fairway.protocol.ratelimit import EpochQuota, Priority, QuotaSource, RateLimitManager

# Sixteen of the shortest epochs: as many as the counter keeps on record.
HORIZON_MS = 1_600
TIMES = st.integers(0, HORIZON_MS - 1)
LIMITS = st.integers(0, 6)
EPOCHS = st.sampled_from([100, 150, 200, 300])
THRESHOLDS = st.sampled_from([0.1, 0.5, 0.9, 1.0])


@dataclass
class Expected:
    """What the model knows of a queued item."""

    number: int
    sequence: int


@dataclass
class Ledger:
    """When each transmission was charged that really left, or was admitted and may still leave."""

    times: list[int] = field(default_factory=list)

    def in_epoch_of(self, now_ms: int, epoch_ms: int) -> int:
        return sum(at_ms // epoch_ms == now_ms // epoch_ms for at_ms in self.times)


class LimiterMachine(RuleBasedStateMachine):
    """Any order of sends, clock steps both ways, quota changes, faults and crashes."""

    @initialize(
        limit=st.none() | LIMITS,
        epoch_ms=EPOCHS,
        threshold=THRESHOLDS,
    )
    def begin(self, limit, epoch_ms, threshold):
        self.config = RateLimitConfig(
            enabled=limit is not None,
            messages_per_epoch=limit,
            epoch_ms=epoch_ms,
            approached_threshold=threshold,
        )
        self.told: dict[QuotaSource, tuple[int, int]] = {}
        self.saved = None
        self.manager: RateLimitManager[int] = self.new_manager()
        self.now_ms = 0
        # From then on the model no longer says that something must leave, only next_send_at does.
        self.was_exhausted = False
        self.queue: dict[Priority, list[Expected]] = {priority: [] for priority in Priority}
        self.out: list[tuple[Any, Expected]] = []
        self.ledger = Ledger()
        self.next_number = 0
        self.next_sequence = 0

    def new_manager(self) -> RateLimitManager[int]:
        def save() -> None:
            self.saved = json.dumps(manager.state())

        manager: RateLimitManager[int] = RateLimitManager(self.config, on_change=save)
        return manager

    def limits(self) -> list[tuple[int, int]]:
        """(limit, epoch length) of every limit in force."""
        limits = list(self.told.values())
        if self.config.messages_per_epoch is not None:
            limits.append((self.config.messages_per_epoch, self.config.epoch_ms))
        return limits

    def check_room(self, *, held: bool, ephemeral: bool = False) -> None:
        """The property: at the moment of a charge every limit had room in its aligned epoch."""
        for limit, epoch_ms in self.limits():
            used = self.ledger.in_epoch_of(self.now_ms, epoch_ms)
            note(f"at {self.now_ms}: {used} of {limit} used in the epoch of {epoch_ms} ms")
            assert used < limit
            threshold = Fraction(str(self.config.approached_threshold)) * limit
            if held:
                assert used < max(1, floor(threshold))
            if ephemeral:
                assert used < threshold

    @rule(burst=st.lists(st.sampled_from(Priority), min_size=1, max_size=6))
    def enqueue(self, burst):
        for priority in burst:
            self.manager.enqueue(self.next_number, priority, self.next_number)
            self.queue[priority].append(Expected(self.next_number, self.next_sequence))
            self.next_number += 1
            self.next_sequence += 1

    @rule()
    def admit(self):
        self.take()

    @rule()
    def admit_all(self):
        while self.take():
            pass

    def take(self) -> bool:
        admission = self.manager.admit(self.now_ms)
        fronts = {priority: entries[0] for priority, entries in self.queue.items() if entries}
        if admission is None:
            if not self.limits():
                assert not fronts or self.was_exhausted
            return False
        priority = admission.entry.priority
        expected = fronts[priority]
        # First in, first out within a class, and what left is what came in.
        assert admission.item == expected.number
        assert admission.entry.sequence == expected.sequence
        # After some of a class a less urgent one has a turn, or acknowledgements would starve. Under a rate limit no
        # other class has a turn before content.
        assert not self.manager.limiting or priority is Priority.CONTENT or Priority.CONTENT not in fronts
        assert json.loads(self.saved) == json.loads(json.dumps(self.manager.state()))
        self.check_room(held=priority is not Priority.CONTENT)
        self.ledger.times.append(self.now_ms)
        self.queue[priority].pop(0)
        self.out.append((admission, expected))
        return True

    @rule(data=st.data())
    @precondition(lambda self: self.out)
    def put_back(self, data):
        admission, expected = self.out.pop(data.draw(st.integers(0, len(self.out) - 1), label="which"))
        self.manager.put_back(admission)
        entries = self.queue[admission.entry.priority]
        entries.append(expected)
        entries.sort(key=lambda entry: entry.sequence)
        self.ledger.times.remove(admission.admitted_at_ms)

    @rule()
    def everything_admitted_has_left(self):
        self.out.clear()

    @rule()
    def send_ephemeral(self):
        if self.manager.admit_ephemeral(self.now_ms) is None:
            self.check_room(held=False, ephemeral=True)
            self.ledger.times.append(self.now_ms)
        else:
            assert self.limits() or self.was_exhausted

    @rule(number=st.integers(0, 20))
    def discard(self, number):
        waits = any(entry.number == number for entries in self.queue.values() for entry in entries)
        assert self.manager.is_queued(number) == waits
        assert self.manager.discard(number) == waits
        for entries in self.queue.values():
            entries[:] = [entry for entry in entries if entry.number != number]

    @rule(step_ms=st.integers(1, 120))
    def wait(self, step_ms):
        self.now_ms = min(self.now_ms + step_ms, HORIZON_MS - 1)

    @rule(now_ms=TIMES)
    def step_clock(self, now_ms):
        self.now_ms = now_ms

    @rule()
    def sleep_until_the_next_send(self):
        opens = self.manager.next_send_at(self.now_ms)
        queued = sum(map(len, self.queue.values()))
        if opens is None:
            assert not queued or any(limit == 0 for limit, _ in self.limits())
            return
        assert queued
        assert opens >= self.now_ms
        if opens >= HORIZON_MS:
            return
        if opens > self.now_ms:
            self.now_ms = opens - 1
            assert not self.take()
        self.now_ms = opens
        assert self.take()

    @rule(limit=st.none() | LIMITS, epoch_ms=st.none() | EPOCHS, remaining=st.none() | LIMITS)
    def node_tells(self, limit, epoch_ms, remaining):
        index = self.now_ms // (epoch_ms or self.config.epoch_ms)
        told = {"epoch_index": index, "remaining": remaining, "epoch_ms": epoch_ms}
        quota = None if limit is None else EpochQuota(rate_limit=limit, **told)
        self.manager.set_quota(QuotaSource.NODE, quota, self.now_ms)
        self.note_told(QuotaSource.NODE, limit, epoch_ms)

    @rule(
        limit=st.none() | LIMITS,
        epoch_ms=st.none() | EPOCHS,
        remaining=st.none() | LIMITS,
        index=st.integers(0, 16),
    )
    def provider_tells(self, limit, epoch_ms, remaining, index):
        quota = None
        if limit is not None:
            quota = EpochQuota(epoch_index=index, rate_limit=limit, remaining=remaining, epoch_ms=epoch_ms)
        self.manager.set_quota(QuotaSource.PROVIDER, quota, self.now_ms)
        self.note_told(QuotaSource.PROVIDER, limit, epoch_ms)

    def note_told(self, source, limit, epoch_ms):
        self.told.pop(source, None)
        if limit is not None:
            self.told[source] = (limit, epoch_ms or self.config.epoch_ms)

    @rule()
    def provider_is_exhausted(self):
        self.manager.exhaust(self.now_ms)
        assert self.manager.admit(self.now_ms) is None
        self.was_exhausted = True

    @rule(data=st.data())
    def crash(self, data):
        """The process ends; the caller has its queue on disk and the last state that was saved."""
        self.manager = self.new_manager()
        if self.saved is not None:
            self.manager.restore(json.loads(self.saved))
        self.out.clear()
        entries = [(priority, entry) for priority in Priority for entry in self.queue[priority]]
        self.next_sequence = 0
        for priority, entry in data.draw(st.permutations(entries), label="order on disk"):
            self.manager.enqueue(entry.number, priority, entry.number, entry.sequence)
            self.next_sequence = max(self.next_sequence, entry.sequence + 1)

    @invariant()
    def nothing_is_lost_or_duplicated(self):
        if not hasattr(self, "manager"):
            return
        counts = {priority: self.manager.queued(priority) for priority in Priority}
        assert counts == {priority: len(entries) for priority, entries in self.queue.items()}
        assert 0 <= self.manager.utilization(self.now_ms) <= 100


TestLimiter = LimiterMachine.TestCase
TestLimiter.settings = examples(0.8, stateful_step_count=40)


@given(
    limit=LIMITS,
    threshold=THRESHOLDS,
    steps=st.lists(st.tuples(st.integers(0, 60), st.none() | st.sampled_from(Priority)), max_size=60),
)
def test_while_the_clock_runs_forwards_exactly_what_has_room_leaves(limit, threshold, steps):
    manager: RateLimitManager[int] = RateLimitManager(
        RateLimitConfig(enabled=True, messages_per_epoch=limit, epoch_ms=100, approached_threshold=threshold)
    )
    waiting: dict[Priority, list[int]] = {priority: [] for priority in Priority}
    held_slots = min(limit, max(1, int(Fraction(str(threshold)) * limit)))
    now_ms, epoch, used = 0, 0, 0
    for number, (step_ms, priority) in enumerate(steps):
        now_ms += step_ms
        if now_ms // 100 != epoch:
            epoch, used = now_ms // 100, 0
        if priority is not None:
            manager.enqueue(number, priority, number)
            waiting[priority].append(number)
        expected = None
        for candidate in Priority:
            is_spread = candidate in (Priority.RETRY, Priority.SYNC)
            has_room = used < (limit if candidate is Priority.CONTENT else held_slots)
            if waiting[candidate] and has_room and not (is_spread and now_ms % 100 * held_slots < used * 100):
                expected = waiting[candidate].pop(0)
                used += 1
                break
        admission = manager.admit(now_ms)
        assert (None if admission is None else admission.item) == expected
        assert manager.utilization(now_ms) == (100 * used // limit if limit else 100)


@given(
    reports=st.lists(st.tuples(st.integers(0, 10), st.integers(0, 5)), min_size=1, max_size=10),
)
def test_after_each_report_no_more_is_sent_than_the_node_said_was_left(reports):
    manager: RateLimitManager[int] = RateLimitManager(RateLimitConfig(epoch_ms=100))
    total = 0
    for remaining, wanted in reports:
        manager.set_quota(QuotaSource.NODE, EpochQuota(epoch_index=0, rate_limit=10, remaining=remaining), 0)
        for number in range(wanted):
            manager.enqueue(number, Priority.CONTENT, object())
        sent = 0
        while manager.admit(0) is not None:
            sent += 1
        total += sent
        assert sent <= remaining
        assert total <= 10
