"""The speed of encoding, decoding and hashing messages.

SDS messages are those of a channel: consecutive ones share all citations but one, so fairway finds nearly all entries
in its cache. The rows "no entry seen before" are the opposite: 80,000 entries in turn, more than the cache holds.
js-waku has no cache; both cases are measured there too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

from benchmarks.figures import Figure
from benchmarks.js_waku import JsWaku, PeerUnavailableError
from benchmarks.sds import CHANNEL, PAYLOAD_BYTES, START_MS
from benchmarks.session import Benchmark, Session, best_rate

from fairway.options import SdsConfig
from fairway.wire.bloom import BloomParameters
from fairway.wire.sds import WAKU_SDS, HistoryEntry, SdsMessage
from fairway.wire.waku_message import WakuMessage, decode_waku_message, encode_waku_message, message_hash

_CONSECUTIVE = 256
_UNSEEN = 400
_PUBSUB_TOPIC = "/waku/2/rs/1/0"
_CONTENT_TOPIC = "/bench/1/messages/proto"
_PAYLOADS = {"64 B": 64, "18.9 kB": 18_918, "40.7 kB": 40_718}
"""A bare text, and what SDS makes of it: a channel's first message in js-waku's settings, and its 201st."""


def benchmarks() -> list[Benchmark]:
    """Return the rows of this file."""
    rows = []
    for history in (0, 2, 200):
        rows += _sds_benchmarks(f"history {history}", messages=_CONSECUTIVE, history=history, stride=1)
    rows += _sds_benchmarks("history 200, no entry seen before", messages=_UNSEEN, history=200, stride=200)
    for label, payload_bytes in _PAYLOADS.items():
        for what, measure in (("encode", encode_waku), ("decode", decode_waku)):
            name = f"WakuMessage {what}, payload {label}"
            rows.append(Benchmark(name=name, measure=partial(measure, payload_bytes=payload_bytes)))
    for label, payload_bytes in _PAYLOADS.items():
        name = f"Message hash, payload {label}"
        rows.append(Benchmark(name=name, measure=partial(hash_waku, payload_bytes=payload_bytes)))
    return rows


def sds_messages(*, messages: int, history: int, stride: int) -> list[SdsMessage]:
    """Return messages of one channel; each cites ``history`` entries, ``stride`` further than the one before."""
    entries = [
        HistoryEntry(_id(number), sha256(f"hint {number}".encode()).digest(), "alice")
        for number in range(messages * stride + history)
    ]
    default = SdsConfig()
    parameters = BloomParameters.of(default.bloom_capacity, default.bloom_error_rate)
    bloom = bytes(at * 31 & 0xFF for at in range(parameters.byte_length))
    return [
        SdsMessage(
            message_id=_id(number * stride + history),
            sender_id="alice",
            channel_id=CHANNEL,
            lamport_timestamp=START_MS + number,
            causal_history=tuple(entries[number * stride : number * stride + history]),
            bloom_filter=bloom,
            content=_payload(number, PAYLOAD_BYTES),
        )
        for number in range(messages)
    ]


def waku_messages(payload_bytes: int) -> list[WakuMessage]:
    """Return messages with payloads of this size."""
    return [
        WakuMessage(
            payload=_payload(number, payload_bytes),
            content_topic=_CONTENT_TOPIC,
            timestamp_ns=(START_MS + number) * 1_000_000,
        )
        for number in range(_CONSECUTIVE)
    ]


def encode_sds(session: Session, *, messages: int, history: int, stride: int) -> Figure:
    """Encode SDS messages."""
    items = sds_messages(messages=messages, history=history, stride=stride)
    first = sha256(WAKU_SDS.encode(items[0])).hexdigest()
    return _compare(session, items, WAKU_SDS.encode, first, "sds-encode", history=history, stride=stride)


def decode_sds(session: Session, *, messages: int, history: int, stride: int) -> Figure:
    """Decode SDS messages."""
    items = [WAKU_SDS.encode(m) for m in sds_messages(messages=messages, history=history, stride=stride)]
    first = sha256(items[0]).hexdigest()
    return _compare(session, items, WAKU_SDS.decode, first, "sds-decode", history=history, stride=stride)


def encode_waku(session: Session, *, payload_bytes: int) -> Figure:
    """Encode Waku messages."""
    items = waku_messages(payload_bytes)
    first = sha256(encode_waku_message(items[0])).hexdigest()
    return _compare(session, items, encode_waku_message, first, "waku-encode", payload_bytes=payload_bytes)


def decode_waku(session: Session, *, payload_bytes: int) -> Figure:
    """Decode Waku messages."""
    items = [encode_waku_message(message) for message in waku_messages(payload_bytes)]
    first = sha256(items[0]).hexdigest()
    return _compare(session, items, decode_waku_message, first, "waku-decode", payload_bytes=payload_bytes)


def hash_waku(session: Session, *, payload_bytes: int) -> Figure:
    """Hash Waku messages."""
    items = waku_messages(payload_bytes)
    work = partial(message_hash, _PUBSUB_TOPIC)
    first = work(items[0]).hex()
    return _compare(session, items, work, first, "message-hash", payload_bytes=payload_bytes)


def _compare(
    session: Session,
    items: list[Any],
    work: Callable[[Any], object],
    fingerprint: str,
    workload: str,
    **parameters: int,
) -> Figure:
    """Measure both in turn; the fingerprint of the first item shows that they do the same work on the same bytes."""
    ours: list[float] = []
    peers: list[float] = []
    remark = ""
    for _ in range(session.rounds):
        ours.append(best_rate(items, work, session.budget_s / session.rounds))
        if remark:
            continue
        try:
            answer = session.ask_js_waku(
                workload, messages=len(items), budget_s=session.budget_s / session.rounds, **parameters
            )
            assert answer["fingerprint"] == fingerprint, f"{workload}: js-waku was given other messages"
            peers.append(answer["rate"])
        except PeerUnavailableError as error:
            remark = str(error)
    peer = max(peers, default=None)
    return Figure(ours=max(ours), unit="messages/s", peer=peer, peer_name=JsWaku.name, remark=remark)


def _sds_benchmarks(label: str, *, messages: int, history: int, stride: int) -> list[Benchmark]:
    rows = []
    for what, function in (("encode", encode_sds), ("decode", decode_sds)):
        name = f"SDS {what}, {label}"
        measure = partial(function, messages=messages, history=history, stride=stride)
        rows.append(Benchmark(name=name, measure=measure))
    return rows


def _id(number: int) -> str:
    return sha256(f"message {number}".encode()).hexdigest()


def _payload(number: int, size: int) -> bytes:
    return number.to_bytes(4, "big").ljust(size, b"\7")
