from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import main

from patience import PATIENCE_S

CHECKOUT = Path(__file__).parents[1]
HASH = "message hash, payload 64"
# What js-waku's own messageHash gives for the first message that is measured.
HASH_OF_JS_WAKU = "bf57f24a925028f15236e866a85c3ef55ec8439148b8c90f94f946f51a306ba6"


class Bench:
    """Calls ``python -m benchmarks`` with nothing on the PATH but what a test puts there."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.tools = folder / "bin"
        self.tools.mkdir()
        self.build = folder / "build"
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        monkeypatch.setenv("PATH", str(self.tools))

    def add_tool(self, name: str, script: str) -> None:
        tool = self.tools / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    def add_peer(self, answer: dict[str, Any]) -> None:
        self.add_tool("npm", "exit 0")
        self.add_tool("node", f"""[ "$1" = --version ] && echo v22.1.0 || echo '{json.dumps(answer)}'""")

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["benchmarks", "--build", str(self.build), *arguments])
        with pytest.raises(SystemExit) as leaving:
            main()
        printed = self._capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        return leaving.value.code, printed.out, printed.err

    def report(self, *arguments: str) -> dict[str, Any]:
        code, out, _ = self("--json", "--quick", *arguments)
        assert code == 0
        report: dict[str, Any] = json.loads(out)
        return report


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, monkeypatch, capsys)


def test_without_node_js_the_column_of_the_peer_says_why_it_is_empty(bench: Bench) -> None:
    report = bench.report(HASH)
    (figure,) = report["figures"]
    assert figure["ours"] > 0
    assert (figure["peer"], figure["ratio"]) == (None, None)
    assert figure["remark"] == "no Node.js with npm here"
    assert report["quick"]
    assert report["machine"]["node"] is None


def test_a_peer_is_measured_beside_ours(bench: Bench) -> None:
    bench.add_peer({"rate": 2.0, "fingerprint": HASH_OF_JS_WAKU})
    report = bench.report(HASH)
    (figure,) = report["figures"]
    assert (figure["peer"], figure["peer_name"], figure["remark"]) == (2.0, "js-waku", "")
    assert figure["ratio"] == pytest.approx(figure["ours"] / 2.0)
    assert report["machine"]["node"] == "22.1.0"


def test_a_peer_that_measured_other_bytes_fails_the_benchmark(bench: Bench) -> None:
    bench.add_peer({"rate": 2.0, "fingerprint": "00" * 32})
    with pytest.raises(AssertionError, match="js-waku was given other messages"):
        bench.report(HASH)


def test_the_table_shows_ours_the_peers_and_the_ratio(bench: Bench) -> None:
    bench.add_peer({"rate": 0.5, "fingerprint": HASH_OF_JS_WAKU})
    code, out, _ = bench("--quick", HASH.upper())
    assert code == 0
    (row,) = [line for line in out.splitlines() if "Message hash, payload 64 B" in line]
    _, name, unit, ours, peer, whose, ratio, _ = (cell.strip() for cell in row.split("│"))
    assert (name, unit, peer, whose) == ("Message hash, payload 64 B", "messages/s", "0.5", "js-waku")
    assert float(ratio) == pytest.approx(float(ours.replace(",", "")) / 0.5, rel=0.01)
    assert f"{os.cpu_count()} cores" in out


ALONE = {
    "live": ("live: send to receive, 1 KiB, in memory",),
    "network": ("network: light push, 1 KiB, 1 client", "network: filter"),
    "libp2p": ("libp2p: yamux, connect", "libp2p: relay echo, 1 KiB"),
    "sds": ("SDS exchange, 2,000 messages, history 2, objects",),
    "memory": ("SDS memory per message exchanged",),
    "wire": ("SDS encode, history 0", HASH),
    "leopard": ("11 + 2 segments", "segmentation of a message"),
    "pipeline_decoding": ("pipeline decoding",),
}
"""By file of the table, figures that fairway alone is measured for in seconds."""


@pytest.mark.full
@pytest.mark.parametrize("names", ALONE.values(), ids=ALONE)
def test_every_file_of_the_table_measures_what_it_says(bench: Bench, names: tuple[str, ...]) -> None:
    figures = bench.report(*names)["figures"]
    assert len(figures) >= len(names)
    assert all(figure["ours"] > 0 for figure in figures)


@pytest.mark.full
@pytest.mark.xdist_group("interop")
def test_js_waku_to_fairway_is_measured_if_js_waku_can_be_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["benchmarks", "--json", "--quick", "end to end: js-waku to fairway, 1 KiB"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as leaving:
        main()
    (figure,) = json.loads(capsys.readouterr().out)["figures"]
    assert leaving.value.code == 0
    assert figure["ours"] > 0 or figure["remark"]


@pytest.mark.full
@pytest.mark.spark
def test_the_pipeline_is_measured_beside_plain_python_and_agrees_with_the_truth(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    sides = ("spark", "plain", "cluster", "grown")
    for words in (
        ("benchmarks.pipeline_scale", "--messages", "1000", "--json", str(told), "--sides", *sides),
        ("benchmarks.pipeline_truth", "--messages", "1000"),
    ):
        command = [sys.executable, "-m", *words]
        ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=5 * PATIENCE_S, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    (result,) = json.loads(told.read_text(encoding="utf-8"))["results"]
    assert set(sides) <= set(result["sides"])
    assert result["disagreements"] == []
