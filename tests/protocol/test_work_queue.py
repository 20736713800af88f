"""The rules by which the workers of a group share its requests."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from fairway.events import OrderKey
from fairway.protocol.work_queue import LEASE_MS, SETTLE_MS, TURN_MS, Task, WorkQueue

_NAMES = ("bob", "carol", "dave")
_TASKS = [Task("alice", f"{number}") for number in range(40)]


def _queue(worker, *, now_ms=0, tasks=_TASKS, others=_NAMES):
    """A worker that knows the others, and some new requests."""
    queue = WorkQueue(worker)
    for number, other in enumerate(others):
        if other != worker:
            queue.claimed(other, None, OrderKey(0, str(number)), now_ms)
    for task in tasks:
        queue.add(task, now_ms)
    return queue


def _choices(task):
    """When each worker claims a request, the first worker first."""
    choices = {name: _queue(name, tasks=[task]).next(0).at_ms for name in _NAMES}
    return sorted((at_ms, name) for name, at_ms in choices.items())


def test_one_worker_claims_a_new_request_at_once_and_each_further_one_a_turn_later():
    for task in _TASKS:
        assert [at_ms for at_ms, _ in _choices(task)] == [0, TURN_MS, 2 * TURN_MS]
    assert {_choices(task)[0][1] for task in _TASKS} == set(_NAMES)


def test_workers_begin_a_queue_at_different_requests():
    assert len({_queue(name).next(0).task for name in _NAMES}) == len(_NAMES)


def test_nobody_waits_for_a_busy_worker_or_twice_for_one_that_takes_nothing():
    task, other = _TASKS[:2]
    (_, first), (_, second), _ = _choices(task)
    busy = _queue(second, tasks=[task, other])
    busy.claimed(first, other, OrderKey(1, ""), 0)
    assert busy.next(0) == (task, 0)
    later = next(each for each in _TASKS[2:] if [name for _, name in _choices(each)][:2] == [first, second])
    asleep = _queue(second, tasks=[task])
    assert asleep.next(0) == (task, TURN_MS)
    assert not asleep.take(task, TURN_MS)
    asleep.remove(task)
    asleep.add(later, TURN_MS)
    assert asleep.next(TURN_MS) == (later, TURN_MS)
    asleep.claimed(first, None, OrderKey(2, ""), TURN_MS)
    assert asleep.next(TURN_MS) == (later, 2 * TURN_MS)


def test_a_request_is_free_when_its_claim_lapses_or_its_worker_leaves():
    [task] = tasks = _TASKS[:1]
    (_, first), (_, second), _ = _choices(task)
    queue = _queue(second, tasks=tasks)
    queue.claimed(first, task, OrderKey(1, ""), 0)
    assert queue.holders(task, LEASE_MS - 1) == [first]
    assert queue.next(0) == (task, LEASE_MS)
    queue.claimed(first, task, OrderKey(2, ""), LEASE_MS - 1)
    assert queue.next(LEASE_MS) == (task, 2 * LEASE_MS - 1)
    queue.left(first, LEASE_MS)
    assert queue.next(LEASE_MS) == (task, LEASE_MS)


def test_of_claims_at_the_same_time_one_holds_and_a_restarted_worker_respects_any_other():
    task = _TASKS[0]
    begins = {}
    for name in _NAMES:
        queue = _queue(name, tasks=[task])
        for other in _NAMES:
            if other != name:
                queue.claimed(other, task, OrderKey(1, other), 0)
        begins[name] = queue.may_begin(task, 0, is_resumed=False)
        assert not queue.may_begin(task, 0, is_resumed=True)
    assert [name for name, may in begins.items() if may] == [_choices(task)[0][1]]


def test_a_request_for_which_others_come_first_is_not_passed_over_for_ever():
    late = next(task for task in _TASKS if _choices(task)[-1][1] == "bob")
    queue = _queue("bob", tasks=[late])
    for name in ("carol", "dave"):
        queue.claimed(name, busy := Task("alice", f"long of {name}"), OrderKey(1, name), 0)
        queue.add(busy, 0)
    now_ms = 0
    while queue.next(now_ms).task != late:
        queue.remove(queue.next(now_ms).task)
        now_ms += 1_000
        queue.add(Task("alice", f"new at {now_ms}"), now_ms)
        assert now_ms <= 2 * TURN_MS


def test_claims_of_many_names_take_a_bounded_amount_of_memory():
    queue = WorkQueue("bob")
    for number in range(3_000):
        queue.claimed(f"worker {number}", _TASKS[0], OrderKey(number, ""), 0)
    queue.add(_TASKS[0], 0)
    assert len(queue.holders(_TASKS[0], 0)) == 1_000


@given(
    claims=st.lists(
        st.tuples(st.sampled_from(_NAMES), st.sampled_from([*_TASKS[:4], None])), min_size=1, max_size=12
    ).flatmap(lambda claims: st.tuples(st.just(list(enumerate(claims))), st.permutations(list(enumerate(claims)))))
)
def test_the_order_in_which_claims_arrive_changes_no_decision(claims):
    decisions = []
    for order in claims:
        queue = WorkQueue("erin")
        for task in _TASKS[:4]:
            queue.add(task, 0)
        for place, (name, task) in order:
            queue.claimed(name, task, OrderKey(place, ""), 0)
        decisions.append((queue.next(0), [sorted(queue.holders(task, 0)) for task in _TASKS[:4]]))
    assert decisions[0] == decisions[1]


class _Member:
    """A worker that follows the rules, as `fairway.channel.working` does."""

    def __init__(self, name):
        self.name, self.queue = name, WorkQueue(name)
        self.held = self.settles_ms = None
        self.is_at_work = False


class Group(RuleBasedStateMachine):
    """Three workers; messages between them arrive at any time, each sender's in order."""

    def __init__(self):
        super().__init__()
        self.now_ms = 0
        self.places = 0
        self.members = {name: _Member(name) for name in _NAMES}
        self.under_way = {name: [] for name in _NAMES}
        self.tasks, self.begun = 0, []
        for member in self.members.values():
            self.claim(member, None)
        self.arrive_all()

    def claim(self, member, task):
        member.held = task
        self.places += 1
        place = OrderKey(self.places, member.name)
        self.tell(lambda other: other.queue.claimed(member.name, task, place, self.now_ms), but=member.name)

    def tell(self, what, but=None):
        for name, waiting in self.under_way.items():
            if name != but:
                waiting.append(what)

    def arrive_all(self):
        for name, waiting in self.under_way.items():
            while waiting:
                waiting.pop(0)(self.members[name])

    def act(self, member):
        queue = member.queue
        if member.is_at_work:
            return
        if member.held is None:
            choice = queue.next(self.now_ms)
            if choice is None or choice.at_ms > self.now_ms:
                return
            assert not queue.holders(choice.task, self.now_ms)
            is_first = queue.take(choice.task, self.now_ms)
            self.claim(member, choice.task)
            member.settles_ms = self.now_ms if is_first else self.now_ms + SETTLE_MS
        if self.now_ms < member.settles_ms:
            return
        if member.held not in queue.open:
            member.held = None
        elif queue.may_begin(member.held, self.now_ms, is_resumed=False):
            member.is_at_work = True
            self.begun.append(member.held)
        else:
            self.claim(member, None)

    def finish(self, member):
        task, member.held, member.is_at_work = member.held, None, False
        member.queue.remove(task)
        self.tell(lambda other: other.queue.remove(task), but=member.name)

    @rule()
    def ask(self):
        task = Task("alice", f"{self.tasks}")
        self.tasks += 1
        self.tell(lambda other: other.queue.add(task, self.now_ms))

    @rule(name=st.sampled_from(_NAMES))
    def arrives(self, name):
        if self.under_way[name]:
            self.under_way[name].pop(0)(self.members[name])

    @rule(name=st.sampled_from(_NAMES))
    def acts(self, name):
        self.act(self.members[name])

    @rule(name=st.sampled_from(_NAMES))
    def finishes(self, name):
        if self.members[name].is_at_work:
            self.finish(self.members[name])

    @rule(seconds=st.sampled_from([1, 5, 20, 400]))
    def time_passes(self, seconds):
        self.now_ms += seconds * 1_000

    def teardown(self):
        """From here on messages arrive at once: every request is begun, and a new one exactly once."""
        asked = self.tasks
        for _ in range(5 * (asked + 2)):
            for member in self.members.values():
                self.arrive_all()
                self.act(member)
                if member.is_at_work:
                    self.finish(member)
            self.arrive_all()
            self.now_ms += TURN_MS
        assert {task.correlation_id for task in self.begun} == {f"{number}" for number in range(asked)}
        self.ask()
        for _ in range(4):
            for member in self.members.values():
                self.arrive_all()
                self.act(member)
            self.now_ms += TURN_MS
        assert [task.correlation_id for task in self.begun].count(f"{asked}") == 1


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=50, stateful_step_count=60, deadline=None)
