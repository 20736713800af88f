"""The speed of a channel: A sends and B processes, as in js-waku; and its dependence on the length of the history.

One message is A's `send` and `broadcast`, and B's `receive`; both journals are drained, as the shell does. All messages
are new and none is acknowledged, so A's outgoing buffer grows as js-waku's does. "Objects" passes the message itself;
"bytes" encodes and decodes it.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from hashlib import sha256
from statistics import median
from time import perf_counter

from benchmarks.figures import Figure
from benchmarks.js_waku import JsWaku, PeerUnavailableError
from benchmarks.session import Benchmark, Session

from fairway.options import SdsConfig
from fairway.protocol.sds.channel import MessageChannel
from fairway.protocol.sds.history import HistoryRecord
from fairway.protocol.sds.outcome import MessageReady
from fairway.wire.sds import WAKU_SDS

START_MS = 1_700_000_000_000
CHANNEL = "bench-channel"
HINT = bytes([9]) * 32
PAYLOAD_BYTES = 64

_SMALL_HISTORY = 1_000
_LARGE_HISTORY = 1_000_000
_WINDOW = 250
_WINDOWS = 24


class Peer(Enum):
    """How long js-waku takes for an exchange: whether it is measured, or the remark instead."""

    QUICK = ""
    SLOW = "six minutes: left out by --quick"
    LEFT_OUT = "eleven minutes, 1.3 GB: not measured"


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    return [
        _exchange_benchmark(messages=2_000, history=200, wire=False),
        _exchange_benchmark(messages=2_000, history=200, wire=True),
        _exchange_benchmark(messages=2_000, history=2, wire=False),
        _exchange_benchmark(messages=2_000, history=2, wire=True),
        _exchange_benchmark(messages=10_000, history=200, wire=False, peer=Peer.SLOW),
        _exchange_benchmark(messages=10_000, history=200, wire=True, peer=Peer.LEFT_OUT),
        _lengths_benchmark(cited=2),
        _lengths_benchmark(cited=200),
    ]


def new_pair(history: int) -> tuple[MessageChannel, MessageChannel]:
    """Return two empty channels that cite ``history`` messages each time."""
    config = SdsConfig(causal_history_size=history, max_history=_LARGE_HISTORY)
    return (
        MessageChannel(CHANNEL, "alice", config, now_ms=START_MS),
        MessageChannel(CHANNEL, "bob", config, now_ms=START_MS),
    )


def exchange(alice: MessageChannel, bob: MessageChannel, numbers: range, *, wire: bool) -> float:
    """Let A send and B process the messages of these numbers; return messages per second."""
    delivered = 0
    start = perf_counter()
    for number in numbers:
        now_ms = START_MS + number
        message = alice.send(number.to_bytes(4, "big").ljust(PAYLOAD_BYTES, b"\7"), now_ms)
        alice.add_hint(message.message_id, HINT)
        encoded = None
        if wire:
            encoded = alice.retained.encoded(message.message_id)
            assert encoded is not None, "a channel retains its newest messages, encoded"
            message = WAKU_SDS.decode(encoded)
        delivered += isinstance(bob.receive(message, HINT, now_ms, encoded)[-1], MessageReady)
        alice.journal.drain()
        bob.journal.drain()
    elapsed = perf_counter() - start
    assert delivered == len(numbers), f"{delivered} of {len(numbers)} messages were delivered"
    return len(numbers) / elapsed


def compare_exchange(session: Session, *, messages: int, history: int, wire: bool, peer: Peer) -> Figure:
    """Measure both in turn (ours, the peer's, ours, ...), each time from empty channels, and take the medians."""
    rounds = 3 if peer is Peer.QUICK else 1
    remark = peer.value if peer is Peer.LEFT_OUT or (peer is Peer.SLOW and session.quick) else ""
    ours: list[float] = []
    peers: list[float] = []
    for _ in range(rounds):
        ours.append(exchange(*new_pair(history), range(messages), wire=wire))
        if not remark:
            try:
                answer = session.ask_js_waku("channel", messages=messages, history=history, wire=wire)
                peers.append(answer["rate"])
            except PeerUnavailableError as error:
                remark = str(error)
    ours.append(exchange(*new_pair(history), range(messages), wire=wire))
    theirs = median(peers) if peers else None
    return Figure(ours=median(ours), unit="messages/s", peer=theirs, peer_name=JsWaku.name, remark=remark)


def compare_lengths(session: Session, *, cited: int) -> Figure:
    """Compare channels with a million messages behind them to ones with a thousand, in turn, window by window."""
    windows = _WINDOWS // 2 if session.quick else _WINDOWS
    past = [
        HistoryRecord(START_MS - age, sha256(f"past {age}".encode()).hexdigest(), HINT, "alice")
        for age in range(_LARGE_HISTORY, 0, -1)
    ]
    pairs = [new_pair(cited), new_pair(cited)]
    for pair, length in zip(pairs, (_LARGE_HISTORY, _SMALL_HISTORY), strict=True):
        for channel in pair:
            _give_past(channel, past[-length:])
    rates: tuple[list[float], list[float]] = ([], [])
    for window in range(windows):
        numbers = range(window * _WINDOW, (window + 1) * _WINDOW)
        for pair, measured in zip(pairs, rates, strict=True):
            measured.append(exchange(*pair, numbers, wire=False))
    peer_name = f"fairway at {_SMALL_HISTORY:,}"
    return Figure(ours=median(rates[0]), unit="messages/s", peer=median(rates[1]), peer_name=peer_name)


def _give_past(channel: MessageChannel, past: list[HistoryRecord]) -> None:
    """Fill a channel as loading a stored state does."""
    for record in past:
        channel.history.add(record)
    channel.bloom.refill(record.message_id for record in past[-channel.bloom_parameters.capacity :])


def _exchange_benchmark(*, messages: int, history: int, wire: bool, peer: Peer = Peer.QUICK) -> Benchmark:
    name = f"SDS exchange, {messages:,} messages, history {history}, {'bytes' if wire else 'objects'}"
    measure = partial(compare_exchange, messages=messages, history=history, wire=wire, peer=peer)
    return Benchmark(name=name, measure=measure)


def _lengths_benchmark(*, cited: int) -> Benchmark:
    name = f"SDS exchange, {_LARGE_HISTORY:,} messages behind it, history {cited}, objects"
    return Benchmark(name=name, measure=partial(compare_lengths, cited=cited))
