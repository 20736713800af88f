"""The compiled package: known answers of Poseidon, proofs that hold for their own values alone, and bad input."""

from __future__ import annotations

import sys

import pytest

from fairway.errors import MissingExtraError
from fairway.rln.field import poseidon
from fairway.rln.proving import circuit

pytestmark = pytest.mark.usefixtures("compiled")

SECRET, LIMIT, X, EXTERNAL = 12345, 20, 5, 777
PROOF_BYTES = 128


def element(number: int) -> bytes:
    return number.to_bytes(32, "little")


def number(data: bytes) -> int:
    return int.from_bytes(data, "little")


@pytest.fixture(scope="module")
def zeros() -> list[bytes]:
    """The roots of trees without a leaf, by depth."""
    roots = [element(0)]
    for _ in range(20):
        roots.append(poseidon(roots[-1], roots[-1]))
    return roots


@pytest.fixture(scope="module")
def witness(zeros):
    """Return the witness of the only member of a tree, at its first place."""

    def make(*, message_id: int = 0, x: int = X, external: int = EXTERNAL, secret: int = SECRET) -> bytes:
        head = [secret, LIMIT, message_id, x, external]
        return b"".join([*map(element, head), *zeros[:20], bytes(20)])

    return make


@pytest.fixture(scope="module")
def proven(witness) -> bytes:
    return circuit().prove(witness())


# Published with circomlib and Semaphore, and the same in every implementation of Poseidon over BN254.
@pytest.mark.parametrize(
    ("inputs", "hashed"),
    [
        ([1], 18586133768512220936620570745912940619677854269274689475585506675881198879027),
        ([1, 2], 7853200120776062878684798364095072458815029376092732009249414926327459813530),
        ([0, 0], 14744269619966411208579211824598458697587494354926760081771325075741142829156),
    ],
)
def test_poseidon_gives_the_published_hashes(inputs, hashed):
    assert number(poseidon(*map(element, inputs))) == hashed


def test_the_root_of_an_empty_tree_is_the_published_one(zeros):
    assert number(zeros[20]) == 15019797232609675441998260052101280400536945603062888308240081994073687793470


def test_a_proof_holds_for_its_own_values_and_names_them(proven, zeros):
    leaf = poseidon(poseidon(element(SECRET)), element(LIMIT))
    root = leaf
    for zero in zeros[:20]:
        root = poseidon(root, zero)
    slope = poseidon(element(SECRET), element(EXTERNAL), element(0))
    order = 21888242871839275222246405745257275088548364400416034343698204186575808495617
    assert proven[PROOF_BYTES:] == b"".join(
        [root, element(X), element((SECRET + X * number(slope)) % order), poseidon(slope)]
    )
    assert circuit().verify(proven, element(EXTERNAL))


def test_a_partial_proof_serves_every_message_of_its_membership(witness):
    partial = circuit().prove_partially(witness())
    for changed in ({}, {"message_id": 1, "x": 6, "external": 778}):
        proven = circuit().finish(partial, witness(**changed))
        assert circuit().verify(proven, element(changed.get("external", EXTERNAL)))


def test_a_partial_proof_shows_nothing_of_its_secret(witness):
    partial = circuit().prove_partially(witness())
    assert not [name for name in dir(partial) if not name.startswith("__")]
    assert "object at" in repr(partial)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda w, _: circuit().prove(w(message_id=LIMIT)), "not within user_message_limit"),
        (lambda w, _: circuit().prove(w()[:-1]), "a witness has 820 bytes, not 819"),
        (lambda w, _: circuit().prove(b"\xff" * 32 + w()[32:]), "not a field element"),
        (lambda w, _: circuit().prove_partially(b""), "a witness has 820 bytes, not 0"),
        (lambda _, p: circuit().verify(p[:-1], element(1)), "a proof with its values has 256 bytes, not 255"),
        (lambda _, p: circuit().verify(p, b""), "a field element has 32 bytes, not 0"),
        (lambda _, p: circuit().verify(b"\xff" * 128 + p[128:], element(1)), "not a proof"),
        (lambda _, p: circuit().verify(p[:128] + b"\xff" * 128, element(1)), "not a field element"),
        (lambda *_: poseidon(), "Poseidon takes 1 to 8 field elements, not 0"),
        (lambda *_: poseidon(*[element(1)] * 9), "Poseidon takes 1 to 8 field elements, not 9"),
        (lambda *_: poseidon(b"\xff" * 32), "not a field element"),
    ],
)
def test_bad_input_is_a_value_error(witness, proven, use, said):
    with pytest.raises(ValueError, match=said):
        use(witness, proven)


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "fairway_rln", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fairway\[rln\]'"):
        poseidon(element(1))
