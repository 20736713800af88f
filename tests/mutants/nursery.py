"""A process that runs worlds of planted sources: it loads once what they all import, and forks for each copy of them.

`Nursery` is that process from outside: it gives it requests and takes what comes of each world. Inside, `main` never
imports fairway itself: each fork does, from the folder that it is told, and runs worlds until one breaks.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
RAISES: Final = "nothing raises"
"""What a world broke that ended in an exception."""
ENDS: Final = "every world ends"
"""What a world broke that took too long."""
_MEMORY_BYTES: Final = 3 * 1024**3
_PATIENCE: Final = 10
"""How many times its CPU time a world may take by the clock on the wall, which other programs slow down."""
_START_S: Final = 120.0
_IMPORTED: Final = """
import sys
import fairway.simulation.runner
print(*(name for name in sys.modules if name.partition('.')[0] not in ('fairway', '__main__')))
"""

PASSED: Final = "__passed__"
"""Name of a builtin set, to which marked sources add what they pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Worlds to run."""

    folder: Path
    """What holds the package ``fairway``."""
    plans: Sequence[bytes]
    """Pickled plans, in the order in which they are tried."""
    world_s: float
    """A world that takes more CPU time counts as broken."""
    is_patient: bool = False
    """Whether to go on after a world that breaks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one world."""

    place: int
    """Which of the plans."""
    violations: tuple[tuple[str, str], ...]
    cpu_s: float
    trace_hash: str = ""
    """Over everything that happened in it; empty if it did not come to its end."""
    passed: frozenset[str] = frozenset()
    """What marked sources passed in it, or when they were imported."""
    costs: Mapping[str, int] = field(default_factory=dict)
    """What it cost; see `fairway.simulation.costs`."""


class Nursery:
    """The process, from outside."""

    def __init__(self) -> None:
        self._process = self._begun()

    def _begun(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", f"from {__name__} import main; main()"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def close(self) -> None:
        """End it, and whatever it runs."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def run(self, request: Request, told: Callable[[Result], object]) -> str:
        """Run worlds, and tell each result as it comes; return why it ended early, or nothing."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("a process without pipes")
        pickle.dump(request, stdin)
        stdin.flush()
        while True:
            guard = threading.Timer(request.world_s * _PATIENCE + _START_S, self._kill)
            guard.start()
            try:
                answer = pickle.load(stdout)
            except EOFError:
                self.close()
                self._process = self._begun()
                return "the process hung and was ended"
            finally:
                guard.cancel()
            if not isinstance(answer, Result):
                return str(answer)
            told(answer)

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)


class _TooLong(KeyboardInterrupt):
    """The world took longer than it may: nothing but an interrupt passes through an event loop."""


def main() -> None:
    """Serve until the standard input ends."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _preload()
    while True:
        try:
            request: Request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            _grow(request, out)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        pickle.dump("" if code == 0 else f"the process ended with exit code {code}", out)
        out.flush()


def _preload() -> None:
    """Import whatever the package imports that is no part of it."""
    found = subprocess.run([sys.executable, "-c", _IMPORTED], check=True, capture_output=True, text=True).stdout
    for name in found.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _grow(request: Request, out: Any) -> None:
    """Run worlds of the sources in a folder, in a process of their own, which this ends."""
    code = 0
    try:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        sys.path.insert(0, str(request.folder))
        sys.stdin.close()
        for result in _results(request):
            pickle.dump(result, out)
            out.flush()
    except BaseException:  # noqa: BLE001 - a fork must not go on as its parent would
        traceback.print_exc()
        code = 1
    os._exit(code)


def _results(request: Request) -> Iterable[Result]:
    simulate: Callable[[Any], Any] | None = None
    passed: set[str] = set()
    setattr(builtins, PASSED, passed)
    always: frozenset[str] = frozenset()
    for place, pickled in enumerate(request.plans):
        began_s = time.process_time()
        trace_hash = ""
        costs: Mapping[str, int] = {}
        violations: tuple[tuple[str, str], ...]
        passed.clear()
        try:
            with _no_longer_than(request.world_s):
                if simulate is None:
                    simulate = importlib.import_module("fairway.simulation.runner").simulate
                    always = frozenset(passed)
                report = simulate(pickle.loads(pickled))
            violations = tuple((each.invariant.value, each.sentence) for each in report.violations)
            trace_hash, costs = report.trace_hash, report.costs
        except _TooLong:
            violations = ((ENDS, f"ended after {request.world_s:g} s of CPU time"),)
        except (Exception, KeyboardInterrupt, SystemExit):  # noqa: BLE001 - it is what came of the world
            violations = ((RAISES, traceback.format_exc()),)
        yield Result(
            place=place,
            violations=violations,
            cpu_s=time.process_time() - began_s,
            trace_hash=trace_hash,
            passed=always | passed,
            costs=costs,
        )
        if violations and not request.is_patient:
            return


@contextlib.contextmanager
def _no_longer_than(limit_s: float) -> Any:
    """Raise within what runs once it took so much CPU time, and again should something have swallowed that."""

    def end(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, limit_s, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
