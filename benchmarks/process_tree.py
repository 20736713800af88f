"""What a process and everything that it started costs: CPU-seconds and memory, Java and Python apart.

Spark's work is done in a JVM and in Python workers that a daemon forks, and both come and go, so the whole tree is read
from ``/proc``: the time of what has ended is in the account of whoever waited for it. Linux only.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_MIB_PER_PAGE = os.sysconf("SC_PAGE_SIZE") / 2**20
_SAMPLE_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a tree of processes took so far, or holds now."""

    java_cpu_s: float = 0.0
    python_cpu_s: float = 0.0
    java_mib: float = 0.0
    python_mib: float = 0.0

    @property
    def cpu_s(self) -> float:
        """CPU-seconds of both."""
        return self.java_cpu_s + self.python_cpu_s


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    name: str
    cpu_s: float
    mib: float


def usage_of(pid: int) -> Usage:
    """Return what a process and its descendants took; memory is resident, pages that they share counted for each."""
    processes = {number: found for entry in _PROC.iterdir() if (number := _number(entry)) and (found := _read(entry))}
    children = defaultdict(list)
    for number, process in processes.items():
        children[process.parent].append(number)
    totals: dict[str, float] = defaultdict(float)
    left = [pid]
    while left:
        number = left.pop()
        left += children[number]
        process = processes.get(number)
        if process is not None:
            kind = "java" if process.name == "java" else "python"
            totals[f"{kind}_cpu_s"] += process.cpu_s
            totals[f"{kind}_mib"] += process.mib
    return Usage(**totals)


class PeakMemory:
    """A context manager that watches the most memory that a tree of processes holds at once."""

    def __init__(self, pid: int) -> None:
        self.java_mib = 0.0
        self.python_mib = 0.0
        self.total_mib = 0.0
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            usage = usage_of(self._pid)
            self.java_mib = max(self.java_mib, usage.java_mib)
            self.python_mib = max(self.python_mib, usage.python_mib)
            self.total_mib = max(self.total_mib, usage.java_mib + usage.python_mib)


def _number(entry: Path) -> int:
    return int(entry.name) if entry.name.isdecimal() else 0


def _read(entry: Path) -> _Process | None:
    try:
        name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
    except (OSError, ValueError):
        return None  # it ended meanwhile
    # Fields are counted from the state, the third: 1 parent, 11 to 14 user and system time, own and of ended children.
    fields = rest.split()
    return _Process(
        parent=int(fields[1]),
        name=name,
        cpu_s=sum(map(int, fields[11:15])) / _TICKS_PER_SECOND,
        mib=int(fields[21]) * _MIB_PER_PAGE,
    )
