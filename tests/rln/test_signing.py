"""Signals of one membership: quota, exhaustion, restarts in the middle, and validators that see no double signal."""

from __future__ import annotations

import pytest

from fairway.environment import time_ns
from fairway.errors import RlnError, RlnErrorKind
from fairway.rln.identity import Identity
from fairway.rln.membership import RlnMembership
from fairway.rln.message_ids import MessageIds
from fairway.rln.nullifiers import DoubleSignal, NullifierLog
from fairway.rln.signing import SignalSigner
from fairway.units import NS_PER_MS

NOW_MS = 1_791_000_000_000
EPOCH = 2_985_000


class BrokenProver:
    """Fails as a program that is killed while it proves."""

    def prepare(self, member):
        """It is killed before that helps."""

    def prove(self, *_):
        raise KeyboardInterrupt


@pytest.fixture
def path(tmp_path):
    MessageIds.create(tmp_path / "ids.db", first_epoch=0).close()
    return tmp_path / "ids.db"


def test_each_signal_gets_a_proof_that_holds_under_an_id_of_its_own(identities, group, path, prover, verifier):
    log = NullifierLog()
    with MessageIds(path) as ids:
        signer = SignalSigner(identities[0], group, ids, prover)
        for number in range(3):
            proof = signer.sign(b"%d" % number, NOW_MS)
            assert verifier.verify(proof, b"%d" % number)
            assert log.note(proof) is None
            quota = signer.quota(NOW_MS)
            assert (quota.epoch_index, quota.rate_limit, quota.remaining) == (EPOCH, 20, 19 - number)
            assert quota.epoch_ms == 600_000


def test_a_signal_that_is_signed_again_gives_nothing_away(identities, group, path, prover):
    log = NullifierLog()
    with MessageIds(path) as ids:
        signer = SignalSigner(identities[0], group, ids, prover)
        first = signer.sign(b"a", NOW_MS)
        assert log.note(first) is None
        assert log.note(signer.sign(b"a", NOW_MS)) is first
        assert signer.quota(NOW_MS).remaining == 19


@pytest.mark.full
def test_twenty_kills_while_proving_give_nothing_away(identities, group, path, prover):
    log = NullifierLog()
    for number in range(20):
        with MessageIds(path) as ids:
            with pytest.raises(KeyboardInterrupt):
                SignalSigner(identities[0], group, ids, BrokenProver()).sign(b"lost %d" % (number // 2), NOW_MS)
            if number % 2:
                proof = SignalSigner(identities[0], group, ids, prover).sign(b"kept %d" % number, NOW_MS)
                assert not isinstance(log.note(proof), DoubleSignal)
    assert len(log) == 10


def test_when_the_epoch_has_no_id_left_the_next_one_has(identities, group, path, prover):
    spender = Identity.create()
    group.register(spender.commitment, 1)
    with MessageIds(path) as ids:
        signer = SignalSigner(spender, group, ids, prover)
        signer.sign(b"a", NOW_MS)
        with pytest.raises(RlnError) as told:
            signer.sign(b"b", NOW_MS)
        assert told.value.kind is RlnErrorKind.BUDGET_EXHAUSTED
        assert signer.quota(NOW_MS).remaining == 0
        assert signer.sign(b"b", NOW_MS + 600_000).epoch == EPOCH + 1


def test_who_is_not_in_the_group_has_no_quota_and_no_proof(group, path, prover):
    with MessageIds(path) as ids:
        signer = SignalSigner(Identity.create(), group, ids, prover)
        assert signer.quota(NOW_MS).rate_limit == 0
        with pytest.raises(RlnError) as told:
            signer.sign(b"a", NOW_MS)
        assert told.value.kind is RlnErrorKind.NOT_READY


def test_an_id_that_cannot_be_kept_signs_nothing(identities, group, path, prover):
    ids = MessageIds(path)
    ids.close()
    signer = SignalSigner(identities[0], group, ids, prover)
    for use in (lambda: signer.sign(b"a", NOW_MS), lambda: signer.quota(NOW_MS)):
        with pytest.raises(RlnError) as told:
            use()
        assert told.value.kind is RlnErrorKind.TRANSIENT


def test_who_lost_the_count_of_ids_is_told_that_nothing_is_sent_in_this_epoch(group, identities, tmp_path, caplog):
    with RlnMembership.open(identities[0], group, tmp_path / "ids.db") as membership:
        assert "ids.db was not there" in caplog.text
        with pytest.raises(RlnError, match="epoch"):
            membership.generate_proof(b"signal", time_ns() // NS_PER_MS)
    caplog.clear()
    RlnMembership.open(identities[0], group, tmp_path / "ids.db").close()
    RlnMembership.open(identities[1], group, tmp_path / "new.db", never_used=True).close()
    assert caplog.text == ""
