"""The state as rows: changes fold to the snapshot, and a restored channel goes on as the one that wrote them."""

from collections import Counter
from copy import deepcopy

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs

from examples import examples
from fairway.errors import SnapshotError
from fairway.options import Profile, RepairConfig, SdsConfig
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import DependenciesLost, DependenciesMissing
from fairway.protocol.sds.state import SdsState
from fairway.wire.bloom import BloomFilter
from fairway.wire.sds import HistoryEntry, SdsMessage

START = 1_700_000_000_000
PEERS = ("carol", "dave", "erin", "frank")
names = st.integers(0, 25).map("m{}".format)


def snapshot(channel):
    return {(table, key): row for table, key, row in SdsState(channel).rows()}


def restored(rows, config, profile, now_ms=0):
    channel = MessageChannel("ch", "bob", config, now_ms=now_ms, profile=profile)
    SdsState(channel).load(rows)
    return channel


def in_any_order(outcomes):
    """Return outcomes for comparison; what happened in the same millisecond is stored without its order."""

    def entries_sorted(outcome):
        lists_entries = isinstance(outcome, DependenciesMissing | DependenciesLost)
        return structs.replace(outcome, entries=tuple(sorted(outcome.entries, key=repr))) if lists_entries else outcome

    return Counter(repr(entries_sorted(outcome)) for outcome in outcomes)


def with_ranks(rows):
    """Return rows for comparison: in those that are numbered, the order counts and not the numbers."""
    ranked = dict(rows)
    for table in ("parked", "retained"):
        numbered = sorted((row[0], key) for (t, key), row in rows.items() if t == table)
        for rank, (_, key) in enumerate(numbered):
            ranked[table, key] = (rank, *rows[table, key][1:])
    return ranked


class Rows(RuleBasedStateMachine):
    """A channel does anything; what it says has changed makes the new snapshot of the old one."""

    def __init__(self):
        super().__init__()
        self.now_ms = START
        self.twin = None
        self.own = []

    @initialize(
        tight=st.booleans(),
        repairs=st.booleans(),
        profile=st.sampled_from([Profile.WAKU, Profile.LOGOS]),
        gap_timeout_ms=st.sampled_from([0, 2_000]),
    )
    def begin(self, tight, repairs, profile, gap_timeout_ms):
        self.tight, self.profile = tight, profile
        self.config = SdsConfig(
            bloom_capacity=20 if tight else 500,
            lost_timeout_ms=5_000,
            gap_timeout_ms=gap_timeout_ms,
            max_incoming_buffer=4 if tight else 30,
            # Without repairs a restarted channel knows less of what descends from its messages, and may say less.
            repair=RepairConfig(enabled=repairs or not tight, t_min_ms=500, t_max_ms=3_000),
        )
        self.channel = MessageChannel("ch", "bob", self.config, now_ms=self.now_ms, profile=profile)
        self.stored = snapshot(self.channel)
        self.channel.journal.drain()

    def both(self, operation):
        """Do something to the channel and to its restored twin, which must do the same."""
        result = operation(self.channel)
        if self.twin is not None:
            again = operation(self.twin)
            if isinstance(result, list):
                assert in_any_order(result) == in_any_order(again)
            else:
                assert result == again
        return result

    @rule(content=st.binary(min_size=1, max_size=5), tracked=st.booleans())
    def send(self, content, tracked):
        message = self.both(lambda c: c.send(content, self.now_ms, tracked=tracked))
        self.own.append(message)

    @precondition(lambda self: self.own)
    @rule(data=st.data(), hint=st.none() | st.binary(min_size=1, max_size=2))
    def hint(self, data, hint):
        message = data.draw(st.sampled_from(self.own))
        self.both(lambda c: c.add_hint(message.message_id, hint))

    @rule()
    def sync(self):
        self.both(lambda c: c.send_sync(self.now_ms))

    @rule(participant=st.sampled_from(PEERS), cites=st.booleans(), count=st.integers(1, 3))
    def be_acknowledged(self, participant, cites, count):
        """Receive a sync message of somebody who has the newest of ours."""
        number, ids = 0, [message.message_id for message in self.own[-count:]]
        self.receive(number, participant, ids[-1:] if cites else [], False, [], ids, True, 0, None)

    @rule(
        number=st.integers(0, 25),
        sender=st.sampled_from(PEERS),
        cited=st.lists(names, max_size=4),
        own_cited=st.booleans(),
        asked=st.lists(names, max_size=2),
        in_filter=st.lists(names, max_size=3),
        is_sync=st.booleans(),
        ahead_ms=st.integers(-2_000, 10_000),
        hint=st.none() | st.just(b"h"),
    )
    def receive(self, number, sender, cited, own_cited, asked, in_filter, is_sync, ahead_ms, hint):
        own = [message.message_id for message in self.own[-2:]] if own_cited else []
        bloom = BloomFilter(self.channel.bloom_parameters, self.profile.codec.bloom)
        for message_id in (*own, *in_filter, *(m.message_id for m in self.own[:2])):
            bloom.insert(message_id)
        message = SdsMessage(
            message_id=f"m{number}",
            sender_id=sender,
            channel_id="ch",
            lamport_timestamp=(self.now_ms + ahead_ms) // self.profile.lamport_unit_ms,
            causal_history=tuple(HistoryEntry(name, None, "zoe") for name in (*cited, *own)),
            bloom_filter=self.profile.codec.write_bloom(bytes(bloom), self.channel.bloom_parameters),
            repair_request=tuple(HistoryEntry(name, b"h", "zoe") for name in asked),
            content=b"" if is_sync else b"content",
        )
        encoded = self.profile.codec.encode(message)
        self.both(lambda c: c.receive(message, hint, self.now_ms, encoded))

    @precondition(lambda self: self.own)
    @rule(data=st.data(), forgotten=st.booleans())
    def hear_an_own_message(self, data, forgotten):
        message = data.draw(st.sampled_from(self.own))
        if forgotten:
            message = structs.replace(message, message_id=f"earlier {message.message_id[:3]}")
        self.both(lambda c: c.receive(message, b"h", self.now_ms))

    @rule(message_id=names)
    def stop_waiting(self, message_id):
        self.both(lambda c: c.stop_waiting([message_id], self.now_ms))

    @rule(message_ids=st.lists(names, max_size=2))
    def settle(self, message_ids):
        self.both(lambda c: c.dependencies.settle(message_ids, self.now_ms))

    @rule(message_id=names, take_back=st.booleans())
    def change_a_hint(self, message_id, take_back):
        if take_back:
            self.both(lambda c: c.withdraw_hint(message_id, b"h"))
        else:
            self.both(lambda c: c.add_hint(message_id, b"h"))

    @precondition(lambda self: self.own)
    @rule(data=st.data())
    def give_up(self, data):
        message_id = data.draw(st.sampled_from(self.own)).message_id
        self.both(lambda c: c.forget_outgoing(message_id))

    @rule(passed_ms=st.integers(0, 4_000))
    def time_passes(self, passed_ms):
        self.now_ms += passed_ms
        self.both(lambda c: c.dependencies.sweep(self.now_ms))
        self.both(lambda c: c.sweep_repair(self.now_ms))

    @rule(keep=st.integers(0, 3))
    def deliver_around_gaps(self, keep):
        self.both(lambda c: c.dependencies.deliver_around_gaps(self.now_ms, keep=keep))

    @rule(possible=st.booleans())
    def go_or_come_back(self, possible):
        self.both(lambda c: c.dependencies.can_come(possible, self.now_ms))

    @rule()
    def restart(self):
        rows = [(table, key, row) for (table, key), row in self.stored.items()]
        twin = restored(reversed(rows), self.config, self.profile)
        assert snapshot(twin) == self.stored
        assert all(isinstance(table, str) for table, _ in twin.journal.drain())
        if not self.tight:
            # What tells retries from answers is not stored: whoever misses an acknowledgement sends a copy again. Nor
            # is what was answered a moment ago.
            twin.pending_citations = deepcopy(self.channel.pending_citations)
            for name in ("_has_news", "_attached_ms", "_filters_due"):
                setattr(twin.vouching, name, getattr(self.channel.vouching, name))
            twin.dependencies.clock = deepcopy(self.channel.dependencies.clock)
            twin.repair.answers_awaited = deepcopy(self.channel.repair.answers_awaited)
            twin.repair.rests_until = deepcopy(self.channel.repair.rests_until)
            self.twin = twin

    @invariant()
    def changes_fold_to_the_snapshot(self):
        state = SdsState(self.channel)
        for table, key in self.channel.journal.drain():
            row = state.readers[table](key)
            if row is None:
                self.stored.pop((table, key), None)
            else:
                self.stored[table, key] = row
        assert self.stored == snapshot(self.channel)

    @invariant()
    def the_twin_is_equal(self):
        if self.twin is not None:
            assert with_ranks(snapshot(self.twin)) == with_ranks(self.stored)
            assert self.twin.bloom.set_positions() == self.channel.bloom.set_positions()

    @invariant()
    def everything_is_bounded_and_consistent(self):
        incoming = self.channel.dependencies.incoming
        assert len(incoming) <= 2 * self.config.max_incoming_buffer
        assert len(self.channel.bloom) <= self.config.bloom_capacity
        assert incoming.parked_bytes == sum(parked.size_bytes for parked in incoming.parked.values())
        history, settled = self.channel.history, self.channel.dependencies.settled
        for parked in incoming.parked.values():
            assert parked.waiting_for
            assert all(i in incoming.missing or i in incoming for i in parked.waiting_for)
        assert not any(i in history for i in incoming.parked)
        assert not any(i in incoming for i in incoming.missing)
        # What was gone around, and what `stop_waiting` was called for, is still missing, and asked for.
        assert not any(i in history for i in settled)
        asked = {scheduled.message_id for scheduled in self.channel.repair.requests}
        assert not any(i in history or i in incoming for i in asked)
        assert not any(i in settled and i not in incoming.missing for i in asked)


TestRows = Rows.TestCase
TestRows.settings = examples(1, stateful_step_count=50)


def test_a_restored_channel_goes_on_answering_asking_and_waiting(new_channel, send, a_message, ready, start):
    bob = new_channel("bob")
    first = send(bob, b"hello", start, b"hash")
    bob.receive(a_message("m2", "m1"), b"hint", start)
    bob.receive(
        a_message("sync-1", content=None, repair_request=(HistoryEntry(first.message_id, None, "bob"),)), None, start
    )
    reborn = MessageChannel("ch", "bob", bob.config, now_ms=start + 1)
    SdsState(reborn).load(list(SdsState(bob).rows()))
    assert reborn.lamport == bob.lamport
    assert reborn.sweep_repair(start) == bob.sweep_repair(start) != []
    assert reborn.send_sync(start + 200_000) == bob.send_sync(start + 200_000)
    assert ready(reborn.receive(a_message("m1"), None, start + 200_000)) == ["m1", "m2"]
    assert [record.retrieval_hint for record in reborn.history] == [None, b"hint", b"hash"]


@pytest.mark.parametrize(
    "row",
    [
        ("weather", "", ()),
        ("sds", "", (1,)),
        ("history", "m1", (1,)),
        ("history", "m1", ("1", None, "zoe")),
        ("outgoing", "m1", (1, b"\xff", 1, ())),
        ("parked", "m1", (1, b"not a message", None, 5)),
        ("parked", "m1", (1, None, None, 5)),
        ("retained", "m1", (b"old",)),
        ("acknowledgements", "m1", ((),)),
        ("participants", "", None),
    ],
    ids=lambda row: row[0],
)
def test_rows_that_this_version_does_not_write_are_refused(new_channel, start, row):
    other = ("history", "m0", (1, None, "zoe"))
    if row[0] == "participants":
        assert SdsState(new_channel("bob")).readers["participants"]("nobody") is None
        return
    with pytest.raises(SnapshotError):
        SdsState(new_channel("bob")).load([other, row])


@pytest.mark.parametrize("repairs", [True, False])
@pytest.mark.parametrize("profile", [Profile.WAKU, Profile.LOGOS])
def test_after_a_restart_the_next_message_cites_whatever_no_message_has_cited(profile, repairs):
    config = SdsConfig(repair=RepairConfig(enabled=repairs))
    channel = MessageChannel("ch", "bob", config, now_ms=START, profile=profile)
    for number, sender in enumerate(PEERS):
        message = SdsMessage(
            message_id=f"m{number}",
            sender_id=sender,
            channel_id="ch",
            lamport_timestamp=(START + 1_000 * number) // profile.lamport_unit_ms,
            content=b"at the same time",
        )
        channel.receive(message, b"h", START + 5_000, profile.codec.encode(message))
    again = restored(SdsState(channel).rows(), config, profile, START + 6_000)
    cited = [entry.message_id for entry in again.send(b"next", START + 7_000).causal_history]
    assert cited == ["m0", "m1", "m2", "m3"]
