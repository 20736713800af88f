"""The rules by which the workers of a group share its requests."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from fairway.events import OrderKey
from fairway.protocol.work_queue import LEASE_MS, SETTLE_MS, TURN_MS, RequestKey, WorkQueue

_NAMES = ("bob", "carol", "dave")
_REQUESTS = [RequestKey("alice", f"{number}") for number in range(40)]


def _queue(worker, *, now_ms=0, requests=_REQUESTS, others=_NAMES):
    """A worker that knows the others, and some new requests."""
    queue = WorkQueue(worker)
    for number, other in enumerate(others):
        if other != worker:
            queue.claimed(other, None, OrderKey(0, str(number)), now_ms)
    for request in requests:
        queue.add(request, now_ms)
    return queue


def _choices(request):
    """When each worker claims a request, the first worker first."""
    choices = {name: _queue(name, requests=[request]).next(0).at_ms for name in _NAMES}
    return sorted((at_ms, name) for name, at_ms in choices.items())


def test_one_worker_claims_a_new_request_at_once_and_each_further_one_a_turn_later():
    for request in _REQUESTS:
        assert [at_ms for at_ms, _ in _choices(request)] == [0, TURN_MS, 2 * TURN_MS]
    assert {_choices(request)[0][1] for request in _REQUESTS} == set(_NAMES)


def test_workers_begin_a_queue_at_different_requests():
    assert len({_queue(name).next(0).request for name in _NAMES}) == len(_NAMES)


def test_nobody_waits_for_a_busy_worker_or_twice_for_one_that_takes_nothing():
    request, other = _REQUESTS[:2]
    (_, first), (_, second), _ = _choices(request)
    busy = _queue(second, requests=[request, other])
    busy.claimed(first, other, OrderKey(1, ""), 0)
    assert busy.next(0) == (request, 0)
    later = next(each for each in _REQUESTS[2:] if [name for _, name in _choices(each)][:2] == [first, second])
    asleep = _queue(second, requests=[request])
    assert asleep.next(0) == (request, TURN_MS)
    assert not asleep.take(request, TURN_MS)
    asleep.remove(request)
    asleep.add(later, TURN_MS)
    assert asleep.next(TURN_MS) == (later, TURN_MS)
    asleep.claimed(first, None, OrderKey(2, ""), TURN_MS)
    assert asleep.next(TURN_MS) == (later, 2 * TURN_MS)


def test_a_request_is_free_when_its_claim_lapses_or_its_worker_leaves():
    [request] = requests = _REQUESTS[:1]
    (_, first), (_, second), _ = _choices(request)
    queue = _queue(second, requests=requests)
    queue.claimed(first, request, OrderKey(1, ""), 0)
    assert queue.holders(request, LEASE_MS - 1) == [first]
    assert queue.next(0) == (request, LEASE_MS)
    queue.claimed(first, request, OrderKey(2, ""), LEASE_MS - 1)
    assert queue.next(LEASE_MS) == (request, 2 * LEASE_MS - 1)
    queue.left(first, LEASE_MS)
    assert queue.next(LEASE_MS) == (request, LEASE_MS)


def test_of_claims_at_the_same_time_one_holds_and_a_restarted_worker_respects_any_other():
    request = _REQUESTS[0]
    begins = {}
    for name in _NAMES:
        queue = _queue(name, requests=[request])
        for other in _NAMES:
            if other != name:
                queue.claimed(other, request, OrderKey(1, other), 0)
        begins[name] = queue.may_begin(request, 0, is_resumed=False)
        assert not queue.may_begin(request, 0, is_resumed=True)
    assert [name for name, may in begins.items() if may] == [_choices(request)[0][1]]


def test_a_request_for_which_others_come_first_is_not_passed_over_for_ever():
    late = next(request for request in _REQUESTS if _choices(request)[-1][1] == "bob")
    queue = _queue("bob", requests=[late])
    for name in ("carol", "dave"):
        queue.claimed(name, busy := RequestKey("alice", f"long of {name}"), OrderKey(1, name), 0)
        queue.add(busy, 0)
    now_ms = 0
    while queue.next(now_ms).request != late:
        queue.remove(queue.next(now_ms).request)
        now_ms += 1_000
        queue.add(RequestKey("alice", f"new at {now_ms}"), now_ms)
        assert now_ms <= 2 * TURN_MS


def test_claims_of_many_names_take_a_bounded_amount_of_memory():
    queue = WorkQueue("bob")
    for number in range(3_000):
        queue.claimed(f"worker {number}", _REQUESTS[0], OrderKey(number, ""), 0)
    queue.add(_REQUESTS[0], 0)
    assert len(queue.holders(_REQUESTS[0], 0)) == 1_000


@given(
    claims=st.lists(
        st.tuples(st.sampled_from(_NAMES), st.sampled_from([*_REQUESTS[:4], None])), min_size=1, max_size=12
    ).flatmap(lambda claims: st.tuples(st.just(list(enumerate(claims))), st.permutations(list(enumerate(claims)))))
)
def test_the_order_in_which_claims_arrive_changes_no_decision(claims):
    decisions = []
    for order in claims:
        queue = WorkQueue("erin")
        for request in _REQUESTS[:4]:
            queue.add(request, 0)
        for place, (name, request) in order:
            queue.claimed(name, request, OrderKey(place, ""), 0)
        decisions.append((queue.next(0), [sorted(queue.holders(request, 0)) for request in _REQUESTS[:4]]))
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
        self.requests, self.begun = 0, []
        for member in self.members.values():
            self.claim(member, None)
        self.arrive_all()

    def claim(self, member, request):
        member.held = request
        self.places += 1
        place = OrderKey(self.places, member.name)
        self.tell(lambda other: other.queue.claimed(member.name, request, place, self.now_ms), but=member.name)

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
            assert not queue.holders(choice.request, self.now_ms)
            is_first = queue.take(choice.request, self.now_ms)
            self.claim(member, choice.request)
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
        request, member.held, member.is_at_work = member.held, None, False
        member.queue.remove(request)
        self.tell(lambda other: other.queue.remove(request), but=member.name)

    @rule()
    def ask(self):
        request = RequestKey("alice", f"{self.requests}")
        self.requests += 1
        self.tell(lambda other: other.queue.add(request, self.now_ms))

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
        asked = self.requests
        for _ in range(5 * (asked + 2)):
            for member in self.members.values():
                self.arrive_all()
                self.act(member)
                if member.is_at_work:
                    self.finish(member)
            self.arrive_all()
            self.now_ms += TURN_MS
        assert {request.correlation_id for request in self.begun} == {f"{number}" for number in range(asked)}
        self.ask()
        for _ in range(4):
            for member in self.members.values():
                self.arrive_all()
                self.act(member)
            self.now_ms += TURN_MS
        assert [request.correlation_id for request in self.begun].count(f"{asked}") == 1


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=50, stateful_step_count=60, deadline=None)
