"""What a muxer may use, and what it uses."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from fairway.errors import ConfigurationError

KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MuxerLimits:
    """What one connection's muxer may use."""

    max_inbound_streams: int = 512
    """Streams that the peer has open at a time; one more is reset."""
    max_outbound_streams: int = 512
    """Streams that we have open at a time; one more is a `LimitError`."""
    max_unacknowledged_streams: int = 256
    """Streams that we opened and the peer has not yet acknowledged (yamux's accept backlog)."""
    send_frame_bytes: int = 64 * KIB
    """The longest frame that is sent: longer data go in several, so that streams take turns."""
    receive_window_bytes: int = 256 * KIB
    """Bytes that the peer may send on a yamux stream before they are consumed: at least the first window."""
    stream_buffer_bytes: int = 1024 * KIB
    """Unconsumed bytes of an mplex stream from which on nothing more should be read from the connection."""
    max_buffered_bytes: int = 16 * 1024 * KIB
    """Unconsumed bytes of all streams of a connection; beyond it the fullest stream is reset."""
    max_queued_replies: int = 16_384
    """Answers (to pings, to streams too many) that wait because the peer does not read; more is a `FrameError`."""

    def __post_init__(self) -> None:
        """Refuse limits that nothing could be done within."""
        require_positive(self)


def require_positive(limits: Any) -> None:
    """Raise `ConfigurationError` for the first number of a dataclass of limits that bounds nothing: none may be 0."""
    for field in fields(limits):
        value = getattr(limits, field.name)
        if isinstance(value, int | float) and not value > 0:
            raise ConfigurationError(f"{field.name} is {value}: a limit is a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MuxerStatistics:
    """A muxer in numbers."""

    inbound_streams: int
    """Streams that the peer opened and that are still in use."""
    outbound_streams: int
    """Streams that we opened and that are still in use."""
    buffered_bytes: int
    """Bytes that were received and not yet consumed."""
    queued_bytes: int
    """Bytes of frames that wait to be sent."""
    late_frames: int
    """Frames for streams that were gone already."""
    refused_streams: int
    """Streams of the peer that were reset because it has too many."""
    overflowed_streams: int
    """Streams that were reset because too many bytes waited unread."""
