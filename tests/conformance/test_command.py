"""``python -m tests.conformance``: its exit status and what it prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.__main__ import main

VECTORS = Path(__file__).parents[1] / "vectors" / "conformance"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def run_command(*paths: str) -> tuple[int, str]:
        return main(list(paths)), capsys.readouterr().out

    return run_command


def changed(tmp_path: Path, name: str, change: Any) -> str:
    """Write a copy of a known-answer file in which ``change`` was made, and return its path."""
    document = json.loads((VECTORS / name).read_bytes())
    if "vectors" in document:
        del document["vectors"][2:]  # the rest only costs time
    change(document)
    path = tmp_path / name
    path.write_text(json.dumps(document))
    return str(path)


def test_the_known_answers_of_this_repository_match(run):
    code, output = run(str(VECTORS))
    assert code == 0
    assert f"0 differ; files: {len(list(VECTORS.glob('*.json')))}" in output
    assert "532/532" in output


def wrong_shard(document: dict[str, Any]) -> None:
    document["vectors"][0]["parity_hex"][0] = "00" * 64


def lost_too_much(document: dict[str, Any]) -> None:
    document["vectors"][1]["recoverable"].append({"lost_data": [0, 1], "lost_parity": []})


def missing_field(document: dict[str, Any]) -> None:
    del document["vectors"][0]["field_bits"]


def other_type(document: dict[str, Any]) -> None:
    document["vectors"][0]["k"] = "one"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (wrong_shard, "1+1 of 64 B: parity shard 0: 64 bytes expected, got 64; from byte 0 on"),
        (lost_too_much, "8+1 of 128 B: fairway raised NotEnoughShardsError"),
        (missing_field, "1+1 of 64 B: malformed case: the field 'field_bits' is missing"),
        (other_type, "one+1 of 64 B: malformed case: the field 'k' should be an integer, not 'one'"),
    ],
)
def test_a_wrong_answer_ends_in_exit_code_1_and_names_the_case(run, tmp_path: Path, change: Any, said: str):
    code, output = run(changed(tmp_path, "leopard.json", change))
    assert code == 1
    assert said in output
