"""Asking a store for acknowledgements that got lost on their way (RELIABLE-CHANNEL-API, "Message retries")."""

from __future__ import annotations

from typing import Final

from fairway.options import ReliableChannelOptions
from fairway.protocol.effects import QueryStore
from fairway.units import NS_PER_MS

_EVERY_MS: Final = 60_000
"""Shortest interval between such queries, and how long before the first transmission they begin."""
_STORE_LAG_MS: Final = 600_000
"""A store that is behind has a message by so much later."""
_VAIN_ATTEMPTS: Final = 2
"""Attempts at a message after which the silence is suspicious."""


class LostAcknowledgements:
    """When to look into the store for acknowledgements that got lost on their way here.

    A participant that acknowledged a message and left does not do so again, but its acknowledgement is in the store. So
    a message that was sent again in vain is a reason to read what was sent since the last query, or since the message
    was made.
    """

    def __init__(self, options: ReliableChannelOptions) -> None:
        self._is_on = bool(options.retrieve_frequency_ms)
        self._asked_ms = 0

    def query(self, attempts: int, made_ms: int, now_ms: int) -> list[QueryStore]:
        """Return a query by time if a message that was made then has been sent twice in vain, and is sent again now."""
        if not self._is_on or attempts < _VAIN_ATTEMPTS or now_ms < self._asked_ms + _EVERY_MS:
            return []
        start_ms = max(made_ms - _EVERY_MS, self._asked_ms - _STORE_LAG_MS)
        self._asked_ms = now_ms
        return [QueryStore(start_ns=start_ms * NS_PER_MS, end_ns=now_ms * NS_PER_MS)]
