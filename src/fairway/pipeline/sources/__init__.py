"""Reads messages from archives. Every source returns the same table, ``waku_messages`` (`WAKU_MESSAGES`)."""

from __future__ import annotations

from fairway.pipeline.sources.open_source import open_source
from fairway.pipeline.sources.waku import WakuDataSource, register
from fairway.pipeline.sources.waku_messages import WAKU_MESSAGES, ArchiveScan

__all__ = [
    "WAKU_MESSAGES",
    "ArchiveScan",
    "WakuDataSource",
    "open_source",
    "register",
]
