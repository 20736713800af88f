"""libp2p between two processes on loopback: fairway and py-libp2p in turns.

For each muxer the figures are a connection, a round trip, messages one way, and a new stream for each request. Over
yamux they are also a relayed round trip, and relayed messages with at most 24 unacknowledged ones. Each side runs its
own pair of processes, a lasting server and a client for each turn. The figure is the median turn.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child_process import Process
from benchmarks.figures import Figure
from benchmarks.installing import PeerUnavailableError
from benchmarks.py_libp2p import NAME
from benchmarks.session import Benchmark, Session

_ROOT = Path(__file__).parents[1]
_PEERS = Path(__file__).parent / "peers"
_SIZES = {"1 KiB": 1_024, "150 KB": 150_000}
_STREAMS = {"round trip": "ms", "one way": "messages/s", "new stream": "ms"}
_RELAY = {"echo": "ms", "publish": "messages/s"}
_TURN_SECONDS = 240


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    rows = []
    for muxer in ("yamux", "mplex"):
        rows.append(_benchmark(f"libp2p: {muxer}, connect", _Work("streams", muxer, "connect", 0, "ms")))
        for label, size in _SIZES.items():
            for figure, unit in _STREAMS.items():
                name = f"libp2p: {muxer}, {figure}, {label}"
                rows.append(_benchmark(name, _Work("streams", muxer, figure, size, unit)))
    for label, size in _SIZES.items():
        for figure, unit in _RELAY.items():
            rows.append(_benchmark(f"libp2p: relay {figure}, {label}", _Work("relay", "yamux", figure, size, unit)))
    return rows


@dataclass(frozen=True, slots=True)
class _Work:
    kind: str
    muxer: str
    figure: str
    size: int
    unit: str


class _NothingMeasuredError(Exception):
    """A client came to no end; the text has its last words."""


@dataclass(frozen=True, slots=True)
class _Turn:
    value: float
    cpu_ms: float
    """CPU time of both processes, for each message or connection."""


def _benchmark(name: str, work: _Work) -> Benchmark:
    return Benchmark(name=name, measure=partial(_measure, work=work))


def _measure(session: Session, *, work: _Work) -> Figure:
    turns = 1 if session.quick else 3
    seconds = session.budget_s / turns
    ours = [sys.executable, "-m", f"benchmarks.libp2p_{work.kind}"]
    own: list[_Turn] = []
    others: list[_Turn] = []
    with ExitStack() as servers:
        server = servers.enter_context(_server(ours, work))
        try:
            peer = [str(session.py_libp2p()), "-W", "ignore", str(_PEERS / _SCRIPTS[work.kind])]
        except PeerUnavailableError as error:
            own = [_turn(ours, work, server, seconds) for _ in range(turns)]
            return _row(work, own, others, str(error))
        other = servers.enter_context(_server(peer, work))
        for _ in range(turns):
            own.append(_turn(ours, work, server, seconds))
            with suppress(_NothingMeasuredError):  # not every turn of the peer gets to its end
                others.append(_turn(peer, work, other, seconds))
    failed = turns - len(others)
    return _row(work, own, others, f"{failed} of {turns} turns of {NAME} came to no end" if failed else "")


_SCRIPTS = {"streams": "py_libp2p.py", "relay": "py_libp2p_relay.py"}


def _row(work: _Work, ours: list[_Turn], peer: list[_Turn], reason: str) -> Figure:
    cpu = f"CPU {_of(ours, 'cpu_ms'):.2f} ms for each"
    if peer:
        cpu = f"{cpu}, {NAME} {_of(peer, 'cpu_ms'):.2f} ms"
    theirs = _of(peer, "value") if peer else None
    remark = f"{cpu}; {reason}" if reason else cpu
    return Figure(ours=_of(ours, "value"), unit=work.unit, peer=theirs, peer_name=NAME, remark=remark)


def _of(turns: list[_Turn], field: str) -> float:
    return float(median(getattr(turn, field) for turn in turns))


class _Server(Process):
    """A server, and where it listens."""

    def __init__(self, pid: int, address: str) -> None:
        super().__init__(pid)
        self.address = address


@contextmanager
def _server(command: list[str], work: _Work) -> Iterator[_Server]:
    process = subprocess.Popen(
        [*command, work.muxer, "serve"], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield _Server(process.pid, process.stdout.readline().strip())
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def _turn(command: list[str], work: _Work, server: _Server, seconds: float) -> _Turn:
    before_s = server.cpu_s()
    asked = [*command, work.muxer, "measure", server.address, str(seconds), work.figure, str(work.size)]
    try:
        done = subprocess.run(asked, cwd=_ROOT, capture_output=True, text=True, timeout=_TURN_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise _NothingMeasuredError(f"{work}: {' '.join(command)} took over {_TURN_SECONDS} s") from error
    if done.returncode or not done.stdout.strip():
        raise _NothingMeasuredError(f"{work}: {' '.join(command)} measured nothing: {done.stderr[-600:]}")
    [told] = json.loads(done.stdout.splitlines()[-1]).values()
    measured: dict[str, Any] = told
    cpu_s = measured["cpu_s"] + server.cpu_s() - before_s
    return _Turn(measured["value"], cpu_s * 1_000 / measured["rounds"])
