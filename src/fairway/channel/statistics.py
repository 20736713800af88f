"""What a live channel counts (`ReliableChannel.statistics`)."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.protocol.statistics import StackStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatistics:
    """Counts since the channel was started, and what it holds now."""

    protocol: StackStatistics
    """What the layers of the protocol counted."""
    unfinished: int
    """Received messages that the application has not finished with."""
    unfinished_bytes: int
    """Their payload."""
    publishing: int
    """Transmissions handed to the node and not answered, or waiting for their turn."""
    uncommitted: int
    """Changes of state that are not durable yet."""
    store_queries: int
    """Pages that were asked of store nodes."""
    store_failures: int
    """Store queries that were not answered."""
    retrieved: int
    """Messages that store queries brought, known ones included."""
    store_mismatches: int
    """Messages that store queries brought and that were not asked for, or not what their hash is of; none was taken."""
    dropped: int
    """Messages that came faster than they could be processed; they are asked for again."""
    events_dropped: int
    """Events that slow readers of events lost."""
    handler_failures: int
    """Event handlers that raised."""
