"""Asking a store for acknowledgements that got lost on their way (RELIABLE-CHANNEL-API, "Message retries")."""

from __future__ import annotations

from typing import Final

from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import QueryStore
from fairway.units import NS_PER_MS

_EVERY_MS: Final = 60_000
"""Shortest interval between such queries, and how long before the first transmission they begin."""
_VAIN_ATTEMPTS: Final = 2
"""Attempts at a message after which the silence is suspicious."""


class LostAcknowledgements:
    """When to look into the store for acknowledgements that got lost on their way here.

    A participant that acknowledged a message and left does not do so again, but its acknowledgement is in the store. So
    a message that was sent again in vain is a reason to read what was sent since its first transmission.
    """

    def __init__(self, options: ReliableChannelOptions) -> None:
        self._is_on = bool(options.retrieve_frequency_ms)
        self._retry_interval_ms = options.retry_interval_ms
        self._next_at = 0

    def clock_went_back(self, now_ms: int) -> None:
        """Wait no longer than from now on."""
        self._next_at = min(self._next_at, now_ms + _EVERY_MS)

    def query(self, attempts: int, now_ms: int) -> list[QueryStore]:
        """Return a query by time if a message was sent twice or more in vain, and is about to be sent again."""
        if not self._is_on or attempts < _VAIN_ATTEMPTS or now_ms < self._next_at:
            return []
        self._next_at = now_ms + _EVERY_MS
        start_ms = now_ms - attempts * self._retry_interval_ms - _EVERY_MS
        return [QueryStore(start_ns=start_ms * NS_PER_MS, end_ns=now_ms * NS_PER_MS)]
