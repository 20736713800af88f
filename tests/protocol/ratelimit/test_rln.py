from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import RlnError, RlnErrorKind
from fairway.protocol.ratelimit import RlnProofProvider, rln_signal
from rln_testing import (
    PROOF_BYTES,
    ProofVerdict,
    RlnTestValidator,
    StrictRlnProvider,
)

EPOCH_MS = 600_000
TOPIC = "/fairway/1/team/proto"


def signal_at(now_ms: int, payload: bytes = b"hello") -> bytes:
    return rln_signal(payload, TOPIC, now_ms * 1_000_000)


def test_the_signal_is_payload_topic_and_timestamp_little_endian():
    assert rln_signal(b"\x01\x02", "/a/1/é/p", 0x0102030405060708) == (
        b"\x01\x02" + b"/a/1/\xc3\xa9/p" + b"\x08\x07\x06\x05\x04\x03\x02\x01"
    )


def test_a_negative_timestamp_is_written_as_two_s_complement():
    assert rln_signal(b"", "", -2) == b"\xfe" + b"\xff" * 7


def test_the_provider_of_the_tests_has_the_interface():
    assert isinstance(StrictRlnProvider(rate_limit=1, epoch_ms=EPOCH_MS), RlnProofProvider)


def test_the_strict_provider_fails_as_it_is_told_and_uses_no_number_up_for_it():
    provider = StrictRlnProvider(
        rate_limit=1, epoch_ms=EPOCH_MS, faults=[RlnErrorKind.TRANSIENT, None, RlnErrorKind.PERMANENT]
    )
    with pytest.raises(RlnError, match="transient"):
        provider.generate_proof(signal_at(0), 0)
    assert len(provider.generate_proof(signal_at(0), 0)) == PROOF_BYTES
    with pytest.raises(RlnError, match="permanent"):
        provider.generate_proof(signal_at(0), 0)
    with pytest.raises(RlnError) as caught:
        provider.generate_proof(signal_at(0), 0)
    assert caught.value.kind is RlnErrorKind.BUDGET_EXHAUSTED


def test_the_strict_provider_without_membership_is_not_ready():
    provider = StrictRlnProvider(rate_limit=0, epoch_ms=EPOCH_MS)
    assert provider.epoch_quota(0).rate_limit == 0
    with pytest.raises(RlnError) as caught:
        provider.generate_proof(signal_at(0), 0)
    assert caught.value.kind is RlnErrorKind.NOT_READY


@given(
    times=st.lists(st.integers(0, 4 * EPOCH_MS), max_size=30),
    crashes=st.sets(st.integers(0, 29)),
)
def test_the_strict_provider_never_uses_a_number_twice_whatever_the_clock_does_and_across_crashes(times, crashes):
    reserved: dict[int, int] = {}

    def provider() -> StrictRlnProvider:
        return StrictRlnProvider(rate_limit=5, epoch_ms=EPOCH_MS, on_reserve=reserved.update, reserved=reserved)

    current, validator = provider(), RlnTestValidator(rate_limit=5, epoch_ms=EPOCH_MS)
    for step, now_ms in enumerate(times):
        if step in crashes:
            current = provider()
        left = current.epoch_quota(now_ms).remaining
        signal = signal_at(now_ms, b"%d" % step)
        if left == 0:
            with pytest.raises(RlnError, match="budget-exhausted"):
                current.generate_proof(signal, now_ms)
        else:
            proof = current.generate_proof(signal, now_ms)
            assert validator.validate(proof, signal, now_ms) is ProofVerdict.VALID
            assert left is not None
            assert current.epoch_quota(now_ms).remaining == left - 1


def test_the_validator_catches_a_provider_that_forgot_its_numbers_in_a_crash():
    validator = RlnTestValidator(rate_limit=5, epoch_ms=EPOCH_MS)
    verdicts = []
    for payload in (b"first", b"second"):
        forgetful = StrictRlnProvider(rate_limit=5, epoch_ms=EPOCH_MS)
        signal = signal_at(0, payload)
        verdicts.append(validator.validate(forgetful.generate_proof(signal, 0), signal, 0))
    assert verdicts == [ProofVerdict.VALID, ProofVerdict.VIOLATION]


def test_the_validator_knows_the_same_message_again():
    validator = RlnTestValidator(rate_limit=5, epoch_ms=EPOCH_MS)
    signal = signal_at(0)
    proof = StrictRlnProvider(rate_limit=5, epoch_ms=EPOCH_MS).generate_proof(signal, 0)
    verdicts = [validator.validate(proof, signal, now_ms) for now_ms in (0, 20_000)]
    assert verdicts == [ProofVerdict.VALID, ProofVerdict.DUPLICATE]


def test_two_members_have_numbers_of_their_own():
    validator = RlnTestValidator(rate_limit=1, epoch_ms=EPOCH_MS)
    for member in ("alice", "bob"):
        signal = signal_at(0, member.encode())
        provider = StrictRlnProvider(rate_limit=1, epoch_ms=EPOCH_MS, member=member)
        assert validator.validate(provider.generate_proof(signal, 0), signal, 0) is ProofVerdict.VALID


@pytest.mark.parametrize(
    ("proved_at_ms", "stamped_ms", "received_ms"),
    [
        pytest.param(EPOCH_MS - 1, EPOCH_MS, EPOCH_MS, id="proof of the epoch before the timestamp's"),
        pytest.param(0, 0, 20_001, id="received more than 20 s after its timestamp"),
        pytest.param(30_000, 30_000, 9_999, id="received more than 20 s before its timestamp"),
    ],
)
def test_the_validator_refuses_a_proof_out_of_time(proved_at_ms, stamped_ms, received_ms):
    signal = signal_at(stamped_ms)
    proof = StrictRlnProvider(rate_limit=1, epoch_ms=EPOCH_MS).generate_proof(signal, proved_at_ms)
    validator = RlnTestValidator(rate_limit=1, epoch_ms=EPOCH_MS)
    assert validator.validate(proof, signal, received_ms) is ProofVerdict.INVALID


def test_the_validator_refuses_what_is_no_proof_of_this_signal():
    validator = RlnTestValidator(rate_limit=1, epoch_ms=EPOCH_MS)
    proof = StrictRlnProvider(rate_limit=1, epoch_ms=EPOCH_MS).generate_proof(signal_at(0), 0)
    assert validator.validate(proof, signal_at(0, b"other"), 0) is ProofVerdict.INVALID
    assert validator.validate(b"", signal_at(0), 0) is ProofVerdict.INVALID
    assert validator.validate(proof, b"short", 0) is ProofVerdict.INVALID


def test_the_validator_refuses_a_number_beyond_the_limit():
    provider = StrictRlnProvider(rate_limit=2, epoch_ms=EPOCH_MS, reserved={0: 1})
    proof = provider.generate_proof(signal_at(0), 0)
    assert RlnTestValidator(rate_limit=1, epoch_ms=EPOCH_MS).validate(proof, signal_at(0), 0) is (ProofVerdict.INVALID)
