"""The service node: light push with few and many clients, and filter with many subscribers, over libp2p on loopback.

Each figure has a client process (`benchmarks.network_workloads`) and a node process, ``fairway node``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.child_process import workload
from benchmarks.figures import Figure
from benchmarks.session import Benchmark, Session

_measured = partial(workload, "benchmarks.network_workloads")


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    measures: list[tuple[str, Callable[[Session], Figure]]] = [
        ("network: light push, 1 KiB, 1 client", partial(_push, clients=1, size=1_024)),
        ("network: light push, 1 KiB, 50 clients", partial(_push, clients=50, size=1_024)),
        ("network: light push, 100 KB, 1 client", partial(_push, clients=1, size=100_000)),
        ("network: reliable channel, 1 KiB, 64 senders side by side", partial(_channel, per_second=0)),
        ("network: reliable channel, 1 KiB, 1,000 offered a second", partial(_channel, per_second=1_000)),
        ("network: CPU for a message, 1 KiB, both clients and node", _cpu),
        ("network: filter, 1 KiB to 200 subscribers", _fanout),
    ]
    return [Benchmark(name=name, measure=measure) for name, measure in measures]


def _push(session: Session, *, clients: int, size: int) -> Figure:
    messages = (500 if session.quick else 5_000) // (1 if size < 10_000 else 5)
    got = _measured("lightpush", clients=clients, messages=messages, size=size)
    remark = (
        f"round trip p50 {got['p50_ms']:.2f} ms, p99 {got['p99_ms']:.2f} ms; node: {got['node_cpu_ms']:.2f} ms of CPU "
        f"for each, {got['node_rss_mib']:.0f} MiB"
    )
    return Figure(ours=got["rate"], unit="requests/s", remark=remark)


def _channel(session: Session, *, per_second: float) -> Figure:
    got = _measured("channel", messages=1_000 if session.quick else 10_000, size=1_024, per_second=per_second)
    costs = ", ".join(f"{name} {cpu_ms:.2f}" for name, cpu_ms in got["cpu_ms"].items())
    remark = f"send to receive p50 {got['p50_ms']:.2f} ms, p99 {got['p99_ms']:.2f} ms; ms of CPU for each: {costs}"
    return Figure(ours=got["rate"], unit="messages/s", remark=remark)


def _cpu(session: Session) -> Figure:
    cpu_ms = _measured("channel", messages=1_000 if session.quick else 10_000, size=1_024)["cpu_ms"]
    remark = ", ".join(f"{name} {each_ms:.2f}" for name, each_ms in cpu_ms.items())
    return Figure(ours=sum(cpu_ms.values()), unit="ms", remark=remark)


def _fanout(session: Session) -> Figure:
    got = _measured("fanout", subscribers=200, messages=50 if session.quick else 300, size=1_024)
    remark = (
        f"{got['messages_per_s']:.0f} messages/s; node: {got['node_cpu_us']:.0f} us of CPU for each delivery, "
        f"{got['node_rss_mib']:.0f} MiB; all subscribers share one process"
    )
    return Figure(ours=got["deliveries_per_s"], unit="deliveries/s", remark=remark)
