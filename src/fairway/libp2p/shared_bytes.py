"""`SharedBytes`: counts the bytes of the messages in many queues, each message once.

Invariant: a message counts from the time when the first queue takes it until the last queue releases it.
"""

from __future__ import annotations


class SharedBytes:
    """The messages in all queues. All queues hold the same object for a message."""

    def __init__(self) -> None:
        self.size_bytes = 0
        """Size of the different messages."""
        # By identity: a held message stays alive, so its id cannot be reused.
        self._holders: dict[int, int] = {}

    def hold(self, message: bytes) -> None:
        """Note that one more queue holds a message."""
        holders = self._holders.get(id(message), 0)
        if not holders:
            self.size_bytes += len(message)
        self._holders[id(message)] = holders + 1

    def release(self, message: bytes) -> None:
        """Note that a queue no longer holds a message."""
        holders = self._holders.pop(id(message)) - 1
        if holders:
            self._holders[id(message)] = holders
        else:
            self.size_bytes -= len(message)
