"""The events that a muxer returns for received frames, in the order of the frames.

An event names a stream by the number that the muxer gave it, which has a meaning only within that muxer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The peer opened a stream, which the muxer has accepted."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class DataReceived:
    """Bytes arrived on a stream; the application calls ``consumed`` once it has read them."""

    stream_id: int
    data: bytes


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """The peer allows more bytes on a stream (yamux only)."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class RemoteWriteClosed:
    """The peer has ended its writing on a stream; this side may still write."""

    stream_id: int


@dataclass(frozen=True, slots=True)
class StreamWasReset:
    """A stream has ended in both directions, and the muxer has removed it."""

    stream_id: int
    by_peer: bool
    """False if the muxer reset it because a bound was reached."""


MuxEvent = StreamOpened | DataReceived | WindowOpened | RemoteWriteClosed | StreamWasReset
