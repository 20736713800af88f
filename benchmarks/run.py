"""All benchmarks in the order of the table, and one run over some of them; ``fairway bench`` prints what comes back."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from benchmarks import end_to_end, leopard, libp2p, live, memory, network, node_store, pipeline, sds, wire
from benchmarks.session import Benchmark, Row, Session

__all__ = ["PARTS", "Session", "as_json", "machine", "run", "select"]

PARTS = (live, network, node_store, end_to_end, libp2p, sds, memory, wire, leopard, pipeline)
"""The files of the table, in its order."""


def select(words: Sequence[str]) -> list[Benchmark]:
    """Return the benchmarks whose names contain one of the words, in any case; all of them for no words."""
    everything = chain.from_iterable(part.benchmarks() for part in PARTS)
    return [one for one in everything if not words or any(word.lower() in one.name.lower() for word in words)]


def run(benchmarks: Sequence[Benchmark], session: Session) -> Iterator[Row]:
    """Measure one after another."""
    for benchmark in benchmarks:
        yield benchmark.measure(session)


def machine(session: Session) -> dict[str, Any]:
    """Describe in general terms what is being measured on."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30),
        "python": platform.python_version(),
        "node": session.node_version,
        "load": round(os.getloadavg()[0], 1),
    }


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows for programs."""
    return [{**asdict(row.figure), "ratio": row.figure.ratio, "remark": row.remark} for row in rows]
