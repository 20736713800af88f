"""The memory that a channel keeps for each delivered message.

The figure is the growth of a process, with the overhead of Python, the messages kept for repairs, and cached bytes. So
each figure needs a process of its own: ``python -m benchmarks.memory WORKLOAD MESSAGES`` prints the growth in bytes.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.js_waku import JsWaku, PeerUnavailableError
from benchmarks.sds import CHANNEL, PAYLOAD_BYTES, START_MS, exchange, new_pair
from benchmarks.session import Benchmark, Session

from fairway.options import SdsConfig
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.outcome import MessageReady
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage

_CHECKOUT = Path(__file__).parents[1]
_STATM = Path("/proc/self/statm")
_RECEIVED = 1_000_000
_EXCHANGED = 2_000
_HISTORY = 200
_WARMING_ENTRIES = 20_000
"""More history entries than the encoder remembers: its memory is full before the receiver is measured."""


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    received = f"SDS memory per message delivered, {_RECEIVED:,} in the history"
    exchanged = f"SDS memory per message exchanged, {_EXCHANGED:,} messages, history {_HISTORY}, bytes"
    return [
        Benchmark(name=received, measure=measure_received),
        Benchmark(name=exchanged, measure=compare_exchanged),
    ]


def measure_received(session: Session) -> Figure:  # noqa: ARG001 - every measure is called alike
    """Measure a receiver that delivers a million messages."""
    growth = _growth_of("received", _RECEIVED)
    remark = "a million messages would take it weeks"
    return Figure(ours=growth / _RECEIVED, unit="bytes", peer_name=JsWaku.name, remark=remark)


def compare_exchanged(session: Session) -> Figure:
    """Measure sender and receiver together, both implementations, at a number that the peer can reach."""
    ours = _growth_of("exchanged", _EXCHANGED) / _EXCHANGED
    peer, remark = None, ""
    try:
        answer = session.ask_js_waku("channel", messages=_EXCHANGED, history=_HISTORY, wire=True)
        peer = answer["resident_growth"] / _EXCHANGED
    except PeerUnavailableError as error:
        remark = str(error)
    return Figure(ours=ours, unit="bytes", peer=peer, peer_name=JsWaku.name, remark=remark)


def receive(messages: int) -> int:
    """Return by how many bytes this process grows while one channel delivers messages that come as bytes."""
    bob = MessageChannel(CHANNEL, "bob", SdsConfig(max_history=messages), now_ms=START_MS)
    bloom = bytes(bob.bloom_parameters.byte_length)
    cited: tuple[HistoryEntry, ...] = ()

    def next_bytes(number: int) -> bytes:
        nonlocal cited
        message = SdsMessage(
            message_id=sha256(f"message {number}".encode()).hexdigest(),
            sender_id="alice",
            channel_id=CHANNEL,
            lamport_timestamp=START_MS + number,
            causal_history=cited,
            bloom_filter=bloom,
            content=number.to_bytes(4, "big").ljust(PAYLOAD_BYTES, b"\7"),
        )
        cited = (*cited, HistoryEntry(message.message_id, _hint(number), "alice"))[-bob.config.causal_history_size :]
        return WAKU_SDS.encode(message)

    for number in range(-_WARMING_ENTRIES, 0):
        next_bytes(-number)
    cited = ()
    before = _resident_bytes()
    delivered = 0
    for number in range(messages):
        encoded = next_bytes(number)
        outcomes = bob.receive(WAKU_SDS.decode(encoded), _hint(number), START_MS + number, encoded)
        delivered += isinstance(outcomes[-1], MessageReady)
        bob.journal.drain()
    growth = _resident_bytes() - before
    assert delivered == len(bob.history) == messages, f"{delivered} of {messages} messages were delivered"
    return growth


def exchange_bytes(messages: int) -> int:
    """Return by how many bytes this process grows while A sends and B processes messages."""
    before = _resident_bytes()
    pair = new_pair(_HISTORY)
    exchange(*pair, range(messages), wire=True)
    return _resident_bytes() - before


def _hint(number: int) -> bytes:
    return sha256(f"hint {number}".encode()).digest()


def _growth_of(workload: str, messages: int) -> int:
    command = [sys.executable, "-m", "benchmarks.memory", workload, str(messages)]
    return int(subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=True).stdout)


def _resident_bytes() -> int:
    gc.collect()
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    command = ["ps", "-o", "rss=", "-p", str(os.getpid())]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) * 1024


if __name__ == "__main__":
    print({"received": receive, "exchanged": exchange_bytes}[sys.argv[1]](int(sys.argv[2])))
