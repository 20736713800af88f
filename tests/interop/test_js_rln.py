"""zerokit as js-waku has it (WebAssembly, in Node.js) verifies our proofs and finds the secret that two give away.

It takes its keys from a file in the form of snarkjs. None that is published has those of the circuit of today's nodes:
the file is written here, with their verifying key, and proves nothing.
"""

from __future__ import annotations

import json
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fairway.rln.epochs import RlnNetwork
from fairway.rln.field import FIELD_ORDER, element, hash_to_field, number_of
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership_file import MembershipFile
from fairway.rln.proof import recover_secret
from fairway.rln.proving import CircuitProver
from patience import PATIENCE_S

KEY = Path(__file__).parents[1] / "vectors" / "rln" / "verifying_key.json"
COORDINATES = 21_888_242_871_839_275_222_246_405_745_257_275_088_696_311_157_297_823_662_689_037_894_645_226_208_583
"""Order of the field of the coordinates (EIP-197)."""
_FLAGS = 0xC0
_ELEMENT = 32
_G1, _G2 = 64, 128
_DOMAIN = 8
EPOCH = 2_985_000


def montgomery(number: int) -> bytes:
    return (number * 2**256 % COORDINATES).to_bytes(_ELEMENT, "little")


def point(text: str) -> bytes:
    """Return a point of the vectors, as arkworks writes it, as snarkjs does."""
    raw = bytes.fromhex(text)
    plain = raw[:-1] + bytes([raw[-1] & ~_FLAGS])
    return b"".join(
        montgomery(int.from_bytes(plain[at : at + _ELEMENT], "little")) for at in range(0, len(plain), _ELEMENT)
    )


def key_file() -> bytes:
    """Return a key in the form of snarkjs: the verifying key, and of all else as little as can be read."""
    known = json.loads(KEY.read_text(encoding="utf-8"))
    inputs = [point(text) for text in known["gamma_abc_g1"]]
    variables, public = len(inputs), len(inputs) - 1
    some_point = montgomery(1) + montgomery(2)
    fields = b"".join(
        struct.pack("<I", _ELEMENT) + each.to_bytes(_ELEMENT, "little") for each in (COORDINATES, FIELD_ORDER)
    )
    header = [fields, struct.pack("<III", variables, public, _DOMAIN), point(known["alpha_g1"]), some_point]
    header += [point(known[name]) for name in ("beta_g2", "gamma_g2")]
    header += [some_point, point(known["delta_g2"])]
    sections = [
        struct.pack("<I", 1),  # Groth16
        b"".join(header),
        b"".join(inputs),
        struct.pack("<IIII", 1, 0, 0, 0) + element(1),
        bytes(_G1 * variables),
        bytes(_G1 * variables),
        bytes(_G2 * variables),
        b"",
        bytes(_G1 * _DOMAIN),
    ]
    numbered = (struct.pack("<IQ", number, len(body)) + body for number, body in enumerate(sections, 1))
    return b"zkey" + struct.pack("<II", 1, len(sections)) + b"".join(numbered)


def plain(proof, signal, epoch=EPOCH):
    named = {"root": proof.root, "x": proof.share_x, "y": proof.share_y, "nullifier": proof.nullifier}
    named |= {"proof": proof.proof, "external": RlnNetwork().external_nullifier(epoch), "signal": signal}
    return {name: value.hex() for name, value in named.items()}


@pytest.mark.full
@pytest.mark.usefixtures("compiled")
def test_zerokit_in_javascript_understands_our_proofs_and_identities(rln_js_folder, tmp_path):
    identity = RlnIdentity.create()
    group = MembershipFile.create(tmp_path / "group.json")
    for commitment in (RlnIdentity.create().commitment, identity.commitment):
        group.register(commitment, 20)
    member, prover = group.member(identity), CircuitProver()
    first, second = (prover.prove(member, 3, signal, EPOCH) for signal in (b"first", b"second"))
    changed = {
        name: replace(first, **{name: element((number_of(getattr(first, name)) + 1) % FIELD_ORDER)})
        for name in ("root", "share_x", "share_y", "nullifier")
    }
    (tmp_path / "key").write_bytes(key_file())
    asked = {
        "key": str(tmp_path / "key"),
        "root": group.root.hex(),
        "seeds": ["01", "ff" * 40],
        "proofs": [
            plain(first, b"first"),
            plain(second, b"second"),
            *(plain(one, b"first") for one in changed.values()),
            plain(first, b"other"),
            plain(first, b"first", EPOCH + 1),
            plain(replace(first, proof=second.proof), b"first"),
        ],
    }
    ended = subprocess.run(
        ["node", "verifier.mjs"],
        input=json.dumps(asked),
        cwd=rln_js_folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["holds"] == [True, True] + [False] * 7
    # Two signals under one id give the secret away, to them as to us.
    assert told["secret"] == identity.secret.hex() == recover_secret(first, second).hex()
    assert told["hash"] == hash_to_field(b"first").hex()
    for text in told["members"]:
        trapdoor, nullifier, secret, commitment = (text[at : at + 64] for at in range(0, 256, 64))
        theirs = RlnIdentity.of(bytes.fromhex(trapdoor), bytes.fromhex(nullifier))
        assert (theirs.secret.hex(), theirs.commitment.hex()) == (secret, commitment)
