"""A membership: its quota, what exhausts it, and crashes while it proves; no validator sees a double signal."""

from __future__ import annotations

import pytest

from fairway.environment import time_ns
from fairway.errors import RlnError, RlnErrorKind
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership import RlnMembership
from fairway.rln.message_ids import MessageIds
from fairway.rln.proof import SignalProof
from fairway.rln.validation import NullifierLog
from fairway.units import NS_PER_MS

NOW_MS = 1_791_000_000_000
EPOCH = 2_985_000


@pytest.fixture
def path(tmp_path):
    MessageIds.create(tmp_path / "ids.db", first_epoch=0).close()
    return tmp_path / "ids.db"


def test_each_signal_gets_a_proof_that_holds_under_an_id_of_its_own(identities, group, path, prover, verifier):
    log = NullifierLog()
    with MessageIds(path) as ids:
        membership = RlnMembership(identities[0], group, ids, prover)
        for number in range(3):
            proof = SignalProof.decode(membership.generate_proof(b"%d" % number, NOW_MS))
            assert verifier.verify(proof, b"%d" % number)
            assert log.note(proof) is None
            quota = membership.epoch_quota(NOW_MS)
            assert (quota.epoch_index, quota.rate_limit, quota.remaining) == (EPOCH, 20, 19 - number)
            assert quota.epoch_ms == 600_000


def test_a_signal_that_is_signed_again_reveals_nothing(identities, group, path, prover):
    log = NullifierLog()
    with MessageIds(path) as ids:
        membership = RlnMembership(identities[0], group, ids, prover)
        first = SignalProof.decode(membership.generate_proof(b"a", NOW_MS))
        assert log.note(first) is None
        assert log.note(SignalProof.decode(membership.generate_proof(b"a", NOW_MS))) is first
        assert membership.epoch_quota(NOW_MS).remaining == 19


def test_when_the_epoch_has_no_id_left_the_next_one_has(identities, group, path, prover):
    spender = RlnIdentity.create()
    group.register(spender.commitment, 1)
    with MessageIds(path) as ids:
        membership = RlnMembership(spender, group, ids, prover)
        membership.generate_proof(b"a", NOW_MS)
        with pytest.raises(RlnError) as told:
            membership.generate_proof(b"b", NOW_MS)
        assert told.value.kind is RlnErrorKind.BUDGET_EXHAUSTED
        assert membership.epoch_quota(NOW_MS).remaining == 0
        assert SignalProof.decode(membership.generate_proof(b"b", NOW_MS + 600_000)).epoch == EPOCH + 1


def test_an_identity_outside_the_group_has_no_quota_and_no_proof(group, path, prover):
    with MessageIds(path) as ids:
        membership = RlnMembership(RlnIdentity.create(), group, ids, prover)
        assert membership.epoch_quota(NOW_MS).rate_limit == 0
        with pytest.raises(RlnError) as told:
            membership.generate_proof(b"a", NOW_MS)
        assert told.value.kind is RlnErrorKind.NOT_READY


def test_an_id_that_cannot_be_kept_signs_nothing(identities, group, path, prover):
    ids = MessageIds(path)
    ids.close()
    membership = RlnMembership(identities[0], group, ids, prover)
    for use in (lambda: membership.generate_proof(b"a", NOW_MS), lambda: membership.epoch_quota(NOW_MS)):
        with pytest.raises(RlnError) as told:
            use()
        assert told.value.kind is RlnErrorKind.TRANSIENT


def test_a_lost_file_of_message_ids_logs_a_warning_and_blocks_the_epoch(group, identities, tmp_path, caplog):
    with RlnMembership.open(identities[0], group, tmp_path / "ids.db") as membership:
        assert "ids.db did not exist" in caplog.text
        with pytest.raises(RlnError, match="epoch"):
            membership.generate_proof(b"signal", time_ns() // NS_PER_MS)
    caplog.clear()
    RlnMembership.open(identities[0], group, tmp_path / "ids.db").close()
    RlnMembership.open(identities[1], group, tmp_path / "new.db", never_used=True).close()
    assert caplog.text == ""
