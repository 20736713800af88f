"""`OwedCitations`: the messages that the next message should cite beside the newest of the history.

* A message that no message has cited yet. When several participants send at the same time, only the newest few of their
  messages are cited by the rule of SDS, "Send Message" (the last few of the log). A participant that misses one of the
  others would never notice, and once another one has acknowledged it, its sender does not send it again. So the next
  message cites each of them once, and every participant that follows the citations finds it. Only citations of messages
  in the history count. A message that still waits is not cited by this participant, so that its own message could be
  delivered elsewhere before both.
* A message that only later segments of other participants' messages have cited. Parity may replace such a segment; it
  restores the content of a lost segment, not its citations. So the next message cites it once more, a segmented one
  with its first segment, whose citations the others repeat (`fairway.protocol.outgoing.sending`).
* A segment that waits, of a message that the application has received, because that waits only for the dependencies of
  its first segment (`fairway.protocol.incoming.delivering`). Otherwise a participant with only the first segment could
  deliver a reply before that message. The last such segment suffices, because it cites those before it.
* A message that arrived again: its sender does not know that this participant has it, and a bloom filter is no proof.
  Copies in a store are old, and a program that starts reads those of the last ten minutes; they are not cited, because
  a sender that still waits for an acknowledgement sends its message again.

SDS, "Send Message", leaves the number of citations to the application and recommends two. If participants send in turn,
none is added.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, TypeVar

from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.segment import SegmentFormat

_T = TypeVar("_T")

_MAX_OWED: Final = 1_000
"""Ids that are kept for each of these reasons; beyond it the oldest are dropped."""
_MAX_HEADS: Final = 100
"""Messages without a successor that one content message cites, some 110 bytes each."""
_MAX_PER_MESSAGE: Final = 20
"""Repeated messages that one message cites, and messages without a successor that a sync message cites."""
_LARGE_CONTENT_BYTES: Final = 65_536
_CITATION_BYTES_BESIDE_LARGE_CONTENT: Final = 24_576
"""Room for citations beside a full segment of 102,400 bytes, a bloom filter, encryption and a proof in 150 KiB."""


def fitting_beside(content: bytes | None, cited: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return the newest citations that fit: long sender ids of others must not make a segment too large to send."""
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
    """The ids of the messages to cite beside the newest."""

    def __init__(self, own_name: str, segments: SegmentFormat) -> None:
        self._own_name = own_name
        self._segments = segments
        self._came_again: OrderedDict[str, None] = OrderedDict()
        self._uncited: OrderedDict[str, str] = OrderedDict()
        """Their authors by id."""
        self._cited_amid: OrderedDict[str, None] = OrderedDict()
        """Those that later segments cite: no other of these needs to."""
        self.read: OrderedDict[str, HistoryRecord] = OrderedDict()
        """Segments of messages that were handed over, which have not entered the history yet and are not cited."""

    def __len__(self) -> int:
        """Return the number of repeated messages that have not been cited since."""
        return len(self._came_again)

    def copy(self) -> OwedCitations:
        """Return an independent copy."""
        other = OwedCitations(self._own_name, self._segments)
        other._came_again, other._uncited = self._came_again.copy(), self._uncited.copy()
        other._cited_amid, other.read = self._cited_amid.copy(), self.read.copy()
        return other

    @property
    def uncited(self) -> tuple[str, ...]:
        """The messages of the history that the next message is to cite, since nobody has for good."""
        return tuple(self._uncited)

    def came_again(self, message_id: str) -> None:
        """Note that another copy of a received message arrived."""
        _remember(self._came_again, message_id, None)

    def handed_over(self, record: HistoryRecord) -> None:
        """Note a segment that waits although the application has received its message."""
        _remember(self.read, record.message_id, record)

    def entered(self, message_id: str, author: str) -> None:
        """Note that a message entered the history, which no message has cited yet."""
        self.read.pop(message_id, None)
        _remember(self._uncited, message_id, author)

    def cited(self, entries: tuple[HistoryEntry, ...], sender_id: str, content: bytes) -> None:
        """Note the citations of a content message of the history: the cited messages have a successor."""
        heads = [entry[0] for entry in entries if entry[0] in self._uncited or entry[0] in self.read]
        of_others = {message_id for message_id in heads if self._uncited.get(message_id) != sender_id}
        if of_others and not self._segments.is_later_segment(content):
            of_others.clear()
        for message_id in heads:
            if message_id not in of_others:
                self._uncited.pop(message_id, None)
                self.read.pop(message_id, None)
                self._cited_amid.pop(message_id, None)
            elif self._uncited.get(message_id) != self._own_name:
                # An own segment still has to be cited by the next one of its message.
                _remember(self._cited_amid, message_id, None)

    def rebuild(
        self, messages: Sequence[SdsMessage], cited_by: Callable[[SdsMessage], tuple[HistoryEntry, ...]]
    ) -> None:
        """Compute again which content messages of the history are uncited, and which only later segments cite."""
        self._uncited.update((message.message_id, message.sender_id) for message in messages)
        for message in messages:
            self.cited(cited_by(message), message.sender_id, message.content or b"")
        while len(self._uncited) > _MAX_OWED:
            self._uncited.popitem(last=False)

    def pay(
        self,
        newest: tuple[HistoryEntry, ...],
        history: LocalHistory,
        beside: tuple[HistoryEntry, ...] = (),
        *,
        content: bytes | None,
    ) -> tuple[HistoryEntry, ...]:
        """Return what the next message cites: ``beside``, what is owed, oldest first, and the newest entries.

        ``content`` is what it says, None for a sync message. This settles nothing about what is uncited: a content
        message does so when it enters the history, for what cannot be sealed never leaves; and a sync message never
        does, for no repair brings it to whoever misses it.
        """
        entries = newest if self._is_enough(newest) else self._with_owed(newest, history, content)
        if beside:
            cited = {entry.message_id for entry in entries}
            # Since they were first cited a node may have refused what a hint leads to.
            again = (history.entry(entry) for entry in beside if entry.message_id not in cited)
            entries = (*again, *entries)
        return entries

    def _is_enough(self, newest: tuple[HistoryEntry, ...]) -> bool:
        """Return whether only the newest message is owed, as when participants send in turn."""
        beside = len(self._uncited) - bool(newest and newest[-1].message_id in self._uncited)
        return not self._came_again and not self.read and not beside

    def _with_owed(
        self, newest: tuple[HistoryEntry, ...], history: LocalHistory, content: bytes | None
    ) -> tuple[HistoryEntry, ...]:
        chosen: dict[str, HistoryRecord] = {}
        cited = {entry.message_id for entry in newest}
        skipped = set(cited)
        is_content = content is not None
        if content is not None:
            if self._cited_amid and self._segments.is_later_segment(content):
                skipped.update(self._cited_amid)
            read = (item for item in reversed(self.read.items()) if item[0] not in skipped)
            chosen.update(islice(read, _MAX_PER_MESSAGE))
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
            _choose(message_id, history, chosen, cited)
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
