from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.child_process import Child, child

from patience import PATIENCE_S, run, until

CHECKOUT = Path(__file__).parents[1]
UNTIL_STDIN_ENDS = ("json.tool",)


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_a_child_ends_with_the_block_it_was_started_in() -> None:
    async def look() -> None:
        async with child(*UNTIL_STDIN_ENDS) as started:
            assert is_running(started.pid)
            assert started.rss_mib() > 0
            assert started.cpu_s() >= 0
        assert not is_running(started.pid)

    run(look())


def test_a_wait_for_a_child_that_says_nothing_names_what_was_waited_for() -> None:
    started: list[Child] = []

    async def look() -> None:
        async with child(*UNTIL_STDIN_ENDS) as silent:
            started.append(silent)
            await silent.says("its opinion", within_s=0.01)

    with pytest.raises(TimeoutError, match="its opinion"):
        run(look())
    assert not is_running(started[0].pid)


def test_a_child_that_ends_early_is_no_timeout() -> None:
    async def look() -> None:
        async with child("tabnanny", os.devnull) as ended:
            await ended.says("its opinion")

    with pytest.raises(EOFError, match="its opinion, but the process ended with code 0"):
        run(look())


@pytest.mark.full
def test_a_node_and_a_receiver_do_not_outlive_a_killed_benchmark() -> None:
    slow = {"messages": 100_000, "size": 16, "per_second": 10}
    command = [sys.executable, "-m", "benchmarks.network_workloads", "channel", json.dumps(slow)]
    parent = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    below = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    node_and_receiver = 2
    try:
        run(until(lambda: len(below.read_text().split()) == node_and_receiver, "the node and the receiver"))
        started = [int(pid) for pid in below.read_text().split()]
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait(PATIENCE_S)
    run(until(lambda: not any(map(is_running, started)), "the end of the node and the receiver"))
