"""What double signals give away, in a file that only its owner may read."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal as signals
import stat

import pytest

from fairway.errors import StorageError, StoreCorruptError, StoreFullError
from fairway.rln.epochs import NETWORK_IDENTIFIER
from fairway.rln.field import FIELD_ORDER, element, number_of
from fairway.rln.identity import RlnIdentity
from fairway.rln.proof import SignalProof
from fairway.rln.slash_log import SlashLog
from fairway.rln.validation import DoubleSignal, NullifierLog

pytestmark = pytest.mark.usefixtures("compiled")

NOW_MS = 1_791_000_000_000
EPOCH = 2_985_000


def proof_of(identity: RlnIdentity, x: int, *, message_id: int = 0, epoch: int = EPOCH) -> SignalProof:
    """Return a proof as a member makes it, but for its mathematics, at which a log does not look."""
    slope = 1_000_003 * epoch + message_id
    share_y = (number_of(identity.secret) + slope * x) % FIELD_ORDER
    return SignalProof(
        proof=bytes([x]) * 128,
        root=element(17),
        epoch=epoch,
        share_x=element(x),
        share_y=element(share_y),
        nullifier=element(slope),
        identifier=NETWORK_IDENTIFIER.ljust(32, b"\0"),
    )


def double_of(identity: RlnIdentity, **place: int) -> DoubleSignal:
    log = NullifierLog()
    log.note(proof_of(identity, 1, **place))
    found = log.note(proof_of(identity, 2, **place))
    assert isinstance(found, DoubleSignal)
    return found


def test_a_double_signal_is_a_line_with_the_secret_the_commitment_and_both_proofs(tmp_path, identities):
    path = tmp_path / "slashed.jsonl"
    double = double_of(identities[0])
    log = SlashLog(path)
    assert log.record(double, NOW_MS)
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {
        "at_ms": NOW_MS,
        "epoch": EPOCH,
        "identity_commitment": identities[0].commitment.hex(),
        "identity_secret": identities[0].secret.hex(),
        "nullifier": double.first.nullifier.hex(),
        "root": double.second.root.hex(),
        "rln_identifier": double.first.identifier.hex(),
        "proofs": [
            {
                "id": hashlib.sha256(each.encode()).hexdigest(),
                "share_x": each.share_x.hex(),
                "share_y": each.share_y.hex(),
            }
            for each in (double.first, double.second)
        ],
    }


def test_only_the_owner_may_read_the_file_also_if_it_was_there(tmp_path, identities):
    there = tmp_path / "there"
    there.write_text("")
    there.chmod(0o644)
    for path in (tmp_path / "new", there):
        log = SlashLog(path)
        log.record(double_of(identities[0]), NOW_MS)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_of_a_nullifier_there_is_one_line_and_of_each_other_one_too(tmp_path, identities):
    path = tmp_path / "slashed.jsonl"
    log = SlashLog(path)
    assert log.record(double_of(identities[0]), NOW_MS)
    assert not log.record(double_of(identities[0]), NOW_MS + 1)
    assert log.record(double_of(identities[0], message_id=1), NOW_MS)
    assert log.record(double_of(identities[0], epoch=EPOCH + 1), NOW_MS)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["epoch"], line["at_ms"]) for line in lines] == [(EPOCH, NOW_MS), (EPOCH, NOW_MS), (EPOCH + 1, NOW_MS)]
    assert {line["identity_secret"] for line in lines} == {identities[0].secret.hex()}


def test_a_line_that_a_crash_left_without_its_end_spoils_no_other(tmp_path, identities):
    path = tmp_path / "slashed.jsonl"
    path.write_bytes(b'{"at_ms": 17')
    log = SlashLog(path)
    log.record(double_of(identities[0]), NOW_MS)
    torn, line = path.read_text().splitlines()
    assert torn == '{"at_ms": 17'
    assert json.loads(line)["epoch"] == EPOCH


def test_a_path_that_is_no_file_is_refused_before_a_write(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(StoreCorruptError, match="is no ordinary file"):
            SlashLog(path)
    with pytest.raises(StorageError, match="opening failed"):
        SlashLog(tmp_path / "no" / "folder")


def test_a_full_disk_is_an_error_and_the_double_signal_is_written_when_there_is_room(tmp_path, identities):
    path = tmp_path / "slashed.jsonl"
    double = double_of(identities[0])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    log = SlashLog(path)
    # The size that a process may give to files is a disk of that size; its signal is turned into an error.
    handler = signals.signal(signals.SIGXFSZ, signals.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        for _ in range(2):
            with pytest.raises(StoreFullError, match=r"free some space|writing failed"):
                log.record(double, NOW_MS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signals.signal(signals.SIGXFSZ, handler)
    assert log.record(double, NOW_MS)
    (line,) = path.read_text().splitlines()
    assert json.loads(line)["identity_secret"] == identities[0].secret.hex()
