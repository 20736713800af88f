"""Trace points, as all stores treat them: the identifiers that find one, and its stored form.

A trace holds the size of a payload, not its bytes: those are in the inbox until the application has finished them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from fairway.events import Event, MessageReceived
from fairway.storage.channel_store import TracePoint

_ONE: Final = ("request_id", "message_id", "sds_id")
_SEVERAL: Final = ("sds_ids",)


def identifiers_of(event: Event) -> Iterator[str]:
    """Yield the request id, message id and SDS ids that an event names."""
    single = (getattr(event, name, None) for name in _ONE)
    return (identifier for identifier in chain(single, *(getattr(event, name, ()) for name in _SEVERAL)) if identifier)


def about(identifier: str, points: Iterable[TracePoint]) -> list[TracePoint]:
    """Return the points whose events name an identifier, in their order."""
    return [point for point in points if identifier in identifiers_of(point.event)]


def without_payload(point: TracePoint) -> TracePoint:
    """Return a point without the payload of its event."""
    event = point.event
    if not isinstance(event, MessageReceived) or not event.payload:
        return point
    size_bytes = len(event.payload) if point.size_bytes is None else point.size_bytes
    return TracePoint(at_ms=point.at_ms, event=replace(event, payload=b""), size_bytes=size_bytes)
