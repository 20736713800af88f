"""The cores and memory that an embedded Spark may use on this machine, also inside a container.

They are read once, when a session starts. They affect speed and memory, not results.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

MIB: Final = 1_048_576

MEMORY_SHARE: Final = 0.3
"""Share of the available memory for the JVM, which uses all of it. The Python workers, the page cache and other
programs need the rest."""
MIN_MEMORY_MIB: Final = 1_024
"""Least memory of the JVM. With less, Spark does not start or spends its time on garbage collection."""
MAX_MEMORY_MIB: Final = 8_192
"""Most memory of the JVM. More does not speed up batch work on one machine; larger jobs need their own session."""

PASSING_ON_MIB: Final = 256
"""Memory of a task in a JVM that only passes on blobs of some megabytes."""

_ASSUMED_AVAILABLE_MIB: Final = 4_096
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory_mib(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    """Return the available memory, limited by the container if there is one."""
    candidates = [size for size in (_from_meminfo(meminfo), _from_cgroup(cgroup)) if size is not None]
    return min(candidates) // MIB if candidates else _physical_memory_mib()


def jvm_memory_mib(available_mib: int | None = None) -> int:
    """Return the memory for the JVM."""
    available = available_memory_mib() if available_mib is None else available_mib
    return min(max(int(available * MEMORY_SHARE), MIN_MEMORY_MIB), MAX_MEMORY_MIB)


def jvm_memory_to_pass_on_mib(tasks: int, available_mib: int | None = None) -> int:
    """Return the memory for a JVM that only passes on blobs for ``tasks`` tasks in Python."""
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
