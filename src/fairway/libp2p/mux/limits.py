"""`MuxerLimits`: the bounds of a muxer; `MuxerStatistics`: its counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from fairway.errors import ConfigurationError

KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MuxerLimits:
    """The bounds of the muxer of one connection."""

    max_inbound_streams: int = 512
    """Open streams of the peer; one more is reset."""
    max_outbound_streams: int = 128
    """Open streams of this side; one more waits until one of them ends. nim-libp2p ends an mplex connection with more
    than 200; rust-libp2p refuses more than 128."""
    send_frame_bytes: int = 64 * KIB
    """Longest frame that is sent; longer data are split, so that streams take turns."""
    receive_window_bytes: int = 256 * KIB
    """Unconsumed bytes that the peer may send on a yamux stream; at least yamux's initial window of 256 KiB."""
    stream_buffer_bytes: int = 1024 * KIB
    """With more unconsumed bytes on an mplex stream, the connection is not read until they are consumed."""
    max_buffered_bytes: int = 16 * 1024 * KIB
    """Unconsumed bytes of all streams of a connection; beyond it the fullest stream is reset."""
    max_queued_replies: int = 16_384
    """Answers (to pings, to refused streams) that wait because the peer does not read; more raise `FrameError`."""

    def __post_init__(self) -> None:
        """Raise `ConfigurationError` for a limit that is not above 0."""
        require_positive(self)


def require_positive(limits: Any) -> None:
    """Raise `ConfigurationError` if a number of a dataclass of limits is not above 0."""
    for field in fields(limits):
        value = getattr(limits, field.name)
        if isinstance(value, int | float) and not value > 0:
            raise ConfigurationError(f"{field.name} is {value}: a limit is a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class MuxerStatistics:
    """Counts of a muxer."""

    inbound_streams: int
    """Streams that the peer opened and that are still in use."""
    outbound_streams: int
    """Streams that this side opened and that are still in use."""
    buffered_bytes: int
    """Received bytes that are not consumed."""
    queued_bytes: int
    """Size of the frames that wait to be sent."""
    late_frames: int
    """Frames for streams that had ended."""
    refused_streams: int
    """Streams of the peer that were reset because it had too many."""
    overflowed_streams: int
    """Streams that were reset because too many bytes were unread."""
