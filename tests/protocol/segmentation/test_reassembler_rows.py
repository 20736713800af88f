"""A store can mirror a reassembler row by row, and a new one goes on from there."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import SnapshotError
from fairway.wire.segment import LIP_243, WAKU_SEGMENTS
from segment_answers import answered


def payload_of(length, seed=0):
    return random.Random(f"{length},{seed}").randbytes(length)


class Mirror:
    """A store that is told of changes only."""

    def __init__(self):
        self.rows = {}
        self.changed = set()

    def on_change(self, key):
        self.changed.add(key)

    def fold(self, reassembler):
        for key in self.changed:
            row = reassembler.row(key)
            if row is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = row
        self.changed.clear()


def plain(value):
    return isinstance(value, int | str | bytes | None) or (isinstance(value, tuple) and all(map(plain, value)))


def test_rows_hold_plain_values_and_each_payload_once(receiver, send, segment_format):
    bob = receiver(segment_format)
    messages = send(payload_of(1_000), segment_format=segment_format)
    bob.receive(*messages[:2])
    rows = dict(bob.reassembler.rows())
    assert len(rows) == 3
    assert all(plain(row) for row in rows.values())
    for message in messages[:2]:
        payload = segment_format.decode(message.content).payload
        assert sum(payload in row for row in rows.values()) == 1


def test_a_row_that_does_not_exist_is_none(receiver, send):
    bob = receiver()
    bob.receive(send(payload_of(1_000))[0])
    for key in [key for key, _ in bob.reassembler.rows()]:
        assert bob.reassembler.row(key) is not None
        assert bob.reassembler.row(key + "!") is None


def test_a_whole_message_changes_no_row(receiver, send):
    mirror = Mirror()
    bob = receiver(on_change=mirror.on_change)
    bob.receive(*send(b"hello"))
    assert mirror.changed == set()


def test_a_single_segment_of_lip_243_changes_one_row(receiver, send):
    mirror = Mirror()
    receiver(LIP_243, on_change=mirror.on_change).receive(*send(b"hello", segment_format=LIP_243))
    assert len(mirror.changed) == 1


def test_a_message_is_completed_after_a_restart(receiver, send, segment_format):
    bob = receiver(segment_format)
    messages = send(payload_of(2_000), segment_format=segment_format)
    bob.receive(*messages[:3])
    restarted = receiver(segment_format)
    restarted.reassembler.load(reversed(list(bob.reassembler.rows())))
    assert restarted.statistics.open_segments == 3
    assert restarted.statistics.buffered_bytes == bob.statistics.buffered_bytes
    restarted.receive(*messages[3:])
    assert restarted.delivered == [("alice", payload_of(2_000))]


def test_surplus_is_recognised_after_a_restart(receiver, send, segment_format):
    bob = receiver(segment_format)
    messages = send(payload_of(2_000), segment_format=segment_format)
    outcomes = [bob.receive(message) for message in messages]
    assert answered(outcomes[-1]) == "late"
    restarted = receiver(segment_format)
    restarted.reassembler.load(bob.reassembler.rows())
    for message in messages:
        assert answered(restarted.receive(message)) == "late"


def test_names_of_senders_cannot_collide_with_keys(receiver, send):
    bob = receiver()
    senders = ["", "/", "a/b", "set/x", "data/0/y", "ü\n"]
    for sender_id in senders:
        bob.receive(*send(payload_of(1_000), sender_id=sender_id)[:2])
    rows = dict(bob.reassembler.rows())
    assert len(rows) == 3 * len(senders)
    restarted = receiver()
    restarted.reassembler.load(rows.items())
    assert dict(restarted.reassembler.rows()) == rows


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: (),
        lambda row: row[:-1],
        lambda row: (*row, 1),
        lambda row: (None, *row[1:]),
        lambda row: (*row[:-1], 1.5),
    ],
)
@pytest.mark.parametrize("kind", ["set/", "data/"])
def test_rows_of_another_version_are_refused(receiver, send, kind, spoil):
    bob = receiver()
    bob.receive(*send(payload_of(1_000))[:2])
    rows = [(key, spoil(row) if key.startswith(kind) else row) for key, row in bob.reassembler.rows()]
    with pytest.raises(SnapshotError):
        receiver().reassembler.load(rows)


def test_a_segment_without_its_set_is_refused(receiver, send):
    bob = receiver()
    bob.receive(*send(payload_of(1_000))[:2])
    with pytest.raises(SnapshotError, match="its set is missing"):
        receiver().reassembler.load(row for row in bob.reassembler.rows() if not row[0].startswith("set/"))


def test_ids_of_a_completed_set_that_cannot_be_read_are_refused(receiver, send):
    bob = receiver()
    bob.receive(*send(payload_of(2_000)))
    rows = [(key, (*row[:-1], ((1, 2),))) for key, row in bob.reassembler.rows()]
    with pytest.raises(SnapshotError, match="ids"):
        receiver().reassembler.load(rows)


LIMITS = {
    "reassembly_timeout_ms": 40,
    "max_sets_per_sender": 3,
    "max_buffered_bytes_per_sender": 64 * 12,
    "max_buffered_bytes": 64 * 20,
    "max_completed_sets": 3,
    "segment_size_bytes": 192,
}

steps = st.lists(
    st.tuples(
        st.sampled_from(["alice", "bob", "carol"]),
        st.integers(0, 3),  # which payload
        st.integers(0, 1),  # which sending
        st.integers(0, 30),  # which segment
        st.integers(0, 6),  # how long after the one before
        st.booleans(),  # whether time is looked at
    ),
    max_size=120,
)


@examples(0.4)
@given(steps=steps, segment_format=st.sampled_from([WAKU_SEGMENTS, LIP_243]), restart=st.integers(0, 120))
def test_changes_folded_over_a_snapshot_are_the_next_one_and_a_restart_is_not_noticed(
    receiver, send, steps, segment_format, restart
):
    size = 64 if segment_format is WAKU_SEGMENTS else 192
    payloads = [payload_of(64 * 5 + 7 * number, number) for number in range(4)]
    mirror = Mirror()
    never_restarted = receiver(segment_format, **LIMITS)
    mirrored = receiver(segment_format, on_change=mirror.on_change, **LIMITS)
    now_ms = 0
    for number, (sender_id, payload, sending, order, elapsed, looks) in enumerate(steps):
        now_ms += elapsed
        messages = send(
            payloads[payload],
            segment_format=segment_format,
            sender_id=sender_id,
            base=sending * 1_000,
            segment_size_bytes=size,
        )
        message = messages[order % len(messages)]
        never_restarted.now_ms = mirrored.now_ms = now_ms
        assert answered(mirrored.receive(message)) == answered(never_restarted.receive(message))
        if looks:
            assert mirrored.reassembler.expire(now_ms) == never_restarted.reassembler.expire(now_ms)
        assert mirrored.reassembler.next_deadline() == never_restarted.reassembler.next_deadline()
        mirror.fold(mirrored.reassembler)
        assert mirror.rows == dict(mirrored.reassembler.rows())
        if number == restart:
            mirrored = receiver(segment_format, on_change=mirror.on_change, **LIMITS)
            mirrored.reassembler.load(sorted(mirror.rows.items()))
            assert mirrored.statistics.open_sets == never_restarted.statistics.open_sets
            assert mirrored.statistics.buffered_bytes == never_restarted.statistics.buffered_bytes


def test_a_set_that_was_given_up_stays_so_after_a_restart(receiver, send):
    bob = receiver(reassembly_timeout_ms=1_000)
    first, second, *_ = send(payload_of(1_400))
    bob.receive(first)
    assert bob.reassembler.expire(1_000)
    restarted = receiver(reassembly_timeout_ms=1_000)
    restarted.reassembler.load(bob.reassembler.rows())
    assert answered(restarted.receive(second)) == "given-up"
