"""The live channel: latency, throughput, large messages and restart, beside js-waku's ReliableChannel.

Each figure has a process of its own (`benchmarks.live_workloads` here, ``peers/js_waku_channel/bench.mjs`` there) with
two participants, connected by function calls that encode and decode every byte. js-waku delivers a message when it
arrives, and processes SDS at most once a second. So its rate counts until SDS has processed the last message.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child_process import workload
from benchmarks.figures import Figure
from benchmarks.js_waku import JsWaku, PeerUnavailableError
from benchmarks.session import Benchmark, Session

_ROOT = Path(__file__).parents[1]
_KIB = 1_024
_MIB = 1_048_576
_LIMIT_S = 120
_READINGS = 10_000
"""Small messages of a run: as many as the queue of a subscription holds."""
_measured = partial(workload, "benchmarks.live_workloads")
_FASTER = 20
"""How much faster than by default all timers run where messages get lost, on both sides."""


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    measures: list[tuple[str, Callable[[Session], Figure]]] = [
        ("live: send to receive, 1 KiB, in memory, p50", partial(_latency, durable=False)),
        ("live: send to receive, 1 KiB, SQLite, p50", partial(_latency, durable=True)),
        ("live: sustained 1 KiB, history 2", partial(_throughput, history=2)),
        ("live: sustained 1 KiB, history 200", partial(_throughput, history=200)),
        ("live: sustained 1 KiB, history 2, SQLite", partial(_throughput, history=2, durable=True)),
        ("live: one send after another, 1 KiB, SQLite", _one_after_another),
        ("live: sustained 100-byte readings, batch_ms 10", partial(_readings, "rate", "readings/s")),
        ("live: CPU for a 100-byte reading, batch_ms 10", partial(_readings, "cpu_ms", "ms")),
        ("live: CPU for a 100-byte reading, batch_ms 10, SQLite", partial(_readings, "cpu_ms", "ms", durable=True)),
        ("live: 100-byte readings in a WakuMessage, batch_ms 10, 100 an epoch", _readings_in_a_message),
        ("live: CPU for a message, 1 KiB, history 2", partial(_cpu, history=2)),
        ("live: CPU for a message, 1 KiB, history 200", partial(_cpu, history=200)),
        ("live: 100 messages of 1 KiB, 30 % loss, 20 times as fast", _lossy),
        ("live: 1 MiB end to end, no loss, p50", partial(_transfer, loss=0.0)),
        ("live: 1 MiB end to end, 30 % loss, 20 times as fast, p50", partial(_transfer, loss=0.3)),
        ("live: start with 100,000 messages of history", _restart),
    ]
    return [Benchmark(name=name, measure=measure) for name, measure in measures]


def _latency(session: Session, *, durable: bool) -> Figure:
    sizes: dict[str, Any] = {"messages": 200 if session.quick else 1_000, "warming": 100, "payload_bytes": _KIB}
    ours = _measured("latency", **sizes, history=2, durable=_folder() if durable else "")
    if durable:
        until_durable = median(ours["durable_ms"])
        remark = f"send returns, on disk, after {until_durable:.2f} ms; js-waku keeps nothing on disk"
        return _row(median(ours["times_ms"]), None, "ms", remark)
    slowest = sorted(ours["times_ms"])[len(ours["times_ms"]) * 99 // 100]
    peer, remark = _asked(session, "latency", **sizes, history=2)
    theirs = None if peer is None else median(peer["times_ms"])
    return _row(median(ours["times_ms"]), theirs, "ms", remark or f"ours p99 {slowest:.2f} ms")


def _throughput(session: Session, *, history: int, durable: bool = False) -> Figure:
    ours, peer, remark = _sustained(session, history=history, durable=durable)
    return _row(ours["rate"], None if peer is None else peer["rate"], "messages/s", remark)


def _cpu(session: Session, *, history: int) -> Figure:
    ours, peer, remark = _sustained(session, history=history, durable=False)
    return _row(ours["cpu_ms"], None if peer is None else peer["cpu_ms"], "ms", remark)


def _sustained(session: Session, *, history: int, durable: bool) -> tuple[Any, Any, str]:
    sizes: dict[str, Any] = {"messages": 500 if session.quick else 2_000, "payload_bytes": _KIB, "history": history}
    ours = _measured("throughput", **sizes, durable=_folder() if durable else "", at_once=64 if durable else 1)
    if durable:
        return ours, None, "64 senders side by side; js-waku keeps nothing on disk"
    peer, remark = _asked(session, "throughput", **sizes, process_task_ms=1_000)
    return ours, peer, remark


def _readings(figure: str, unit: str, _: Session, *, durable: bool = False) -> Figure:
    """Compare many small messages with and without batches."""
    alone, batched = (_many_readings(durable=durable, batch_ms=batch_ms) for batch_ms in (0, 10))
    return Figure(
        ours=batched[figure], unit=unit, peer=alone[figure], peer_name="batch_ms 0", remark="1,000 senders side by side"
    )


def _readings_in_a_message(_: Session) -> Figure:
    alone = _many_readings(batch_ms=0)
    limited = _many_readings(batch_ms=10, per_epoch=100)
    ours, peer = (_READINGS / each["published"] for each in (limited, alone))
    return Figure(ours=ours, unit="readings", peer=peer, peer_name="batch_ms 0", remark="1,000 senders side by side")


def _many_readings(*, durable: bool = False, **more: int) -> Any:
    sizes: dict[str, Any] = {"messages": _READINGS, "payload_bytes": 100, "history": 2, "at_once": 1_000}
    return _measured("throughput", **sizes, durable=_folder() if durable else "", **more)


def _one_after_another(session: Session) -> Figure:
    """Compare sends that each wait for the disk with what the disk allows, each in turn, three times."""
    sizes: dict[str, Any] = {"messages": 200 if session.quick else 1_000, "payload_bytes": _KIB, "durable": _folder()}
    rates, bare, awaited = [], [], []
    for _ in range(1 if session.quick else 3):
        rates.append(_measured("sends", **sizes, history=2)["rate"])
        committed = _measured("commit", **sizes)
        bare.append(_rate(committed["times_ms"]))
        awaited.append(_rate(committed["awaited_ms"]))
    remark = f"rows of the same size, each with an fsync of its own; {median(awaited):,.0f} if a thread commits them"
    return Figure(ours=median(rates), unit="messages/s", peer=median(bare), peer_name="bare SQLite", remark=remark)


def _rate(times_ms: list[float]) -> float:
    """Return how many come in a second if one begins as another ends."""
    return len(times_ms) * 1e3 / sum(times_ms)


def _lossy(session: Session) -> Figure:
    sizes: dict[str, Any] = {
        "messages": 100,
        "payload_bytes": _KIB,
        "history": 2,
        "loss": 0.3,
        "seed": 1,
        "faster": _FASTER,
        "limit_s": _LIMIT_S,
    }
    ours = _measured("lossy", **sizes)
    peer, remark = _asked(session, "lossy", **sizes)
    if peer is None:
        return _row(ours["seconds"], None, "s", remark)
    if peer["received"] < sizes["messages"]:
        remark = f"{peer['received']} of {sizes['messages']} after {_LIMIT_S} s, {peer['repeated']} of them again"
        return _row(ours["seconds"], None, "s", remark)
    return _row(ours["seconds"], peer["seconds"], "s", f"{peer['repeated']} handed over again, ours none")


def _transfer(session: Session, *, loss: float) -> Figure:
    ours = _measured(
        "transfer",
        messages=5 if session.quick else 20,
        payload_bytes=_MIB,
        loss=loss,
        seed=1,
        faster=_FASTER,
        limit_s=_LIMIT_S,
    )
    sent = ours["sent_bytes"] / _MIB
    remark = f"{sent:.2f} MiB sent for each; js-waku does not segment and refuses more than 150 KiB"
    return _row(median(ours["times_ms"]), None, "ms", remark)


def _restart(session: Session) -> Figure:
    messages = 10_000 if session.quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        filled = _measured("fill", messages=messages, payload_bytes=_KIB, durable=folder)
        ours = _measured("restart", durable=folder)
    size = filled["store_bytes"] / _MIB
    count = f"only {messages:,} with --quick; " if session.quick else ""
    remark = f"{count}{size:.0f} MiB of store, first message sent after {ours['sent_ms']:.0f} ms; js-waku forgets"
    return _row(ours["started_ms"], None, "ms", remark)


def _row(ours: float, peer: float | None, unit: str, remark: str) -> Figure:
    return Figure(ours=ours, unit=unit, peer=peer, peer_name=JsWaku.name, remark=remark)


def _asked(session: Session, workload: str, **parameters: object) -> tuple[Any, str]:
    """Return what js-waku measured, or None and the reason."""
    try:
        return session.ask_js_waku_channel(workload, **parameters), ""
    except PeerUnavailableError as error:
        return None, str(error)


def _folder() -> str:
    """Return where stores are made: a folder on a disk, since what is in memory has no durability to pay for."""
    folder = _ROOT / "build"
    folder.mkdir(exist_ok=True)
    return os.fspath(folder)
