"""The counts of a live channel (`ReliableChannel.statistics`)."""

from __future__ import annotations

from dataclasses import dataclass

from fairway.protocol.statistics import StackStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatistics:
    """Counts since the channel was started, and sizes of its buffers now."""

    protocol: StackStatistics
    """Counts of the protocol's layers."""
    unfinished: int
    """Received messages that the application has not finished."""
    unfinished_bytes: int
    """Payload bytes of these messages."""
    publishing: int
    """Transmissions that wait for the node or for its answer."""
    refusal: str
    """Reason of the node's refusal of the latest transmission, or of a missing answer; empty if the node took it."""
    uncommitted: int
    """Writes that the store has not confirmed."""
    store_queries: int
    """Pages asked of store nodes."""
    store_failures: int
    """Store queries without an answer."""
    retrieved: int
    """Messages that store queries returned, known ones included."""
    store_mismatches: int
    """Returned messages that were not requested, or have a wrong message hash. All were ignored."""
    dropped: int
    """Received messages that were dropped because processing was too slow; the channel retrieves them later."""
    events_dropped: int
    """Events that slow readers lost."""
    handler_failures: int
    """Exceptions that event handlers raised."""
