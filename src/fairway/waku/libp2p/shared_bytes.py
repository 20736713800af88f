"""How many bytes the queues for many peers hold together, when one message waits in many of them.

Invariant: a message counts once, from the first queue that takes it to the last that lets go of it.
"""

from __future__ import annotations


class SharedBytes:
    """The messages in all queues; each is one object, however many queues it is in."""

    def __init__(self) -> None:
        self.size_bytes = 0
        """Bytes of the different ones."""
        # By identity: a held message stays alive, so its id cannot be reused.
        self._holders: dict[int, int] = {}

    def hold(self, message: bytes) -> None:
        """Note that one more queue holds a message."""
        holders = self._holders.get(id(message), 0)
        if not holders:
            self.size_bytes += len(message)
        self._holders[id(message)] = holders + 1

    def release(self, message: bytes) -> None:
        """Note that a queue holds a message no more."""
        holders = self._holders.pop(id(message)) - 1
        if holders:
            self._holders[id(message)] = holders
        else:
            self.size_bytes -= len(message)
