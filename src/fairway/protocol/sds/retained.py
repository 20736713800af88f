"""Messages kept whole, so that they can be broadcast again for somebody who misses them (SDS-R).

Bounded by number and by bytes; the oldest go first. An answer is the original, byte for byte: author, timestamp,
history and filter are the author's, not ours.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from fairway.options import RepairConfig
from fairway.protocol.journal import Journal
from fairway.wire.sds import SdsCodec, SdsMessage

RETAINED: Final = "retained"
_ENTRY_BYTES: Final = 110
"""A history entry with hint and short author, for estimating the size of a message that is not encoded."""


class RetainedMessages:
    """The newest messages, by id."""

    def __init__(self, config: RepairConfig, journal: Journal, codec: SdsCodec) -> None:
        self._messages: OrderedDict[str, tuple[SdsMessage | bytes, int]] = OrderedDict()
        self._bytes = 0
        self._max_messages = config.retained_messages if config.enabled else 0
        self._max_bytes = config.retained_bytes
        self._journal = journal
        self._codec = codec

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._messages

    def __len__(self) -> int:
        return len(self._messages)

    def keep(self, message: SdsMessage, encoded: bytes | None = None) -> None:
        """Keep a message; without its bytes it is encoded when it is asked for."""
        if encoded is not None:
            self.keep_encoded(message.message_id, encoded)
        else:
            estimate = len(message.content or b"") + len(message.bloom_filter or b"")
            self._put(message.message_id, message, estimate + _ENTRY_BYTES * len(message.causal_history))

    def keep_encoded(self, message_id: str, encoded: bytes) -> None:
        """Keep the bytes of a message."""
        self._put(message_id, encoded, len(encoded))

    def encoded(self, message_id: str) -> bytes | None:
        """Return the bytes of a message, if it is kept."""
        kept = self._messages.get(message_id)
        if kept is None:
            return None
        message = kept[0]
        return message if isinstance(message, bytes) else self._codec.encode(message)

    def ids(self) -> list[str]:
        """Return the ids of all kept messages, oldest first."""
        return list(self._messages)

    def _put(self, message_id: str, message: SdsMessage | bytes, size: int) -> None:
        if not self._max_messages or message_id in self._messages:
            return
        self._messages[message_id] = (message, size)
        self._bytes += size
        self._journal.touch(RETAINED, message_id)
        while len(self._messages) > self._max_messages or self._bytes > self._max_bytes:
            oldest, (_, oldest_size) = self._messages.popitem(last=False)
            self._bytes -= oldest_size
            self._journal.touch(RETAINED, oldest)
