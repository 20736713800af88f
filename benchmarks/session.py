"""The state of one run: the time for each measurement, and the installed peers.

A `Benchmark` is one row of the table: its name, which the command's filter matches, and the function that measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from benchmarks.figures import Figure, best_of
from benchmarks.installing import PeerUnavailableError
from benchmarks.js_waku import RELIABLE_CHANNEL, SDS, JsWaku, node_version
from benchmarks.py_libp2p import install as install_py_libp2p

_Item = TypeVar("_Item")

_SLICE_SECONDS = 0.1


class Session:
    """One run of some benchmarks."""

    def __init__(self, build: Path, *, quick: bool) -> None:
        """Make a session that installs peers into ``build`` when the first one is asked for."""
        self.quick = quick
        self.budget_s = 0.3 if quick else 2.4
        """Seconds for each side of a figure without a fixed size."""
        self.rounds = 1 if quick else 4
        """Turns of such figures if the sides cannot alternate call by call."""
        self.build = build
        """The folder for installed peers."""
        self._js_waku: dict[str, JsWaku | PeerUnavailableError] = {}
        self._py_libp2p: Path | PeerUnavailableError | None = None

    @property
    def node_version(self) -> str | None:
        """The version of Node.js, None without it."""
        return node_version()

    def py_libp2p(self) -> Path:
        """Return an interpreter that has py-libp2p, or raise `PeerUnavailableError`."""
        if self._py_libp2p is None:
            try:
                self._py_libp2p = install_py_libp2p(self.build / "interop-py")
            except PeerUnavailableError as error:
                self._py_libp2p = error
        if isinstance(self._py_libp2p, PeerUnavailableError):
            raise self._py_libp2p
        return self._py_libp2p

    def ask_js_waku(self, workload: str, **parameters: object) -> dict[str, Any]:
        """Return what the twin of a workload measured with js-waku's SDS, or raise `PeerUnavailableError`."""
        return self._ask(SDS, self.build / "bench-js", workload, parameters)

    def ask_js_waku_channel(self, workload: str, **parameters: object) -> dict[str, Any]:
        """Return what the twin of a workload measured with its ReliableChannel, or raise `PeerUnavailableError`."""
        return self._ask(RELIABLE_CHANNEL, self.build / "bench-js-channel", workload, parameters)

    def _ask(self, peer: str, folder: Path, workload: str, parameters: dict[str, object]) -> dict[str, Any]:
        if peer not in self._js_waku:
            try:
                self._js_waku[peer] = JsWaku(folder, peer)
            except PeerUnavailableError as error:
                self._js_waku[peer] = error
        installed = self._js_waku[peer]
        if isinstance(installed, PeerUnavailableError):
            raise installed
        return installed.measure(workload, **parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A row that can be measured."""

    name: str
    measure: Callable[[Session], Figure]


def best_rate(items: list[_Item], work: Callable[[_Item], object], budget_s: float) -> float:
    """Return items per second in the best slice; a slice is long enough to include garbage collection.

    ``bestRate`` in ``peers/js_waku/bench.mjs`` does the same.
    """

    def run(passes: Iterable[None]) -> None:
        for _ in passes:
            for item in items:
                work(item)

    start = perf_counter()
    run(repeat(None, 1))
    passes = max(1, round(_SLICE_SECONDS / (perf_counter() - start)))
    return passes * len(items) / best_of(lambda: run(repeat(None, passes)), budget_s)
