"""Messages that are kept in full to answer repair requests (SDS, "SDS Repair (SDS-R)").

Their number and their bytes are bounded; the oldest are evicted first. An answer is the original message, byte for
byte.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from fairway.protocol.journal import Journal, Row
from fairway.wire.sds import SdsMessage

RETAINED: Final = "retained"
MAX_RETAINED: Final = 1_000
_MAX_BYTES: Final = 33_554_432


class Retained(NamedTuple):
    """A kept message."""

    order: int
    """Number among all messages ever kept; stored, so that the order survives a restart."""
    encoded: bytes


class RetainedMessages:
    """The newest messages, by id."""

    def __init__(self, journal: Journal, encode: Callable[[SdsMessage], bytes], *, enabled: bool) -> None:
        self._messages: OrderedDict[str, Retained] = OrderedDict()
        self._bytes = 0
        self._order = 0
        self._enabled = enabled
        self._journal = journal
        self._encode = encode

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids, oldest first."""
        return iter(self._messages)

    def keep(self, message: SdsMessage, encoded: bytes | None = None) -> None:
        """Keep a message; without ``encoded``, it is encoded here."""
        if not self._enabled or message.message_id in self._messages:
            return
        self._journal.touch(RETAINED, message.message_id)
        self.keep_again(message.message_id, self._order + 1, encoded or self._encode(message))

    def forget(self, message_id: str) -> None:
        """Remove a message."""
        gone = self._messages.pop(message_id, None)
        if gone is not None:
            self._bytes -= len(gone.encoded)
            self._journal.touch(RETAINED, message_id)

    def keep_again(self, message_id: str, order: int, encoded: bytes) -> None:
        """Keep a message under its stored ``order``; the caller restores the oldest first."""
        self._messages[message_id] = Retained(order, encoded)
        self._order = order
        self._bytes += len(encoded)
        while len(self._messages) > (MAX_RETAINED if self._enabled else 0) or self._bytes > _MAX_BYTES:
            oldest, gone = self._messages.popitem(last=False)
            self._bytes -= len(gone.encoded)
            self._journal.touch(RETAINED, oldest)

    def encoded(self, message_id: str) -> bytes | None:
        """Return the bytes of a kept message, or None."""
        kept = self._messages.get(message_id)
        return None if kept is None else kept.encoded

    def row(self, message_id: str) -> Row | None:
        """Return the row of a kept message, its number and its bytes; or None."""
        return self._messages.get(message_id)

    def order(self, message_id: str) -> int:
        """Return the number of a kept message among all messages ever kept."""
        return self._messages[message_id].order
