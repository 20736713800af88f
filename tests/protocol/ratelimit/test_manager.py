from __future__ import annotations

import json
from typing import Any

import pytest

from fairway.errors import RlnError, RlnErrorKind
from fairway.events import DropReason
from fairway.options import RateLimitConfig
from fairway.protocol.ratelimit import EpochQuota, Priority, RateLimitManager, rln_signal
from rln_testing import ProofVerdict, RlnTestValidator, StrictRlnProvider

EPOCH_MS = 1000


def limited_to(limit: int | None, *, on_change=None, **config) -> RateLimitManager[Any]:
    return RateLimitManager(
        RateLimitConfig(enabled=limit is not None, messages_per_epoch=limit, epoch_ms=EPOCH_MS, **config),
        on_change=on_change,
    )


def drain(manager: RateLimitManager, now_ms: int = 0) -> list:
    """Everything that may leave now."""
    return [admission.item for admission in iter(lambda: manager.admit(now_ms), None)]


def enqueue_all(manager: RateLimitManager, priority: Priority, items) -> None:
    for item in items:
        manager.enqueue(item, priority, object())


def test_without_a_limit_everything_leaves_at_once_and_in_order_of_priority():
    manager = limited_to(None)
    for priority in reversed(Priority):
        enqueue_all(manager, priority, [f"{priority.name} 1", f"{priority.name} 2"])
    assert drain(manager) == [f"{priority.name} {n}" for priority in Priority for n in (1, 2)]
    assert manager.utilization(0) == 0
    assert manager.next_send_at(0) is None


@pytest.mark.parametrize("limit", [None, 12], ids=["no quota", "a quota"])
def test_a_repair_gets_out_amid_a_long_burst_through_a_slow_node_as_long_as_its_share_of_a_quota_lasts(limit):
    manager = RateLimitManager(RateLimitConfig(enabled=limit is not None, messages_per_epoch=limit))
    manager.pace.refused(manager.pace.spend(0), 0, too_many=True)
    enqueue_all(manager, Priority.CONTENT, range(20))
    enqueue_all(manager, Priority.REPAIR, "abcd")
    left = []
    for now_ms in range(0, RateLimitConfig().epoch_ms, 1_000):
        left += drain(manager, now_ms)
    if limit is None:
        assert left == [*range(4), "a", *range(4, 8), "b", *range(8, 12), "c", *range(12, 16), "d", *range(16, 20)]
    else:
        assert left == [*range(4), "a", *range(4, 8), "b", *range(8, 10)]


def test_what_exceeds_the_limit_waits_for_the_next_epoch():
    manager = limited_to(3)
    enqueue_all(manager, Priority.CONTENT, "abcde")
    assert drain(manager, 999) == ["a", "b", "c"]
    assert manager.next_send_at(999) == 1000
    assert drain(manager, 1000) == ["d", "e"]


def test_two_bursts_around_a_boundary_belong_to_two_epochs_as_for_the_validators():
    manager = limited_to(2)
    enqueue_all(manager, Priority.CONTENT, "abcd")
    assert drain(manager, 999) == ["a", "b"]
    assert drain(manager, 1000) == ["c", "d"]


def test_repair_retry_and_sync_stop_at_the_threshold_and_content_uses_the_rest():
    manager = limited_to(10)
    for priority in (Priority.REPAIR, Priority.RETRY, Priority.SYNC):
        enqueue_all(manager, priority, [priority.name] * 4)
    left = [item for now_ms in range(EPOCH_MS) for item in drain(manager, now_ms)]
    assert left == ["REPAIR"] * 4 + ["RETRY"] * 4 + ["SYNC"]
    enqueue_all(manager, Priority.CONTENT, "ab")
    assert drain(manager, EPOCH_MS - 1) == ["a"]
    assert drain(manager, EPOCH_MS) == ["b"]


@pytest.mark.parametrize("priority", [Priority.RETRY, Priority.SYNC])
def test_retries_and_sync_messages_leave_at_an_even_rate_over_an_epoch(priority):
    manager = limited_to(10)
    enqueue_all(manager, priority, range(20))
    times = [now_ms for now_ms in range(2 * EPOCH_MS) for _ in drain(manager, now_ms)]
    even = [-(-EPOCH_MS * number // 9) for number in range(9)]
    assert times == even + [EPOCH_MS + each for each in even]


def test_content_that_comes_at_an_even_rate_never_waits_for_retries():
    manager = limited_to(20)
    enqueue_all(manager, Priority.RETRY, ["retry"] * 100)
    for now_ms in range(3 * EPOCH_MS):
        if now_ms % 100 == 99:
            enqueue_all(manager, Priority.CONTENT, [now_ms])
            assert now_ms in drain(manager, now_ms)
        else:
            drain(manager, now_ms)


def test_with_one_slot_an_epoch_content_goes_first_and_retries_go_when_nobody_has_anything_to_say():
    manager = limited_to(1)
    enqueue_all(manager, Priority.RETRY, ["retry"])
    enqueue_all(manager, Priority.CONTENT, ["content"])
    assert drain(manager, 0) == ["content"]
    assert manager.next_send_at(0) == 1000
    assert drain(manager, 1000) == ["retry"]


@pytest.mark.parametrize(("limit", "admitted"), [(1, 1), (2, 2), (5, 5), (10, 9), (20, 18)])
def test_ephemeral_messages_go_while_less_than_ninety_percent_is_used(limit, admitted):
    manager = limited_to(limit)
    dropped = [manager.admit_ephemeral(0) for _ in range(limit + 1)]
    assert dropped[:admitted] == [None] * admitted
    assert None not in dropped[admitted:]


def test_with_no_slot_nothing_goes_until_the_quota_changes():
    manager = limited_to(0)
    enqueue_all(manager, Priority.CONTENT, ["content"])
    assert manager.admit(0) is None
    assert manager.next_send_at(0) is None
    assert manager.admit_ephemeral(0) is DropReason.RATE_LIMIT_REACHED


def test_ephemeral_messages_are_dropped_at_ninety_percent_and_say_why():
    manager = limited_to(10)
    assert [manager.admit_ephemeral(0) for _ in range(9)] == [None] * 9
    assert manager.utilization(0) == 90
    assert manager.admit_ephemeral(0) is DropReason.RATE_LIMIT_APPROACHED
    enqueue_all(manager, Priority.CONTENT, ["content"])
    assert drain(manager) == ["content"]
    assert manager.admit_ephemeral(0) is DropReason.RATE_LIMIT_REACHED
    assert manager.admit_ephemeral(1000) is None


def test_the_threshold_is_an_option():
    manager = limited_to(10, approached_threshold=0.5)
    assert [manager.admit_ephemeral(0) for _ in range(6)] == [None] * 5 + [DropReason.RATE_LIMIT_APPROACHED]


def test_ephemeral_messages_never_take_the_slots_of_content_that_waits():
    manager = limited_to(10)
    enqueue_all(manager, Priority.CONTENT, [0])
    for number in range(1, 9):
        manager.enqueue(number, Priority.CONTENT, number)
    assert manager.admit_ephemeral(0) is DropReason.RATE_LIMIT_APPROACHED
    for number in range(1, 9):
        assert manager.discard(number)
    assert drain(manager) == [0]
    assert manager.admit_ephemeral(0) is None


def test_an_ephemeral_message_without_a_proof_gets_its_charge_back():
    manager = limited_to(2)
    assert manager.admit_ephemeral(0) is None
    manager.refund_ephemeral(0)
    assert manager.utilization(0) == 0


def test_a_node_s_quota_turns_the_limiter_on_and_its_withdrawal_off():
    manager = limited_to(None)
    enqueue_all(manager, Priority.CONTENT, "abc")
    manager.set_node_quota(1, None, None, 0)
    assert manager.limiting
    assert drain(manager) == ["a"]
    manager.set_node_quota(None, None, None, 0)
    assert not manager.limiting
    assert drain(manager) == ["b", "c"]


def test_a_node_without_membership_is_not_ready_rather_than_used_up():
    manager = limited_to(None)
    enqueue_all(manager, Priority.CONTENT, ["content"])
    manager.set_node_quota(0, None, 0, 0)
    assert manager.admit(0) is None
    assert manager.next_send_at(0) is None
    assert manager.utilization(0) == 0
    assert manager.admit_ephemeral(0) is DropReason.NOT_READY
    manager.set_node_quota(5, None, None, 0)
    assert drain(manager) == ["content"]


def test_a_provider_s_quota_limits_like_a_node_s():
    manager = limited_to(None)
    enqueue_all(manager, Priority.CONTENT, "abc")
    manager.set_provider_quota(EpochQuota(epoch_index=0, rate_limit=5, remaining=2), 0)
    assert drain(manager) == ["a", "b"]
    manager.set_provider_quota(None, 0)
    assert drain(manager) == ["c"]


def test_an_exhausted_budget_holds_everything_to_the_next_epoch():
    manager = limited_to(None)
    enqueue_all(manager, Priority.CONTENT, ["a"])
    manager.exhaust(300)
    assert manager.admit(300) is None
    assert manager.admit_ephemeral(300) is DropReason.RATE_LIMIT_REACHED
    assert manager.next_send_at(300) == 1000
    assert drain(manager, 1000) == ["a"]


def test_the_clock_going_back_refills_nothing():
    manager = limited_to(2)
    enqueue_all(manager, Priority.CONTENT, "abcdef")
    assert drain(manager, 5_000) == ["a", "b"]
    for earlier_ms in (4_999, 3_000, 2_999, 0):
        assert drain(manager, earlier_ms) == []
    assert manager.next_send_at(0) == 1000
    assert drain(manager, 1000) == ["c", "d"]
    assert drain(manager, 5_000) == []


def test_the_expected_time_of_a_queued_item_counts_what_is_ahead_of_it():
    manager = limited_to(2)
    enqueue_all(manager, Priority.CONTENT, "abcd")
    assert manager.expected_at(Priority.CONTENT, 0) == 1000
    enqueue_all(manager, Priority.RETRY, ["retry"])
    assert manager.expected_at(Priority.RETRY, 0) == 4000


def test_the_state_is_handed_over_before_the_item():
    log = []
    manager: RateLimitManager[Any] = limited_to(5, on_change=lambda: log.append(("saved", manager.state())))
    enqueue_all(manager, Priority.CONTENT, ["a"])
    assert log == []
    log.append(("left", manager.admit(0).item))
    assert log == [("saved", manager.state()), ("left", "a")]


def test_an_item_whose_charge_cannot_be_saved_stays_and_the_charge_stands():
    disk_is_full = True

    def save() -> None:
        if disk_is_full:
            raise OSError("disk full")

    manager = limited_to(5, on_change=save)
    enqueue_all(manager, Priority.CONTENT, ["a"])
    with pytest.raises(OSError, match="disk full"):
        manager.admit(0)
    assert manager.queued() == 1
    assert manager.utilization(0) == 20
    disk_is_full = False
    assert drain(manager) == ["a"]


def test_a_crash_refills_nothing_and_keeps_what_the_node_told():
    saved = []
    manager: RateLimitManager[Any] = limited_to(None, on_change=lambda: saved.append(manager.state()))
    manager.set_node_quota(3, None, None, 0)
    enqueue_all(manager, Priority.CONTENT, "abcd")
    assert drain(manager) == ["a", "b", "c"]
    revived = limited_to(None)
    revived.restore(json.loads(json.dumps(saved[-1])))
    enqueue_all(revived, Priority.CONTENT, "d")
    assert revived.limiting
    assert revived.admit(999) is None
    assert drain(revived, 1000) == ["d"]


def test_every_change_of_state_is_reported_and_nothing_else():
    saved = []
    manager: RateLimitManager[Any] = limited_to(5, on_change=lambda: saved.append(manager.state()))
    enqueue_all(manager, Priority.CONTENT, ["a"])
    admission = manager.admit(0)
    manager.put_back(admission)
    manager.set_node_quota(4, None, None, 0)
    manager.set_node_quota(4, None, None, 1)
    manager.set_provider_quota(None, 1)
    manager.exhaust(1)
    manager.utilization(1)
    manager.next_send_at(1)
    manager.admit(1)
    assert len(saved) == 4
    assert saved[-1] == manager.state()


def dispatch_through(
    manager: RateLimitManager[bytes], provider: StrictRlnProvider, now_ms: int
) -> list[tuple[bytes, bytes]]:
    """What a shell does: admit, prove, send; put back what could not be proved."""
    sent = []
    while True:
        manager.set_provider_quota(provider.epoch_quota(now_ms), now_ms)
        admission = manager.admit(now_ms)
        if admission is None:
            return sent
        signal = rln_signal(admission.item, "/topic", now_ms * 1_000_000)
        try:
            sent.append((signal, provider.generate_proof(signal, now_ms)))
        except RlnError as error:
            manager.put_back(admission)
            if error.kind is RlnErrorKind.BUDGET_EXHAUSTED:
                manager.exhaust(now_ms)
            elif error.kind is RlnErrorKind.NOT_READY:
                return sent


def test_limiter_and_provider_together_send_everything_once_and_never_signal_twice():
    faults = [RlnErrorKind.NOT_READY, None, RlnErrorKind.TRANSIENT, None, None, RlnErrorKind.TRANSIENT]
    provider = StrictRlnProvider(rate_limit=4, epoch_ms=EPOCH_MS, faults=faults)
    validator = RlnTestValidator(rate_limit=4, epoch_ms=EPOCH_MS)
    manager: RateLimitManager[bytes] = RateLimitManager(RateLimitConfig(epoch_ms=EPOCH_MS))
    payloads = [b"%d" % number for number in range(10)]
    enqueue_all(manager, Priority.CONTENT, payloads)
    arrived, per_epoch = [], []
    for now_ms in (0, 10, 999, 1_000, 2_500):
        sent = dispatch_through(manager, provider, now_ms)
        per_epoch.append(len(sent))
        for signal, proof in sent:
            assert validator.validate(proof, signal, now_ms) is ProofVerdict.VALID
            arrived.append(signal[: -len("/topic") - 8])
    assert arrived == payloads
    assert per_epoch == [0, 4, 0, 4, 2]


def test_a_provider_that_lost_slots_elsewhere_ends_the_epoch_without_a_busy_loop():
    provider = StrictRlnProvider(rate_limit=4, epoch_ms=EPOCH_MS, faults=[None, RlnErrorKind.BUDGET_EXHAUSTED])
    manager: RateLimitManager[bytes] = RateLimitManager(RateLimitConfig(epoch_ms=EPOCH_MS))
    enqueue_all(manager, Priority.CONTENT, [b"a", b"b", b"c"])
    assert len(dispatch_through(manager, provider, 0)) == 1
    assert manager.next_send_at(0) == 1000
    assert len(dispatch_through(manager, provider, 1000)) == 2


def test_a_sync_message_gets_out_between_retries_that_never_end():
    manager = limited_to(None)
    enqueue_all(manager, Priority.RETRY, [f"retry {number}" for number in range(40)])
    enqueue_all(manager, Priority.SYNC, ["sync"])
    left = drain(manager)
    assert left.index("sync") == 4
    assert len(left) == 41


def test_retries_leave_room_for_a_sync_message_in_an_epoch_and_content_goes_before_both():
    manager = limited_to(10)
    enqueue_all(manager, Priority.RETRY, [f"retry {number}" for number in range(40)])
    enqueue_all(manager, Priority.SYNC, ["sync"])
    enqueue_all(manager, Priority.CONTENT, ["a", "b", "c", "d", "e"])
    left = [item for now_ms in range(2 * EPOCH_MS) for item in drain(manager, now_ms)]
    retries = [f"retry {number}" for number in range(12)]
    assert left == ["a", "b", "c", "d", "e", *retries[:4], "sync", *retries[4:12]]


def test_a_sync_message_gets_out_between_retries_although_content_leaves_between_them():
    manager = limited_to(100)
    enqueue_all(manager, Priority.RETRY, ["retry"] * 100)
    enqueue_all(manager, Priority.SYNC, ["sync"])
    left = []
    for now_ms in range(EPOCH_MS):
        if now_ms % 50 == 0:
            enqueue_all(manager, Priority.CONTENT, ["content"])
        left += drain(manager, now_ms)
    assert left[: left.index("sync")].count("retry") == 4
