"""Which faults a local network accepts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.nodes.local import NetworkFaults
from fairway.nodes.local.faults import Allowance

SHARES = (
    "loss",
    "duplication",
    "store_loss",
    "query_loss",
    "answer_loss",
    "answer_errors",
    "store_lies",
    "too_many_requests",
    "invalid_message",
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


@given(limit=st.integers(0, 5), times=st.lists(st.integers(0, 5_000), max_size=60), epoch_ms=st.sampled_from([1, 700]))
def test_no_epoch_ever_gets_more_than_its_limit_while_time_goes_forward(limit, times, epoch_ms):
    faults, allowance = NetworkFaults(messages_per_epoch=limit, epoch_ms=epoch_ms), Allowance()
    taken = [now_ms // epoch_ms for now_ms in sorted(times) if allowance.take(faults, now_ms)]
    offered = [now_ms // epoch_ms for now_ms in times]
    assert {epoch: taken.count(epoch) for epoch in set(offered)} == {
        epoch: min(limit, offered.count(epoch)) for epoch in set(offered)
    }
