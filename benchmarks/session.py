"""What the measurements of one run share: how much time each may take, and the peer that is measured beside them.

A `Benchmark` is one row of the table: its name, which the command's filter matches, and the function that measures it.
A `Row` is what comes out: the figure, and in one remark why a peer's value is absent or what it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from benchmarks.figures import Figure, best_of
from benchmarks.js_waku import JsWaku, PeerUnavailableError

_Item = TypeVar("_Item")

_SLICE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured row of the table."""

    figure: Figure
    remark: str = ""
    """Why the peer's value is absent, or in what it differs from ours."""


class Session:
    """One run of some benchmarks."""

    def __init__(self, build: Path, *, quick: bool) -> None:
        """Make a session that installs peers into ``build`` when the first one is asked for."""
        self.quick = quick
        self.budget_s = 0.3 if quick else 2.4
        """Seconds for which each side of a figure that has no fixed size is measured."""
        self.rounds = 1 if quick else 4
        """Turns in which such figures are measured where sides cannot alternate call by call."""
        self._build = build
        self._js_waku: JsWaku | PeerUnavailableError | None = None

    @property
    def node_version(self) -> str | None:
        """The version of Node.js, once js-waku was measured with it."""
        return self._js_waku.version if isinstance(self._js_waku, JsWaku) else None

    def ask_js_waku(self, workload: str, **parameters: object) -> dict[str, Any]:
        """Return what js-waku's twin of a workload measured, or raise `PeerUnavailableError`."""
        if self._js_waku is None:
            try:
                self._js_waku = JsWaku(self._build / "bench-js")
            except PeerUnavailableError as error:
                self._js_waku = error
        if isinstance(self._js_waku, PeerUnavailableError):
            raise self._js_waku
        return self._js_waku.measure(workload, **parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A row that can be measured."""

    name: str
    measure: Callable[[Session], Row]


def best_rate(items: list[_Item], work: Callable[[_Item], object], budget_s: float) -> float:
    """Return items per second in the best slice; a slice is long enough to hold the garbage collector's part.

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
