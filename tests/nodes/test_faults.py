"""How bad a network can be made, and that the dice keep to it and to their seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.nodes.local import NO_FAULTS, NetworkFaults
from fairway.nodes.local.faults import Allowance, FaultDice

SHARES = (
    "loss",
    "duplication",
    "store_loss",
    "query_loss",
    "send_loss",
    "answer_loss",
    "answer_errors",
    "store_lies",
    "store_cuts",
    "store_circles",
    "restamped",
    "too_many_requests",
    "invalid_message",
    "unwanted",
    "no_peers_to_relay",
)


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize("share", [-0.01, 1.01, float("inf")])
def test_a_share_outside_of_0_to_1_is_refused(name, share):
    with pytest.raises(ConfigurationError, match=rf"{name} is a share and must lie in 0\.\.1"):
        NetworkFaults(**{name: share})


@pytest.mark.parametrize(
    ("faults", "text"),
    [
        ({"min_delay_ms": 5, "max_delay_ms": 4}, "0 <= min_delay_ms <= max_delay_ms, not 5 and 4"),
        ({"min_delay_ms": -1}, "0 <= min_delay_ms"),
        ({"max_message_bytes": 0}, r"max_message_bytes must lie in 1\.\.1048576"),
        ({"max_message_bytes": 1_048_577}, "the longest message that is parsed"),
        ({"messages_per_epoch": -1}, "messages_per_epoch must be at least 0, or None"),
        ({"epoch_ms": 0}, "epoch_ms must be positive"),
        ({"store_lag_ms": -1}, "store_lag_ms must be at least 0, not -1"),
        ({"too_many_requests": 0.6, "no_peers_to_relay": 0.6}, "shares of one whole, not 1.2 together"),
    ],
)
def test_faults_that_cannot_be_are_refused(faults, text):
    with pytest.raises(ConfigurationError, match=text):
        NetworkFaults(**faults)


def test_without_faults_everything_arrives_once_and_at_once():
    dice = FaultDice(NO_FAULTS, seed=1)
    for _ in range(100):
        assert dice.is_taken()
        assert dice.is_stored()
        assert dice.is_answered()
        assert dice.copies() == (0,)


def test_the_dice_fall_as_often_as_they_were_told_to():
    faults = NetworkFaults(loss=0.3, duplication=0.25, store_loss=0.1, query_loss=0.6, send_loss=0.2)
    dice = FaultDice(faults, seed=7)
    many = 10_000
    receivers = [dice.copies() for _ in range(many)]
    copies = [delay for each in receivers for delay in each]
    assert sum(len(each) == 2 for each in receivers) / many == pytest.approx(0.25, abs=0.02)
    assert copies.count(None) / len(copies) == pytest.approx(0.3, abs=0.02)
    assert {delay for delay in copies if delay is not None} == set(range(20, 251))
    assert sum(not dice.is_stored() for _ in range(many)) / many == pytest.approx(0.1, abs=0.02)
    assert sum(not dice.is_answered() for _ in range(many)) / many == pytest.approx(0.6, abs=0.02)
    assert sum(not dice.is_taken() for _ in range(many)) / many == pytest.approx(0.2, abs=0.02)


def test_a_fault_that_is_off_leaves_the_runs_of_old_seeds_as_they_were():
    def fates(**more):
        dice = FaultDice(NetworkFaults(loss=0.5), seed=3)
        seen = []
        for _ in range(50):
            seen.append(dice.copies())
            for question in (dice.is_taken, dice.refusal, dice.is_confirmed, dice.is_false):
                if more.get(question.__name__):
                    question()
        return seen

    assert fates() == fates(is_taken=True, refusal=True, is_confirmed=True, is_false=True)


def test_queries_are_as_lossy_as_deliveries_unless_said_otherwise():
    assert not FaultDice(NetworkFaults(loss=1.0), seed=1).is_answered()
    assert FaultDice(NetworkFaults(loss=1.0, query_loss=0.0), seed=1).is_answered()


def test_the_same_seed_gives_the_same_fates_and_another_one_does_not():
    def fates(seed):
        dice = FaultDice(NetworkFaults(loss=0.5, duplication=0.5), seed)
        return [dice.copies() for _ in range(50)]

    assert fates(3) == fates(3)
    assert fates(3) != fates(4)


def test_an_allowance_is_spent_and_comes_back_with_the_next_epoch():
    faults, allowance = NetworkFaults(messages_per_epoch=2, epoch_ms=1_000), Allowance()
    assert [allowance.take(faults, now_ms) for now_ms in (5_000, 5_500, 5_999, 6_000)] == [True, True, False, True]
    assert allowance.remaining(faults, 6_999) == 1
    assert allowance.remaining(NO_FAULTS, 6_999) is None


@given(limit=st.integers(0, 5), times=st.lists(st.integers(0, 5_000), max_size=60), epoch_ms=st.sampled_from([1, 700]))
def test_no_epoch_ever_gets_more_than_its_limit_while_time_goes_forward(limit, times, epoch_ms):
    faults, allowance = NetworkFaults(messages_per_epoch=limit, epoch_ms=epoch_ms), Allowance()
    taken = [now_ms // epoch_ms for now_ms in sorted(times) if allowance.take(faults, now_ms)]
    offered = [now_ms // epoch_ms for now_ms in times]
    assert {epoch: taken.count(epoch) for epoch in set(offered)} == {
        epoch: min(limit, offered.count(epoch)) for epoch in set(offered)
    }
