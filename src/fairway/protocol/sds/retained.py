"""Messages kept whole, so that they can be broadcast again for somebody who misses them (SDS-R).

Bounded by number and by bytes; the oldest go first. An answer is the original, byte for byte: author, timestamp,
history and filter are the author's, not ours.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from fairway.options import RepairConfig
from fairway.protocol.journal import Journal
from fairway.wire.sds import SdsCodec, SdsMessage

RETAINED: Final = "retained"
_ENTRY_BYTES: Final = 110
"""A history entry with hint and short author, for estimating the size of a message that is not encoded."""


class Retained(NamedTuple):
    """A kept message."""

    order: int
    """Counts kept messages; the oldest goes first, also after a restart."""
    message: SdsMessage | bytes
    """Its bytes, or what they are made of when they are asked for."""
    size_bytes: int


class RetainedMessages:
    """The newest messages, by id."""

    def __init__(self, config: RepairConfig, journal: Journal, codec: SdsCodec) -> None:
        self._messages: OrderedDict[str, Retained] = OrderedDict()
        self._bytes = 0
        self._order = 0
        self._max_messages = config.retained_messages if config.enabled else 0
        self._max_bytes = config.retained_bytes
        self._journal = journal
        self._codec = codec

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids, oldest first."""
        return iter(self._messages)

    def keep(self, message: SdsMessage, encoded: bytes | None = None) -> None:
        """Keep a message; without its bytes it is encoded when it is asked for."""
        if not self._max_messages or message.message_id in self._messages:
            return
        self._journal.touch(RETAINED, message.message_id)
        if encoded is not None:
            size = len(encoded)
        else:
            size = len(message.content or b"") + len(message.bloom_filter or b"")
            size += _ENTRY_BYTES * len(message.causal_history)
        self._put(message.message_id, Retained(self._order + 1, message if encoded is None else encoded, size))

    def forget(self, message_id: str) -> None:
        """Keep a message no longer."""
        gone = self._messages.pop(message_id, None)
        if gone is not None:
            self._bytes -= gone.size_bytes
            self._journal.touch(RETAINED, message_id)

    def keep_again(self, message_id: str, order: int, encoded: bytes) -> None:
        """Keep a message that was kept before; the oldest are to be given first."""
        self._put(message_id, Retained(order, encoded, len(encoded)))

    def encoded(self, message_id: str) -> bytes | None:
        """Return the bytes of a message, if it is kept."""
        kept = self._messages.get(message_id)
        if kept is None:
            return None
        return kept.message if isinstance(kept.message, bytes) else self._codec.encode(kept.message)

    def order(self, message_id: str) -> int:
        """Return the place of a kept message among all that were ever kept."""
        return self._messages[message_id].order

    def _put(self, message_id: str, kept: Retained) -> None:
        self._messages[message_id] = kept
        self._order = kept.order
        self._bytes += kept.size_bytes
        while len(self._messages) > self._max_messages or self._bytes > self._max_bytes:
            oldest, gone = self._messages.popitem(last=False)
            self._bytes -= gone.size_bytes
            self._journal.touch(RETAINED, oldest)
