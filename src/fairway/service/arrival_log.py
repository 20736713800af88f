"""`ArrivalLog`: the order in which the newest messages of a node arrived, for readers that resume where they left off.

Timestamps cannot give this order, because senders choose them. The log holds message hashes and no messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import islice
from typing import Final, NamedTuple

from fairway.environment import time_ns
from fairway.nodes.node import RoutedMessage

MAX_ARRIVALS: Final = 100_000
"""Messages that the log remembers."""

Topics = tuple[str, str]
"""A pubsub topic and a content topic."""


class ArrivedMessage(NamedTuple):
    """A message, and its number in the order of arrival."""

    number: int
    message: RoutedMessage


class _Entry(NamedTuple):
    message_hash: bytes
    topics: int | None
    """The hash of the topics, because topics may be long; None for an ephemeral message, which no archive keeps."""


class ArrivalLog:
    """The newest `MAX_ARRIVALS` messages of one run of a node.

    Numbers start at the time of the start in nanoseconds, so that a later run does not use them again.
    """

    def __init__(self) -> None:
        self._entries: Final[deque[_Entry]] = deque(maxlen=MAX_ARRIVALS)
        self._next = time_ns()

    def add(self, message: RoutedMessage) -> int:
        """Append a message, and return its number."""
        topics = (message.pubsub_topic, message.message.content_topic)
        self._entries.append(_Entry(message.message_hash, None if message.message.ephemeral else hash(topics)))
        self._next += 1
        return self._next - 1

    @property
    def next_number(self) -> int:
        """The number of the next message."""
        return self._next

    def missed(self, number: int, message_hash: bytes, wanted: Collection[Topics]) -> list[tuple[int, bytes]] | None:
        """Return the numbers and hashes of the messages on wanted topics that arrived after a message, in this order.

        Ephemeral messages are left out. The result may have messages of other topics. None if the message with this
        number and hash is not in the log.
        """
        first = self._next - len(self._entries)
        place = number - first
        if not 0 <= place < len(self._entries) or self._entries[place].message_hash != message_hash:
            return None
        keys = {hash(topics) for topics in wanted}
        return [
            (first + later, entry.message_hash)
            for later, entry in enumerate(islice(self._entries, place + 1, None), place + 1)
            if entry.topics in keys
        ]

    def since(self, number: int) -> set[bytes]:
        """Return the hashes of the messages from a number on."""
        place = max(0, number - (self._next - len(self._entries)))
        return {entry.message_hash for entry in islice(self._entries, place, None)}
