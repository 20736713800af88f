"""Proofs hold by the equation of Groth16, computed with py_ecc alone: another language, curve and pairing code.

What is read here is written as arkworks does it: numbers little-endian; in the highest byte of a compressed point bit 7
tells that y is the greater of the two roots, and bit 6 the point at infinity.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fairway.protocol.ratelimit import rln_signal
from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import element, hash_to_field, number_of
from fairway.rln.proof import SignalProof

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("compiled")]

_DEPTH = sys.getrecursionlimit()
curve = pytest.importorskip("py_ecc.optimized_bn128", reason="py_ecc is not installed: make setup")
# It lets the whole process call so deep that the stack overflows: other tests see to it that deep JSON is refused.
sys.setrecursionlimit(_DEPTH)

KEY = json.loads((Path(__file__).parents[1] / "vectors" / "rln" / "verifying_key.json").read_text())
P = curve.field_modulus
FLAGS = 0xC0
GREATER = 0x80
EPOCH = 2_985_000


def coordinates(data: bytes) -> list[int]:
    """Return the numbers in some bytes, without the flags of the last."""
    plain = data[:-1] + bytes([data[-1] & ~FLAGS])
    return [int.from_bytes(plain[at : at + 32], "little") for at in range(0, len(plain), 32)]


def point_of_g1(x: int, y: int):
    point = (curve.FQ(x), curve.FQ(y), curve.FQ.one())
    assert curve.is_on_curve(point, curve.b)
    return point


def point_of_g2(x: list[int], y: list[int]):
    point = (curve.FQ2(x), curve.FQ2(y), curve.FQ2.one())
    assert curve.is_on_curve(point, curve.b2)
    return point


def g1(text: str):
    return point_of_g1(*coordinates(bytes.fromhex(text)))


def g2(text: str):
    numbers = coordinates(bytes.fromhex(text))
    return point_of_g2(numbers[:2], numbers[2:])


def root_of(square: int) -> int | None:
    """Return a square root modulo P, which is 3 modulo 4; None if there is none."""
    root = pow(square, (P + 1) // 4, P)
    return root if root * root % P == square % P else None


def root_of_pair(real: int, imaginary: int) -> tuple[int, int]:
    """Return a square root of real + imaginary * i, where i * i = -1."""
    norm = root_of(real * real + imaginary * imaginary)
    assert norm is not None, "the x of a point of G2 has no y"
    half = pow(2, -1, P)
    first = root_of((real + norm) * half)
    if first is None or first == 0:
        first = root_of((real - norm) * half)
    assert first, "a y without a real part does not occur by chance"
    return first, imaginary * pow(2 * first, -1, P) % P


def uncompressed_g1(data: bytes):
    (x,) = coordinates(data)
    y = root_of(x**3 + 3)
    assert y is not None, "the x of a point of G1 has no y"
    return point_of_g1(x, max(y, P - y) if data[-1] & GREATER else min(y, P - y))


def uncompressed_g2(data: bytes):
    x = coordinates(data)
    square = curve.FQ2(x) ** 3 + curve.b2
    y = root_of_pair(*(int(part) for part in square.coeffs))
    both = [y, tuple(-part % P for part in y)]
    both.sort(key=lambda pair: pair[::-1])  # by the imaginary part first
    return point_of_g2(x, list(both[bool(data[-1] & GREATER)]))


def holds(proof: SignalProof, network: RlnNetwork) -> bool:
    """Return whether e(A, B) = e(alpha, beta) * e(sum of inputs, gamma) * e(C, delta)."""
    a, b, c = proof.proof[:32], proof.proof[32:96], proof.proof[96:]
    inputs = (proof.share_y, proof.root, proof.nullifier, proof.share_x, network.external_nullifier(proof.epoch))
    total, *points = map(g1, KEY["gamma_abc_g1"])
    for point, value in zip(points, inputs, strict=True):
        total = curve.add(total, curve.multiply(point, number_of(value)))
    pairs = [
        (uncompressed_g2(b), curve.neg(uncompressed_g1(a))),
        (g2(KEY["beta_g2"]), g1(KEY["alpha_g1"])),
        (g2(KEY["gamma_g2"]), total),
        (g2(KEY["delta_g2"]), uncompressed_g1(c)),
    ]
    product = curve.FQ12.one()
    for of_g2, of_g1 in pairs:
        product *= curve.pairing(of_g2, of_g1, final_exponentiate=False)
    return curve.final_exponentiate(product) == curve.FQ12.one()


@pytest.fixture(scope="module")
def network() -> RlnNetwork:
    return RlnNetwork()


def proof_of(prover, member, number: int) -> SignalProof:
    return prover.prove(member, number, rln_signal(b"%d" % number, "/fairway/1/rln/proto", 1), EPOCH)


def test_our_proofs_hold(prover, member, network):
    for number in range(3):
        proof = proof_of(prover, member, number)
        assert proof.share_x == hash_to_field(rln_signal(b"%d" % number, "/fairway/1/rln/proto", 1))
        assert holds(proof, network)


@pytest.mark.parametrize("name", ["root", "share_x", "share_y", "nullifier"])
def test_a_proof_with_another_value_does_not_hold(prover, member, network, name):
    proof = proof_of(prover, member, 4)
    assert not holds(replace(proof, **{name: element(number_of(getattr(proof, name)) ^ 1)}), network)


def test_a_proof_of_another_epoch_or_network_does_not_hold(prover, member, network):
    proof = proof_of(prover, member, 5)
    assert not holds(replace(proof, epoch=EPOCH + 1), network)
    assert not holds(proof, RlnNetwork(identifier=b"another"))
