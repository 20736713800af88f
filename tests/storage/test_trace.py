"""The trace of messages in a store on disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.events import (
    ChannelStatus,
    ChunkInfo,
    IrretrievableMessage,
    LossReason,
    MessageDelivered,
    MessageSent,
    RequestSent,
    StatusChanged,
)
from fairway.storage.channel_store import TracePoint
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_reader import StoreReader


@pytest.fixture
def kept(path, keeper):
    return keeper(SqliteStore(path))


def test_a_trace_is_found_by_message_request_and_sds_id_oldest_first(kept, make):
    chunk = ChunkInfo(chunk_index=0, total_chunks=1)
    sent = MessageSent(request_id="r1", message_id="m1", chunk_info=chunk, message_hash=b"h" * 32)
    whole = RequestSent(request_id="r1", message_id="m1")
    again = RequestSent(request_id="r2", message_id="m1")
    delivered = MessageDelivered(request_id="r1", message_id="m1", delivered_to=("r2",), at_ms=30)
    points = [TracePoint(at_ms=10 * place, event=event) for place, event in enumerate((sent, whole, again, delivered))]
    kept.keep(trace=tuple(points[:2]))
    kept.keep(trace=(TracePoint(at_ms=1, event=StatusChanged(status=ChannelStatus.SYNCED)), *points[2:]))
    lost = TracePoint(at_ms=50, event=IrretrievableMessage(message_id="sds-9", reason=LossReason.TIMEOUT))
    kept.keep(trace=(lost,))
    for _ in range(2):
        assert list(StoreReader(kept.store.path).trace("m1")) == points
        assert list(StoreReader(kept.store.path).trace("r1")) == [points[0], points[1], points[3]]
        # An identifier is a whole field that names a message, not a part of one nor another field's value.
        assert list(StoreReader(kept.store.path).trace("r2")) == [points[2]]
        assert list(StoreReader(kept.store.path).trace("m")) == []
        assert list(StoreReader(kept.store.path).trace("")) == []
        assert list(StoreReader(kept.store.path).trace("sds-9")) == [lost]
        kept.reopen()


def test_of_a_received_message_the_trace_keeps_the_size_and_not_the_payload(kept, make):
    message = make.received(4, payload=b"x" * 777)
    kept.keep(trace=(TracePoint(at_ms=1, event=message), TracePoint(at_ms=2, event=message, size_bytes=5)))
    expected = [
        TracePoint(at_ms=1, event=replace(message, payload=b""), size_bytes=777),
        TracePoint(at_ms=2, event=replace(message, payload=b""), size_bytes=5),
    ]
    for identifier in ("message-4", "sds-4-0", "sds-4-1"):
        assert list(StoreReader(kept.store.path).trace(identifier)) == expected


def test_the_oldest_trace_points_are_removed(kept, monkeypatch):
    monkeypatch.setattr("fairway.storage.sqlite_writer.KEPT_TRACE_POINTS", 10)
    for start in range(0, 3_000, 300):
        events = (RequestSent(request_id=f"r{number}", message_id="m") for number in range(start, start + 300))
        kept.keep(trace=tuple(TracePoint(at_ms=0, event=event) for event in events))
    kept.reopen()
    names = [point.event.request_id for point in StoreReader(kept.store.path).trace("m")]
    assert 10 <= len(names) <= 1_300
    assert names == [f"r{number}" for number in range(3_000 - len(names), 3_000)]
