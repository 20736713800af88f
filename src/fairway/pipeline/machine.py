"""The cores and memory that an embedded Spark may use on this machine, also inside a container.

The figures are read once when a session starts; nothing here decides about correctness.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MIB: Final = 1_048_576

MEMORY_SHARE: Final = 0.3
"""Share of the available memory that the JVM may take. It takes what it is given, and the Python workers, the
page cache and other programs need the rest."""
MIN_MEMORY_MIB: Final = 1_024
"""Enough for the tests; with less Spark refuses to start or spends its time collecting garbage."""
MAX_MEMORY_MIB: Final = 8_192
"""More does not make batch work on one machine faster; larger jobs belong in a session of one's own."""

PASSING_ON_MIB: Final = 256
"""What a task needs in the JVM that only passes blobs of some megabytes on."""

_ASSUMED_AVAILABLE_MIB: Final = 4_096
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory_mib(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Return the memory that programs can still get here, limited by the container if there is one."""
    candidates = [size for size in (_from_meminfo(meminfo), _from_cgroup(cgroup)) if size is not None]
    return min(candidates) // MIB if candidates else _physical_memory_mib()


def jvm_memory_mib(available_mib: int | None = None) -> int:
    """Return how much memory to give the JVM."""
    available = available_memory_mib() if available_mib is None else available_mib
    return min(max(int(available * MEMORY_SHARE), MIN_MEMORY_MIB), MAX_MEMORY_MIB)


def jvm_memory_to_pass_on_mib(tasks: int, available_mib: int | None = None) -> int:
    """Return how much memory to give a JVM that passes on what so many tasks in Python work on."""
    needed = MIN_MEMORY_MIB // 2 + tasks * PASSING_ON_MIB
    return max(MIN_MEMORY_MIB, min(needed, jvm_memory_mib(available_mib)))


def _from_meminfo(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
        kibibytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return int(kibibytes) * 1_024
    except (OSError, StopIteration, ValueError):
        return None


def _from_cgroup(path: Path) -> int | None:
    try:
        limit = int((path / "memory.max").read_text())  # "max" when there is no limit
        return max(0, limit - int((path / "memory.current").read_text()))
    except (OSError, ValueError):
        return None


def _physical_memory_mib() -> int:
    """Return half the memory, for systems that do not report the available memory (macOS)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // (2 * MIB)
    except (AttributeError, ValueError, OSError):
        return _ASSUMED_AVAILABLE_MIB
