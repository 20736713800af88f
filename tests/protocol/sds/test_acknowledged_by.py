"""The marks on a copy: whose acknowledgement its author has."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fairway.protocol.sds.acknowledged_by import MARK_BYTES, is_marked, marks_of
from fairway.protocol.sds.outcome import Ignored

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(participants=st.sets(names, max_size=20), message_id=names, others=st.sets(names, max_size=20))
def test_exactly_the_participants_are_marked(participants, message_id, others):
    marks = marks_of(participants, message_id)
    assert len(marks) == MARK_BYTES * len(participants)
    assert all(is_marked(marks, name, message_id) for name in participants)
    assert not any(is_marked(marks, name, message_id) for name in others - participants)


@given(names, names, st.binary(max_size=40))
def test_marks_of_any_bytes_are_read_and_stand_for_one_message_only(participant, message_id, rest):
    marks = marks_of([participant], message_id)
    whole = rest[: len(rest) // MARK_BYTES * MARK_BYTES]
    assert is_marked(whole + marks + b"x", participant, message_id)
    assert not is_marked(marks, participant, message_id + "'")
    is_marked(rest, participant, message_id)


def test_the_marks_of_a_large_group_are_bounded_and_do_not_depend_on_its_order():
    group = [f"p{number}" for number in range(1_000)]
    marks = marks_of(group, "m")
    assert len(marks) == 1_024
    assert marks == marks_of(reversed(group), "m")


def test_a_copy_asks_nothing_of_those_whose_acknowledgement_its_author_has(new_channel, a_message, start):
    chain = [a_message("m0"), a_message("m1", "m0"), a_message("m2", "m1"), a_message("m3", "m2")]
    bob, carol = new_channel("bob"), new_channel("carol")
    copy = replace(chain[0], acknowledged_by=marks_of(["bob"], "m0"))
    for channel, why in ((bob, Ignored.ACKNOWLEDGED), (carol, Ignored.DUPLICATE)):
        for message in chain:
            channel.receive(message, None, start)
        assert [outcome.why for outcome in channel.receive(copy, None, start)] == [why]
    assert [entry.message_id for entry in bob.send(b"x", start).causal_history] == ["m2", "m3"]
    assert [entry.message_id for entry in carol.send(b"x", start).causal_history] == ["m0", "m2", "m3"]


def test_marks_on_what_is_new_keep_nobody_from_acknowledging_it(new_channel, a_message, start):
    bob = new_channel("bob")
    bob.receive(replace(a_message("m0"), acknowledged_by=marks_of(["bob"], "m0")), None, start)
    assert [entry.message_id for entry in bob.send(b"x", start).causal_history] == ["m0"]
