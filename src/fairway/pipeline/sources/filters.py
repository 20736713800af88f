"""Pushes conditions of a query's WHERE clause down to the archive.

Invariant: a condition is removed from the query only if the narrowed selection is equivalent to it. Spark checks all
other conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from fairway.pipeline.sources.waku_messages import REPLACED, Selection
from fairway.storage.archive import MAX_TIMESTAMP_NS, MIN_TIMESTAMP_NS

_NEVER_NULL = {("message_hash",), ("pubsub_topic",), ("content_topic",), ("payload",), ("version",), ("timestamp_ns",)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT_NS = 1_000
"""Nanoseconds in one instant, a microsecond."""


def push_filters(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """Return the selection, narrowed by all conditions that it can express, and the other conditions for Spark."""
    left: list[Filter] = []
    for condition in filters:
        narrowed = _narrowed(selection, condition)
        if narrowed is None:
            left.append(condition)
        else:
            selection = narrowed
    return selection, left


def _narrowed(selection: Selection, condition: Filter) -> Selection | None:
    match condition:
        case EqualTo(attribute=("timestamp_ns" | "timestamp",), value=int() | datetime() as value):
            return _between(selection, *_span(value))
        case GreaterThanOrEqual(attribute=("timestamp_ns" | "timestamp",), value=int() | datetime() as value):
            return _between(selection, _span(value)[0], MAX_TIMESTAMP_NS)
        case GreaterThan(attribute=("timestamp_ns" | "timestamp",), value=int() | datetime() as value):
            return _between(selection, _span(value)[1] + 1, MAX_TIMESTAMP_NS)
        case LessThanOrEqual(attribute=("timestamp_ns" | "timestamp",), value=int() | datetime() as value):
            return _between(selection, MIN_TIMESTAMP_NS, _span(value)[1])
        case LessThan(attribute=("timestamp_ns" | "timestamp",), value=int() | datetime() as value):
            return _between(selection, MIN_TIMESTAMP_NS, _span(value)[0] - 1)
        case EqualTo(attribute=("content_topic",), value=str(value)):
            return _topics(selection, [value])
        case In(attribute=("content_topic",), value=values):
            return _topics(selection, values)
        case EqualTo(attribute=("pubsub_topic",), value=str(value)):
            return _shard(selection, value)
        case IsNotNull(attribute=attribute) if attribute in _NEVER_NULL:
            return selection
    return None


def _between(selection: Selection, start_ns: int, end_ns: int) -> Selection:
    if start_ns > MAX_TIMESTAMP_NS or end_ns < MIN_TIMESTAMP_NS:
        return _nothing(selection)
    return replace(
        selection,
        start_ns=start_ns if selection.start_ns is None else max(start_ns, selection.start_ns),
        end_ns=end_ns if selection.end_ns is None else min(end_ns, selection.end_ns),
    )


def _span(value: int | datetime) -> tuple[int, int]:
    """Return the first and the last nanosecond of an exact time, or of an instant."""
    if isinstance(value, int):
        return value, value
    first_ns = (value - _EPOCH) // timedelta(microseconds=1) * _INSTANT_NS
    return first_ns, first_ns + _INSTANT_NS - 1


def _topics(selection: Selection, values: Iterable[object]) -> Selection | None:
    wanted = list(_exact(values))
    if len(wanted) != len(list(values)):
        return None
    if selection.content_topics:
        wanted = [topic for topic in wanted if topic in selection.content_topics]
    return replace(selection, content_topics=tuple(wanted)) if wanted else _nothing(selection)


def _shard(selection: Selection, value: str) -> Selection | None:
    if REPLACED in value:
        return None
    if selection.pubsub_topic not in {None, value}:
        return _nothing(selection)
    return replace(selection, pubsub_topic=value)


def _exact(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str) and REPLACED not in value:
            yield value


def _nothing(selection: Selection) -> Selection:
    return replace(selection, start_ns=MAX_TIMESTAMP_NS, end_ns=MIN_TIMESTAMP_NS)
