from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import ConfigurationError
from fairway.options import RateLimitConfig
from fairway.protocol.ratelimit import EpochQuota, Quota, QuotaSource, Share, Verdict


def quota_of(limit: int | None, *, threshold: float = 0.9, epoch_ms: int = 1000) -> Quota:
    return Quota(
        RateLimitConfig(
            enabled=limit is not None,
            messages_per_epoch=limit,
            epoch_ms=epoch_ms,
            approached_threshold=threshold,
        )
    )


def tell(quota: Quota, source: QuotaSource, *, limit: int | None, now_ms: int, epoch_index=None, **more) -> None:
    index = now_ms // more.get("epoch_ms", 1000) if epoch_index is None else epoch_index
    told = None if limit is None else EpochQuota(epoch_index=index, rate_limit=limit, **more)
    quota.tell(source, told, now_ms)


def slots(quota: Quota, share: Share, now_ms: int = 0) -> int:
    """How many transmissions of a share fit into an unused epoch at once; of one that is spread, in a second."""
    used, end_ms = 0, now_ms + (1_000 if share is Share.SPREAD else 1)
    while (at_ms := quota.opens_at(share, now_ms)) is not None and at_ms < end_ms:
        assert quota.verdict(share, at_ms) is Verdict.OPEN
        quota.charge(at_ms)
        used += 1
    return used


@pytest.mark.parametrize(
    ("limit", "threshold", "content", "held", "ephemeral"),
    [
        pytest.param(0, 0.9, 0, 0, 0, id="a limit of nothing"),
        pytest.param(1, 0.9, 1, 1, 1, id="one slot: whoever comes first may use it"),
        pytest.param(2, 0.9, 2, 1, 2, id="two slots: one is kept for content"),
        pytest.param(10, 0.9, 10, 9, 9, id="the seed's ninety percent"),
        pytest.param(100, 0.29, 100, 29, 29, id="no binary rounding"),
        pytest.param(100, 1.0, 100, 100, 100, id="no threshold"),
        pytest.param(3, 0.01, 3, 1, 1, id="a tiny threshold"),
    ],
)
def test_each_share_has_its_slots(limit, threshold, content, held, ephemeral):
    expected = {Share.CONTENT: content, Share.HELD: held, Share.SPREAD: held, Share.EPHEMERAL: ephemeral}
    assert {share: slots(quota_of(limit, threshold=threshold), share) for share in Share} == expected


def test_a_told_quota_turns_an_unlimited_one_on_and_knows_what_was_sent_before():
    quota = quota_of(None)
    for _ in range(4):
        quota.charge(0)
    assert not quota.limiting
    tell(quota, QuotaSource.NODE, limit=6, now_ms=0)
    assert quota.limiting
    assert slots(quota, Share.CONTENT) == 2


def test_a_told_quota_brings_a_configured_but_disabled_one_into_force():
    quota = Quota(RateLimitConfig(enabled=False, messages_per_epoch=5, epoch_ms=1000))
    tell(quota, QuotaSource.NODE, limit=100, now_ms=0)
    assert slots(quota, Share.CONTENT) == 5


def test_a_withdrawn_quota_limits_no_more_but_its_count_goes_on():
    quota = quota_of(None)
    tell(quota, QuotaSource.NODE, limit=2, now_ms=0)
    slots(quota, Share.CONTENT)
    tell(quota, QuotaSource.NODE, limit=None, now_ms=0)
    assert quota.verdict(Share.CONTENT, 0) is Verdict.OPEN
    tell(quota, QuotaSource.NODE, limit=2, now_ms=0)
    assert quota.verdict(Share.CONTENT, 0) is Verdict.REACHED


def test_remaining_counts_what_others_used():
    quota = quota_of(None)
    quota.charge(0)
    tell(quota, QuotaSource.NODE, limit=10, remaining=4, now_ms=0)
    assert slots(quota, Share.CONTENT) == 4
    assert slots(quota, Share.CONTENT, 1000) == 10


def test_a_late_report_of_the_epoch_before_does_not_stop_this_one():
    quota = quota_of(None)
    tell(quota, QuotaSource.NODE, limit=5, epoch_index=0, remaining=0, now_ms=1000)
    assert slots(quota, Share.CONTENT, 1000) == 5


@pytest.mark.parametrize("source", [QuotaSource.NODE, QuotaSource.PROVIDER])
def test_a_told_zero_is_no_membership_and_not_exhaustion(source):
    quota = quota_of(10)
    tell(quota, source, limit=0, remaining=0, now_ms=0)
    assert quota.verdict(Share.CONTENT, 0) is Verdict.NO_MEMBERSHIP
    assert quota.utilization(0) == 0
    assert quota.opens_at(Share.CONTENT, 0) is None
    assert quota.expected_at(Share.CONTENT, 1, 0) is None


@pytest.mark.parametrize("fault", [{"rate_limit": -1}, {"remaining": -1}, {"epoch_ms": 0}])
def test_an_impossible_epoch_quota_is_refused(fault):
    with pytest.raises(ConfigurationError):
        EpochQuota(**{"epoch_index": 0, "rate_limit": 1} | fault)


def test_utilization_is_that_of_the_tightest_limit_and_never_above_a_hundred():
    quota = quota_of(10)
    quota.charge(0)
    assert quota.utilization(0) == 10
    tell(quota, QuotaSource.NODE, limit=3, now_ms=0)
    assert quota.utilization(0) == 33
    tell(quota, QuotaSource.NODE, limit=3, remaining=0, now_ms=0)
    quota.charge(0)
    assert quota.utilization(0) == 100
    assert quota.utilization(1000) == 0


def test_an_exhausted_epoch_is_closed_even_without_a_known_limit():
    quota = quota_of(None)
    quota.exhaust(10)
    assert quota.verdict(Share.CONTENT, 999) is Verdict.REACHED
    assert quota.opens_at(Share.CONTENT, 10) == 1000
    assert quota.verdict(Share.CONTENT, 1000) is Verdict.OPEN


def test_an_exhausted_provider_closes_its_own_epoch_and_not_the_configured_one():
    quota = quota_of(5, epoch_ms=1000)
    tell(quota, QuotaSource.PROVIDER, limit=5, epoch_ms=300, now_ms=0)
    quota.exhaust(0)
    assert quota.utilization(0) == 100
    assert quota.opens_at(Share.CONTENT, 0) == 300


@pytest.mark.parametrize(("position", "expected"), [(1, 0), (2, 1000), (4, 1000), (5, 2000), (8, 3000)])
def test_a_place_in_the_queue_has_an_expected_time(position, expected):
    quota = quota_of(3)
    quota.charge(0)
    quota.charge(0)
    assert quota.expected_at(Share.CONTENT, position, 0) == expected


def busy_quota() -> Quota:
    quota = quota_of(7)
    tell(quota, QuotaSource.NODE, limit=5, epoch_ms=300, remaining=3, now_ms=1_200)
    tell(quota, QuotaSource.PROVIDER, limit=6, now_ms=1_200)
    quota.charge(1_200)
    quota.charge(900)
    quota.exhaust(900)
    return quota


@given(now_ms=st.integers(0, 3_000))
def test_a_restored_quota_judges_as_the_one_it_was_taken_from_also_after_json(now_ms):
    original = busy_quota()
    restored = quota_of(7)
    restored.restore(json.loads(json.dumps(original.state())))
    assert restored.state() == original.state()
    for share in Share:
        assert restored.verdict(share, now_ms) is original.verdict(share, now_ms)
        assert restored.opens_at(share, now_ms) == original.opens_at(share, now_ms)
    assert restored.utilization(now_ms) == original.utilization(now_ms)


def test_a_restored_quota_takes_its_configured_limit_from_the_configuration_of_today():
    restored = quota_of(9)
    restored.restore(busy_quota().state())
    assert [row[:3] for row in restored.state()] == [("configured", 9, 1000), ("node", 5, 300), ("provider", 6, 1000)]


@pytest.mark.parametrize("epoch_ms", [100, 250, 4_000])
def test_a_changed_epoch_length_in_the_configuration_refills_nothing(epoch_ms):
    original = quota_of(4)
    slots(original, Share.CONTENT, 2_100)
    restored = quota_of(4, epoch_ms=epoch_ms)
    restored.restore(original.state())
    assert restored.verdict(Share.CONTENT, 2_100) is Verdict.REACHED
