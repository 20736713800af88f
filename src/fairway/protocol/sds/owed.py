"""Citations beside the newest messages of the history: what else the next message should cite, and why.

* A message that nobody has cited yet. When several participants send at once, only the newest few of their messages are
  ever cited as such (SDS spec, "Send Message": the last few of the log); whoever misses one of the others would never
  notice, and once somebody has acknowledged it, its author sends it no more. So each is cited once, by whoever speaks
  next, and from then on everybody who follows the citations comes upon it. Only what is in the history itself counts as
  having cited: what still waits is cited by nobody here, so that ours could be delivered elsewhere before either.
* A segment that waits, of a message that the application was handed, which waits only for what its first segment does
  (`fairway.protocol.inbound`). Else a reply could be delivered before that message, to whoever has only the first. The
  last such segment suffices, for it cites those before it.
* A message that came again: its sender plainly does not know that we have it, and a bloom filter is no proof.

The spec allows it ("MAY be more" than the recommended two). Where participants speak in turn, nothing is added.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Final, TypeVar

from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.wire.sds import HistoryEntry

_T = TypeVar("_T")

_MAX_OWED: Final = 1_000
"""Ids remembered for each reason; beyond it the oldest are forgotten."""
_MAX_HEADS: Final = 100
"""Messages without a successor that one content message cites, some 110 bytes each."""
_MAX_PER_MESSAGE: Final = 20
"""Messages that came again that one message cites, and heads that a sync message does."""
_LARGE_CONTENT_BYTES: Final = 65_536
_CITATION_BYTES_BESIDE_LARGE_CONTENT: Final = 24_576
"""What a full segment of 102,400 bytes and a bloom filter leave of 150 KiB, less what encryption and a proof take."""


def fitting_beside(content: bytes | None, cited: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return the newest citations that fit: strangers' long names must not make a full segment too large to send."""
    if content is None or len(content) <= _LARGE_CONTENT_BYTES:
        return cited
    room = _CITATION_BYTES_BESIDE_LARGE_CONTENT
    for index in range(len(cited) - 1, -1, -1):
        message_id, hint, sender_id = cited[index]
        room -= 12 + len(message_id.encode()) + len(hint or b"") + len((sender_id or "").encode())
        if room < 0:
            return cited[index + 1 :]
    return cited


class OwedCitations:
    """Ids of messages to cite beside the newest."""

    def __init__(self) -> None:
        self._came_again: OrderedDict[str, None] = OrderedDict()
        self._uncited: OrderedDict[str, None] = OrderedDict()
        self.read: OrderedDict[str, HistoryRecord] = OrderedDict()
        """Segments of messages that were handed over, which have not entered the history yet and are not cited."""

    def __len__(self) -> int:
        """Return how many messages that came again are not cited since."""
        return len(self._came_again)

    def came_again(self, message_id: str) -> None:
        """Note that a copy of a message came that was received before."""
        _remember(self._came_again, message_id, None)

    def handed_over(self, record: HistoryRecord) -> None:
        """Note a segment that waits although its message was handed to the application."""
        _remember(self.read, record.message_id, record)

    def entered(self, message_id: str) -> None:
        """Note that a message entered the history, which nobody has cited yet."""
        self.read.pop(message_id, None)
        _remember(self._uncited, message_id, None)

    def cited(self, entries: tuple[HistoryEntry, ...]) -> None:
        """Note what a content message of the history cites, whoever sent it: each is known to have a successor."""
        for ids in (self._uncited, self.read):
            for entry in reversed(entries):
                if not ids:
                    break
                ids.pop(entry[0], None)

    def pay(
        self,
        newest: tuple[HistoryEntry, ...],
        history: LocalHistory,
        beside: tuple[HistoryEntry, ...] = (),
        *,
        is_content: bool,
    ) -> tuple[HistoryEntry, ...]:
        """Return what the next message cites: ``beside``, what is owed, oldest first, and the newest entries.

        It settles nothing about what is uncited: a content message does so when it enters the history, for what cannot
        be sealed never leaves; and a sync message never does, for no repair brings it to whoever misses it.
        """
        entries = newest if self._is_enough(newest) else self._with_owed(newest, history, is_content=is_content)
        if beside:
            cited = {entry.message_id for entry in entries}
            entries = (*(entry for entry in beside if entry.message_id not in cited), *entries)
        return entries

    def _is_enough(self, newest: tuple[HistoryEntry, ...]) -> bool:
        """Return whether all that is owed is the newest message, as when participants speak in turn."""
        beside = len(self._uncited) - bool(newest and newest[-1].message_id in self._uncited)
        return not self._came_again and not self.read and not beside

    def _with_owed(
        self, newest: tuple[HistoryEntry, ...], history: LocalHistory, *, is_content: bool
    ) -> tuple[HistoryEntry, ...]:
        chosen: dict[str, HistoryRecord] = {}
        skipped = {entry.message_id for entry in newest}
        if is_content:
            chosen.update(islice(reversed(self.read.items()), _MAX_PER_MESSAGE))
        # Heads come first: a message is ordered after all that its sender had sent or read only if it cites every head
        # of that, of which his own last message is one.
        heads = reversed(self._uncited) if is_content else list(self._uncited)
        for message_id in heads:
            if len(chosen) >= (_MAX_HEADS if is_content else _MAX_PER_MESSAGE):
                break
            if _choose(message_id, history, chosen, skipped) and not is_content:
                # The next sync message begins with others.
                self._uncited.move_to_end(message_id)
        full = len(chosen) + _MAX_PER_MESSAGE
        while self._came_again and len(chosen) < full:
            message_id, _ = self._came_again.popitem(last=False)
            _choose(message_id, history, chosen, skipped)
        return (*(record.entry for record in sorted(chosen.values())), *newest)


def _remember(ids: OrderedDict[str, _T], message_id: str, value: _T) -> None:
    ids[message_id] = value
    if len(ids) > _MAX_OWED:
        ids.popitem(last=False)


def _choose(message_id: str, history: LocalHistory, chosen: dict[str, HistoryRecord], skipped: set[str]) -> bool:
    record = history.get(message_id)
    if record is None or message_id in skipped:
        return False
    chosen[message_id] = record
    return True
