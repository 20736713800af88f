"""Proofs are understood by the crate rln 2.0.2, which other nodes are built with, and its proofs here.

Its program in ``older`` is compiled beside fairway-rln, with which it shares nearly all crates, in under a minute.
Without Rust this is skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import element, hash_to_field
from fairway.rln.proving import circuit
from patience import PATIENCE_S

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("compiled")]

ROOT = Path(__file__).parents[2]
_BUILD_SECONDS = 1_500
EPOCH = 2_985_000


@pytest.fixture(scope="module")
def older(compiled):
    """Ask the program a line, and get a line."""
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("there is no cargo to compile rln 2.0.2 with")
    target = ROOT / "build" / "rln"
    target.mkdir(parents=True, exist_ok=True)
    folder = Path(__file__).with_name("older")
    with (target / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([sys.executable, ROOT / "rln" / "write_lock.py", folder], timeout=PATIENCE_S, check=True)
        subprocess.run(
            [cargo, "build", "--quiet", "--release", "--locked"],
            cwd=folder,
            env={**os.environ, "CARGO_TARGET_DIR": str(target)},
            timeout=_BUILD_SECONDS,
            check=True,
        )

    def ask(*words: str) -> str:
        done = subprocess.run(
            [target / "release" / "older-rln"],
            input=" ".join(words) + "\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return done.stdout.strip()

    return ask


def test_the_older_crate_accepts_our_proofs(older, prover, member):
    proof = prover.prove(member, 3, b"signal", EPOCH)
    parts = [proof.proof, proof.root, proof.share_x, proof.share_y, proof.nullifier]
    external = RlnNetwork().external_nullifier(EPOCH)
    assert older("verify", b"".join(parts).hex(), external.hex()) == "true"
    for index in range(5):
        changed = [part if at != index else bytes([part[0] ^ 1]) + part[1:] for at, part in enumerate(parts)]
        assert older("verify", b"".join(changed).hex(), external.hex()) == "false"
    assert older("verify", b"".join(parts).hex(), RlnNetwork().external_nullifier(EPOCH + 1).hex()) == "false"


def test_proofs_of_the_older_crate_are_valid_with_the_same_values(older, prover, member):
    ours = prover.prove(member, 3, b"signal", EPOCH)
    external = RlnNetwork().external_nullifier(EPOCH)
    numbers = (element(member.limit), element(3), hash_to_field(b"signal"), external)
    witness = b"".join((member.identity.secret, *numbers, *member.path.siblings, member.path.bits))
    theirs = bytes.fromhex(older("prove", witness.hex()))
    assert circuit().verify(theirs, external)
    assert theirs[128:] == b"".join((ours.root, ours.share_x, ours.share_y, ours.nullifier))
