"""A large file over a network that loses messages: how long it takes, how many bytes leave, how much memory is used.

    python -m benchmarks.large_file --mib 100 --loss 0.3

Three processes on loopback, as a user starts them: ``fairway network`` with its archive on disk, ``fairway tail``
with ``--save``, and ``fairway send --file``. Each participant has a store. The file is compared at the end.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

_MIB: Final = 1 << 20
_KIB_IN_A_MIB: Final = 1_024
_COMMAND: Final = (sys.executable, "-m", "fairway")


class _Child:
    """A command of fairway, with the memory that it used at most."""

    def __init__(self, words: Sequence[str], output: Path) -> None:
        with output.open("wb") as opened:
            self._process = subprocess.Popen((*_COMMAND, *words), stdin=subprocess.PIPE, stdout=opened)
        self._output = output

    def end(self) -> tuple[int, float, float]:
        """Wait for the end; return exit code, peak of the resident memory in MiB, and CPU seconds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        return self._process.returncode, usage.ru_maxrss / _KIB_IN_A_MIB, usage.ru_utime + usage.ru_stime

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def interrupt(self) -> None:
        """Ask it to end, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, if it runs."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """Return the JSON lines that it has printed so far."""
        text = self._output.read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def measure(mib: int, loss: float, folder: Path) -> dict[str, Any]:
    """Send a file of so many MiB once, and return the figures."""
    file = folder / "large.bin"
    rng = random.Random(1)
    with file.open("wb") as opened:
        for _ in range(mib):
            opened.write(rng.randbytes(_MIB))
    faults = ("--loss", str(loss), "--seed", "1", "--state", str(folder / "state"))
    node = _Child(
        ("node", "--json", "--until-stdin-closes", "--archive", f"sqlite:{folder / 'archive.sqlite'}", *faults),
        folder / "node.jsonl",
    )
    children = [node]
    try:
        while not node.lines():
            time.sleep(0.1)
        common = ("--node", node.lines()[0]["multiaddrs"][0], "--channel", "files", "--json")
        save = ("--save", str(folder / "in"), "--follow")
        receiving = _Child(
            ("tail", *common, "--sender", "bob", "--store", str(folder / "bob.db"), *save), folder / "bob.jsonl"
        )
        children.append(receiving)
        began = time.perf_counter()
        words = ("--sender", "alice", "--store", str(folder / "alice.db"), "--file", str(file), "--timeout", "600")
        sending = _Child(("send", *common, *words), folder / "alice.jsonl")
        children.append(sending)
        saved = folder / "in" / file.name
        while not saved.exists() and sending.is_running:
            time.sleep(0.1)
        whole_s = time.perf_counter() - began
        sent, sender_mib, sender_cpu_s = sending.end()
        acknowledged_s = time.perf_counter() - began
        receiving.interrupt()
        _, receiver_mib, receiver_cpu_s = receiving.end()
        node.end()
    finally:
        for child in children:
            child.kill()
    return {
        "mib": mib,
        "loss": loss,
        "whole_s": round(whole_s, 1),
        "acknowledged_s": round(acknowledged_s, 1),
        "same": filecmp.cmp(file, saved, shallow=False),
        "acknowledged": sent == 0,
        "sender_peak_mib": round(sender_mib),
        "receiver_peak_mib": round(receiver_mib),
        "sender_cpu_s": round(sender_cpu_s, 1),
        "receiver_cpu_s": round(receiver_cpu_s, 1),
        "node": node.lines()[-1],
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure as the command line says, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=100, help="size of the file")
    parser.add_argument("--loss", type=float, default=0.3, help="share of deliveries that are lost")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(given.mib, given.loss, Path(folder)), indent=2))


if __name__ == "__main__":
    main()
