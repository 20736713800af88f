"""What a muxer core reports: one frozen value per thing that a peer did, in the order in which it did them.

A stream is named by the integer that the core gave it; the integer means nothing outside that core.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The peer opened a stream; the core has accepted it."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class StreamAcknowledged:
    """The peer accepted a stream that we opened (yamux only: mplex has no such answer)."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class DataReceived:
    """Bytes arrived on a stream; the application says with ``consumed`` when it has taken them."""

    stream_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """The peer allows more bytes on a stream (yamux only)."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class RemoteWriteClosed:
    """The peer writes nothing more on a stream; we still may."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class StreamWasReset:
    """A stream ended at once in both directions, and nothing of it is left in the core."""

    stream_id: int
    by_peer: bool
    """False when the core ended it, because a bound was reached."""


@dataclass(frozen=True, slots=True)
class PongReceived:
    """The peer answered a ping (yamux only)."""

    value: int


@dataclass(frozen=True, slots=True)
class PeerGoesAway:
    """The peer accepts no new streams and is about to leave (yamux only)."""

    code: int
    """0 normal, 1 it found a protocol error, 2 an internal error."""


MuxEvent = (
    StreamOpened
    | StreamAcknowledged
    | DataReceived
    | WindowOpened
    | RemoteWriteClosed
    | StreamWasReset
    | PongReceived
    | PeerGoesAway
)
