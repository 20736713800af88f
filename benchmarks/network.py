"""The service node: light push with few and many clients, and filter to many subscribers, over libp2p on loopback.

Each figure is a client process (`benchmarks.network_workloads`) and a node process, ``fairway node``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.child_process import workload
from benchmarks.figures import Figure
from benchmarks.session import Benchmark, Row, Session

_measured = partial(workload, "benchmarks.network_workloads")


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    return [
        _benchmark("network: light push, 1 KiB, 1 client", partial(_push, clients=1, size=1_024)),
        _benchmark("network: light push, 1 KiB, 50 clients", partial(_push, clients=50, size=1_024)),
        _benchmark("network: light push, 100 KB, 1 client", partial(_push, clients=1, size=100_000)),
        _benchmark("network: reliable channel, 1 KiB, 64 senders side by side", partial(_channel, per_second=0)),
        _benchmark("network: reliable channel, 1 KiB, 1,000 offered a second", partial(_channel, per_second=1_000)),
        _benchmark("network: filter, 1 KiB to 200 subscribers", _fanout),
    ]


def _benchmark(name: str, measure: Callable[[str, Session], Row]) -> Benchmark:
    return Benchmark(name=name, measure=partial(measure, name))


def _push(name: str, session: Session, *, clients: int, size: int) -> Row:
    messages = (500 if session.quick else 5_000) // (1 if size < 10_000 else 5)
    got = _measured("lightpush", clients=clients, messages=messages, size=size)
    remark = (
        f"round trip p50 {got['p50_ms']:.2f} ms, p99 {got['p99_ms']:.2f} ms; node: {got['node_cpu_ms']:.2f} ms of CPU "
        f"for each, {got['node_rss_mib']:.0f} MiB"
    )
    return _row(name, got["rate"], "requests/s", remark)


def _channel(name: str, session: Session, *, per_second: float) -> Row:
    got = _measured("channel", messages=1_000 if session.quick else 10_000, size=1_024, per_second=per_second)
    costs = ", ".join(f"{name} {cpu_ms:.2f}" for name, cpu_ms in got["cpu_ms"].items())
    remark = f"send to receive p50 {got['p50_ms']:.2f} ms, p99 {got['p99_ms']:.2f} ms; ms of CPU for each: {costs}"
    return _row(name, got["rate"], "messages/s", remark)


def _fanout(name: str, session: Session) -> Row:
    got = _measured("fanout", subscribers=200, messages=50 if session.quick else 300, size=1_024)
    remark = (
        f"{got['messages_per_s']:.0f} messages/s; node: {got['node_cpu_us']:.0f} us of CPU for each delivery, "
        f"{got['node_rss_mib']:.0f} MiB; all subscribers share one process"
    )
    return _row(name, got["deliveries_per_s"], "deliveries/s", remark)


def _row(name: str, ours: float, unit: str, remark: str) -> Row:
    return Row(figure=Figure(name=name, ours=ours, peer=None, peer_name="", unit=unit), remark=remark)
