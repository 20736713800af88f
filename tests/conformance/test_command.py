"""``python -m tests.conformance``: its exit status and what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
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


def test_an_unknown_group_ends_in_exit_code_2_and_is_named(run, tmp_path: Path):
    code, output = run(changed(tmp_path, "nim_sds.json", lambda document: document.update(novelty=[])))
    assert code == 2
    assert "unknown group 'novelty'" in output


def test_a_file_that_cannot_be_read_ends_in_exit_code_2(run, tmp_path: Path):
    code, output = run(str(tmp_path / "none.json"), str(VECTORS / "nim_sds.json"))
    assert code == 2
    assert "cannot be read" in output
    assert "24/24" in output


def test_many_differences_are_cut_short_and_counted(run, tmp_path: Path):
    def all_wrong(document: dict[str, Any]) -> None:
        for case in document["hash64"]:
            case["u64"] = case["i64"] = "1"

    code, output = run(changed(tmp_path, "nim_sds.json", all_wrong))
    assert code == 1
    assert "differs: 4 more" in output


def test_departures_are_told_with_their_reason(run):
    _code, output = run(str(VECTORS / "js_collation.json"))
    assert "departs on purpose (1): js-waku orders" in output


def test_the_command_runs_as_a_process_of_its_own():
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance", str(VECTORS / "nim_sds.json")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("39 matched, 0 differ; files: 1\n")
