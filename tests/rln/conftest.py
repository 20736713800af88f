"""Tests of RLN run the compiled package fairway-rln. Without it they are skipped; in CI with Rust they must run."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest

from fairway.rln.identity import Identity
from fairway.rln.membership_file import MembershipFile
from fairway.rln.proving import CircuitProver, CircuitVerifier, RlnMember
from fairway.rln.validation import ProofValidator


@pytest.fixture(scope="session")
def compiled() -> None:
    """Skip what needs fairway-rln where it is not installed."""
    if find_spec("fairway_rln") is not None:
        return
    reason = "fairway-rln is not installed: make rln"
    if os.environ.get("CI") == "true" and shutil.which("cargo") is not None:
        pytest.fail(reason)
    pytest.skip(reason)


def identity_of(number: int) -> Identity:
    """Return one of the identities that the tests know."""
    return Identity.create(lambda size: number.to_bytes(size, "big"))


@pytest.fixture(scope="session")
def identities(compiled) -> list[Identity]:
    return [identity_of(number) for number in range(1, 6)]


@pytest.fixture
def group(tmp_path, identities) -> MembershipFile:
    """A group of five, of whom each may send 20 messages in an epoch."""
    group = MembershipFile.create(tmp_path / "group.json")
    for identity in identities:
        group.register(identity.commitment, 20)
    return group


@pytest.fixture
def member(group, identities) -> RlnMember:
    return group.member(identities[2])


@pytest.fixture(scope="session")
def prover(compiled) -> CircuitProver:
    return CircuitProver()


@pytest.fixture(scope="session")
def verifier(compiled) -> CircuitVerifier:
    return CircuitVerifier()


@pytest.fixture
def validator(group, verifier) -> ProofValidator:
    return ProofValidator(group.network, group.roots, verifier)
