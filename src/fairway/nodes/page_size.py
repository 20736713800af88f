"""`PageSize`: how many messages a store is asked for at once.

nwaku returns as many messages as it is asked for, of any size: 100 of 150 KiB are 15 MB. A client must not ask for the
same page again after an answer that it cannot read. After an answer that is too long or too late, it asks for half as
many. After a long answer, it asks for as many as make about `WANTED_BYTES`. After a short and quick answer, it asks for
twice as many, if no page failed for a while.
"""

from __future__ import annotations

from typing import Final

from fairway.nodes.message_store import MAX_PAGE_SIZE

WANTED_BYTES: Final = 4_194_304
"""Bytes of an answer that are read at once without harm to memory and to slow connections."""
_QUICK: Final = 0.25
"""Share of the time for an answer, up to which the answer is quick."""
_PAGES_BEFORE_MORE: Final = 8
"""Pages after a failure before more messages are asked for."""


class PageSize:
    """The size of the pages of one store."""

    def __init__(self) -> None:
        self._most = MAX_PAGE_SIZE
        self._since_failure = _PAGES_BEFORE_MORE
        """Pages since one failed, up to `_PAGES_BEFORE_MORE`."""

    def of(self, wanted: int) -> int:
        """Return how many messages to ask for if ``wanted`` are wanted."""
        return min(wanted, self._most)

    def failed(self, asked: int) -> bool:
        """Note that a page was too long or too late; return whether fewer messages can be asked for."""
        self._most, self._since_failure = max(1, asked // 2), 0
        return asked > 1

    def came(self, asked: int, size_bytes: int, time_share: float) -> None:
        """Note a page, its size, and how much of the time for an answer it took (0 to 1)."""
        self._since_failure = min(self._since_failure + 1, _PAGES_BEFORE_MORE)
        is_limited = asked == self._most and self._since_failure == _PAGES_BEFORE_MORE
        if size_bytes > WANTED_BYTES:
            self._most = max(1, asked * WANTED_BYTES // size_bytes)
        elif is_limited and 2 * size_bytes <= WANTED_BYTES and time_share <= _QUICK:
            self._most = min(MAX_PAGE_SIZE, 2 * asked)
