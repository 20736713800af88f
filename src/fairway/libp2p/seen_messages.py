"""`SeenMessages`: recognises messages that arrive again.

The number of ids is bounded; the oldest are evicted first. Time is an argument.
"""

from __future__ import annotations

from typing import Final

from fairway.bounded import BoundedDict


class SeenMessages:
    """The ids of the messages of the last minutes."""

    def __init__(self, *, ttl_s: float, max_messages: int) -> None:
        self._ttl_s: Final = ttl_s
        self._seen: BoundedDict[bytes, float] = BoundedDict(max_messages)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, message_id: bytes, now_s: float) -> bool:
        """Add a message, and return whether it is new."""
        if message_id in self._seen:
            return False
        self._seen[message_id] = now_s
        return True

    def discard(self, message_id: bytes) -> None:
        """Remove a message, if it is known."""
        self._seen.pop(message_id, None)

    def expire(self, now_s: float) -> None:
        """Remove messages seen more than ``ttl_s`` ago."""
        while self._seen and next(iter(self._seen.values())) < now_s - self._ttl_s:
            self._seen.popitem(last=False)
