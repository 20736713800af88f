"""Memberships with two signals under one message id are named from what a run shows; forged proofs name nobody."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fairway_rln")

import pyarrow as pa
from typer.testing import CliRunner

from fairway.archives.violations import violations
from fairway.cli import app
from fairway.pipeline.run import RunTables
from fairway.rln.field import element
from fairway.rln.identity import RlnIdentity
from fairway.rln.membership_file import MembershipFile
from fairway.rln.proving import CircuitProver
from grown_runs import PLAN, decoded, empty_run, generated, grown, proof, write

EPOCH = 2_985_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run whose messages have no proofs, but six: four of a member, two under one id, and a forged pair."""
    folder = tmp_path_factory.mktemp("violations")
    group = MembershipFile.create(folder / "group.json")
    identities = [RlnIdentity.create(), RlnIdentity.create()]
    for identity in identities:
        group.register(identity.commitment, 7)
    prover = CircuitProver()
    member = group.member(identities[1])

    def proven(message_id, signal):
        return prover.prove(member, message_id, signal, EPOCH)

    genuine = [proven(0, b"one"), proven(1, b"two"), proven(1, b"three"), proven(2, b"four")]
    forged = [
        replace(proof(epoch=EPOCH, nullifier=9, share_x=number), share_y=element(5 * number)) for number in (1, 2)
    ]
    meddled = replace(genuine[1], share_x=element(1), share_y=element(2))
    proofs = [*genuine, *forged, meddled]
    rows = generated(PLAN).to_pylist()
    carriers = [at for at, row in enumerate(rows) if decoded(row) is not None and row["meta"] is None]
    # Of several rows under one id the first is not forged.
    seen: dict[str, int] = {}
    for at in sorted(carriers, key=lambda at: rows[at]["timestamp_ns"]):
        seen.setdefault(decoded(rows[at]).message_id, at)
    chosen = dict(zip(seen.values(), proofs, strict=False))
    assert len(chosen) == len(proofs)
    with_proofs = [
        row | {"rate_limit_proof": chosen[at].encode() if at in chosen else None} for at, row in enumerate(rows)
    ]
    empty_run(folder / "run", folder / "source")
    write(folder / "source", "part-0.parquet", pa.Table.from_pylist(with_proofs, schema=generated(PLAN).schema))
    grown(folder / "run", [f"parquet:{folder / 'source'}"])
    senders = {decoded(rows[at]).sender_id for at, one in chosen.items() if one.nullifier == genuine[1].nullifier}
    return SimpleNamespace(folder=folder, group=group, identity=identities[1], genuine=genuine, senders=senders)


def test_a_member_is_named_also_if_somebody_meddled(made):
    found = violations(RunTables(made.folder / "run"), made.group)
    [of_member] = [one for one in found if one.place is not None]
    assert (of_member.place, of_member.limit, of_member.epoch) == (1, 7, EPOCH)
    assert of_member.commitment == made.identity.commitment
    assert (of_member.nullifier, of_member.signals) == (made.genuine[1].nullifier, 3)
    assert {sender for _, sender in of_member.senders} == made.senders
    assert len(found) == 2


def test_without_the_group_nobody_is_a_member_and_no_secret_is_shown(made):
    found = violations(RunTables(made.folder / "run"))
    assert {one.place for one in found} == {None}
    assert made.identity.secret.hex() not in repr(found)
    assert made.identity.secret not in [value for one in found for value in (one.commitment, one.nullifier)]


def test_the_command_names_the_member(made):
    words = ["pipeline", "violations", str(made.folder / "run"), "--group", str(made.folder / "group.json")]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    assert "3 messages of " in said.output
    assert f"member 1 {made.identity.commitment.hex()}" in said.output
    assert "2 violations" in said.output
    lines = [json.loads(line) for line in CliRunner().invoke(app, [*words, "--json"]).output.splitlines()]
    assert sorted(line["place"] is None for line in lines) == [False, True]
    assert made.identity.secret.hex() not in said.output


def test_a_run_without_proofs_has_no_violations(tmp_path):
    rows = generated(PLAN).slice(0, 50)
    bare = rows.set_column(
        rows.schema.get_field_index("rate_limit_proof"), "rate_limit_proof", pa.nulls(50, pa.binary())
    )
    empty_run(tmp_path / "run", tmp_path / "source")
    write(tmp_path / "source", "part-0.parquet", bare)
    grown(tmp_path / "run", [f"parquet:{tmp_path / 'source'}"])
    assert violations(RunTables(tmp_path / "run")) == []
