"""`fairway send --file` and `fairway tail --save` are killed again and again, and the file arrives all the same.

What a process printed is what is known of it: a segment that a line said to be acknowledged must not leave again.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE_S

SEGMENTS = {"segment_size_bytes": 1_024, "max_message_size_bytes": 10_240}
OPTIONS = {
    "sync_min_interval_ms": 500,
    "retry_interval_ms": 1_000,
    "max_retry_attempts": 1_000,
    "retrieve_frequency_ms": 1_000,
    "advanced": {"max_store_queries_per_minute": 600},
    "segmentation": SEGMENTS,
}
SIZE = 600_000
KILLS = 8


class Program:
    """A command that is killed and started again; what it printed stays."""

    def __init__(self, exits: ExitStack, log: Path, *words: str) -> None:
        self.log = log
        self._words = words
        self._exits = exits
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as opened:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fairway", *self._words], stdin=subprocess.DEVNULL, stdout=opened
            )
        self._exits.callback(self.kill)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """Return what was printed; a line that a kill cut is left out."""
        found = []
        for line in self.log.read_bytes().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def wait_for(condition: Any) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)


def left_again(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the segments that left after a line before had said that they were acknowledged."""
    acknowledged: set[tuple[str, int]] = set()
    found = []
    for line in lines:
        match line:
            case {"event": "message-acknowledged", "request_id": request, "chunks_acknowledged": chunks}:
                acknowledged.update((request, chunk) for chunk in chunks)
            case {"event": "sending-message", "request_id": request, "chunk_info": chunk} if not chunk["is_parity"]:
                if (request, chunk["chunk_index"]) in acknowledged:
                    found.append(line)
    return found


@pytest.mark.full
def test_a_file_arrives_after_kills_of_both_sides_and_no_acknowledged_segment_is_sent_again(
    tmp_path: Path, seed: int
) -> None:
    draws = random.Random(seed)
    path = tmp_path / "chart.pdf"
    path.write_bytes(draws.randbytes(SIZE))
    (tmp_path / "options.json").write_text(json.dumps(OPTIONS))
    with ExitStack() as exits:
        archive = ("--archive", f"sqlite:{tmp_path / 'archive.sqlite'}", "--state", str(tmp_path / "state"))
        node = Program(exits, tmp_path / "node.jsonl", "node", "--json", "--loss", "0.3", *archive)
        node.start()
        wait_for(node.lines)
        common = ["--node", node.lines()[0]["multiaddrs"][0], "--channel", "charts", "--json"]
        common += ["--options", str(tmp_path / "options.json")]
        alice = Program(
            exits, tmp_path / "alice.jsonl", "send", *common, "--sender", "alice", "--store",
            str(tmp_path / "alice.db"), "--file", str(path), "--timeout", "0",
        )  # fmt: skip
        bob = Program(
            exits, tmp_path / "bob.jsonl", "tail", *common, "--sender", "bob", "--store",
            str(tmp_path / "bob.db"), "--save", str(tmp_path / "in"), "--follow",
        )  # fmt: skip
        alice.start()
        bob.start()
        for victim in (alice, bob) * (KILLS // 2):
            before = len(victim.lines())
            wait_for(lambda victim=victim, before=before: len(victim.lines()) > before)
            time.sleep(draws.expovariate(1.0))
            if victim is alice and alice.process is not None and alice.process.poll() is not None:
                break
            victim.kill()
            victim.start()
        wait_for(lambda: alice.process is not None and alice.process.poll() is not None)
        wait_for((tmp_path / "in" / "chart.pdf").exists)
        told = alice.lines()
    assert told[-1]["reached"] is True
    assert told[-1]["delivered_to"] == ["bob"]
    assert (tmp_path / "in" / "chart.pdf").read_bytes() == path.read_bytes()
    assert [each.name for each in (tmp_path / "in").iterdir() if each.is_file()] == ["chart.pdf"]
    assert any(line["event"] == "message-acknowledged" for line in told)
    assert left_again(told) == []
