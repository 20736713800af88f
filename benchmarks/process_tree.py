"""CPU-seconds and memory of a process and its descendants, Java and Python apart.

Spark works in a JVM and in Python workers that a daemon forks and does not wait for, so their time is in no account
after their end. So the tree is read from ``/proc`` repeatedly, and the last usage of each process is remembered. Linux
only.
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
_JAVA = "java"
_PYTHON = "python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """CPU-seconds of a tree of processes so far."""

    java_cpu_s: float = 0.0
    python_cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    began: int
    name: str
    cpu_s: float
    mib: float

    @property
    def kind(self) -> str | None:
        """Java, Python, or neither: a shell, or a child of the JVM that is still the JVM's copy and no process yet."""
        return next((kind for kind in (_JAVA, _PYTHON) if self.name.startswith(kind)), None)


class ProcessTree:
    """A process and its descendants, watched during a ``with`` block."""

    def __init__(self, pid: int) -> None:
        self.peak_mib = 0.0
        """Most memory seen at once, without pages of files, which the system may take back. Pages that a fork shares
        are counted for each process."""
        self._pid = pid
        self._cpu_s: dict[tuple[int, int], tuple[str, float]] = {}
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def usage(self) -> Usage:
        """Return CPU-seconds until now."""
        with self._lock:
            held_mib = 0.0
            for number, process, kind in _descendants(self._pid):
                # An interpreter is forked by another of its kind, a shell starts a JVM: the last name seen counts.
                self._cpu_s[number, process.began] = (kind, process.cpu_s)
                held_mib += process.mib if process.kind else 0.0
            taken: dict[str, float] = defaultdict(float)
            for kind, cpu_s in self._cpu_s.values():
                taken[kind] += cpu_s
            self.peak_mib = max(self.peak_mib, held_mib)
            return Usage(java_cpu_s=taken[_JAVA], python_cpu_s=taken[_PYTHON])

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            self.usage()


def _descendants(pid: int) -> list[tuple[int, _Process, str]]:
    """Return a process and all below it, with the kind whose account their time is on."""
    processes = {number: read for entry in _PROC.iterdir() if (number := _number(entry)) and (read := _read(entry))}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for number, process in processes.items():
        children[process.parent].append(number)
    found = []
    left = [(pid, _PYTHON)]
    while left:
        number, above = left.pop()
        one = processes.get(number)
        if one is not None:
            kind = one.kind or above
            found.append((number, one, kind))
            left += [(child, kind) for child in children[number]]
    return found


def _number(entry: Path) -> int:
    return int(entry.name) if entry.name.isdecimal() else 0


def _read(entry: Path) -> _Process | None:
    try:
        name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
        resident, of_files = map(int, (entry / "statm").read_text().split()[1:3])
    except (OSError, ValueError):
        return None  # it ended meanwhile
    # Fields are counted from the state: 1 parent, 11 and 12 user and system time, 19 when it began.
    fields = rest.split()
    return _Process(
        parent=int(fields[1]),
        began=int(fields[19]),
        name=name,
        cpu_s=sum(map(int, fields[11:13])) / _TICKS_PER_SECOND,
        mib=(resident - of_files) * _MIB_PER_PAGE,
    )
