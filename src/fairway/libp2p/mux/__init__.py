"""Stream muxers, sans-IO: many streams over one connection, by yamux or by mplex."""

from __future__ import annotations

from fairway.libp2p.mux.limits import MuxerLimits, MuxerStatistics
from fairway.libp2p.mux.mplex import Mplex
from fairway.libp2p.mux.muxer import Muxer
from fairway.libp2p.mux.yamux import Yamux

__all__ = ["Mplex", "Muxer", "MuxerLimits", "MuxerStatistics", "Yamux"]
