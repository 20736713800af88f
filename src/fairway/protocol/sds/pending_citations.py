"""`PendingCitations`: the messages that the next message cites in addition to the newest of the history.

* A message that no message has cited yet. SDS, "Send Message", cites the last few messages of the log. If several
  participants send at the same time, that omits some of their messages. A participant that misses an omitted message
  would never notice it, and its sender stops retransmitting it after one acknowledgement. So the next message cites
  each uncited message once, and every participant that follows the citations finds it. A message counts as cited only
  if the citing message is in the history. Parked messages are not in the history, and this participant does not cite
  them.
* A message that only later segments of other participants' messages have cited. Such a segment may be lost, and parity
  restores its content, but not its citations. So the next message cites that message once more. If the next message is
  segmented, its first segment cites it, and the other segments repeat the citations
  (`fairway.protocol.outgoing.sending`).
* A parked segment of a message that the application has received. A complete message is handed to the application once
  the dependencies of its first segment are met (`fairway.protocol.incoming.undelivered`). Its other segments may still
  wait for theirs. If a reply did not cite them, a participant with only the first segment could deliver the reply
  before the message. The last such segment suffices, because it cites the earlier ones.
* A message that does not vouch, twice, unless all own messages have a filter. Its author seems not to know vouching
  (`fairway.protocol.sds.vouching`), as js-waku: each of its messages needs its own citation. The first such citation
  may be lost, and js-waku repeats its message only half a minute later.
* A message that arrived again. Its sender does not know that this participant has it, and the bloom filter of this
  participant is no proof. Copies from a store do not count: they are old, and a sender that still waits for an
  acknowledgement sends its message again.

SDS, "Send Message", leaves the number of citations to the application and recommends two. If participants send in turn,
no message is added.

After a restart, the uncited messages are found among the retained messages. Without repairs no message is retained, and
each uncited message has a row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Final

from fairway.bounded import BoundedDict
from fairway.protocol.journal import Journal, Row
from fairway.protocol.sds.history import HistoryRecord, LocalHistory
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.segment import SegmentFormat

UNCITED: Final = "uncited"

_MAX_OWED: Final = 1_000
"""Ids kept for each reason; the oldest are dropped beyond it."""
_MAX_HEADS: Final = 100
"""Uncited messages that one content message cites, about 110 bytes each."""
_MAX_PER_MESSAGE: Final = 20
"""Messages that arrived again and that one message cites; also uncited messages that one sync message cites."""
_MAX_ONE_BY_ONE: Final = 100
"""Messages that one message cites because their authors read citations one by one."""
_TIMES: Final = 2
"""Citations of each of them."""
_LARGE_CONTENT_BYTES: Final = 65_536
_CITATION_BYTES_BESIDE_LARGE_CONTENT: Final = 24_576
"""Room for citations beside a full segment of 102,400 bytes, a bloom filter, encryption and a proof in 150 KiB."""


def fitting_beside(content: bytes | None, cited: tuple[HistoryEntry, ...]) -> tuple[HistoryEntry, ...]:
    """Return the newest citations that fit beside content; long sender ids may make a segment too large."""
    if content is None or len(content) <= _LARGE_CONTENT_BYTES:
        return cited
    room = _CITATION_BYTES_BESIDE_LARGE_CONTENT
    for index in range(len(cited) - 1, -1, -1):
        message_id, hint, sender_id = cited[index]
        room -= 12 + len(message_id.encode()) + len(hint or b"") + len((sender_id or "").encode())
        if room < 0:
            return cited[index + 1 :]
    return cited


class PendingCitations:
    """The ids of the messages to cite in addition to the newest."""

    def __init__(self, own_name: str, segments: SegmentFormat, journal: Journal | None = None) -> None:
        """Start without pending citations; uncited messages have rows if ``journal`` is given."""
        self._own_name = own_name
        self._segments = segments
        self._journal = journal
        self._came_again: BoundedDict[str, None] = BoundedDict(_MAX_OWED)
        self._one_by_one: BoundedDict[str, int] = BoundedDict(_MAX_OWED)
        """Remaining citations of messages whose authors read citations one by one."""
        self._uncited: OrderedDict[str, str] = OrderedDict()
        """Messages of the history without a citation, or cited only by later segments of others; id to author."""
        self._cited_amid: BoundedDict[str, None] = BoundedDict(_MAX_OWED)
        """Messages that later segments have cited; another later segment need not cite them."""
        self.read: BoundedDict[str, HistoryRecord] = BoundedDict(_MAX_OWED)
        """Uncited parked segments of messages that the application has received."""

    def __len__(self) -> int:
        """Return the number of messages that arrived again and have not been cited since."""
        return len(self._came_again)

    def copy(self) -> PendingCitations:
        """Return an independent copy."""
        other = PendingCitations(self._own_name, self._segments)
        other._came_again, other._uncited = self._came_again.copy(), self._uncited.copy()
        other._one_by_one = self._one_by_one.copy()
        other._cited_amid, other.read = self._cited_amid.copy(), self.read.copy()
        return other

    @property
    def has_rows(self) -> bool:
        """Whether uncited messages have rows."""
        return self._journal is not None

    @property
    def uncited(self) -> Collection[str]:
        """The messages of the history without a citation, or cited only by later segments of others."""
        return self._uncited.keys()

    def row(self, message_id: str) -> Row | None:
        """Return the row of an uncited message; None if it has none."""
        return () if self.has_rows and message_id in self._uncited else None

    def came_again(self, message_id: str) -> None:
        """Note that another copy of a received message arrived."""
        self._came_again[message_id] = None

    def is_read_one_by_one(self, message_id: str) -> None:
        """Note a message whose author reads a citation as an acknowledgement of the cited message only."""
        self._one_by_one[message_id] = _TIMES

    @property
    def cites_too_few(self) -> bool:
        """Whether a message that needs its own citation has not been cited yet."""
        return _TIMES in self._one_by_one.values()

    def handed_over(self, record: HistoryRecord) -> None:
        """Note a parked segment of a message that the application has received."""
        self.read[record.message_id] = record

    def entered(self, message_id: str, author: str) -> None:
        """Note that a message entered the history; it is uncited."""
        self.read.pop(message_id, None)
        self._uncited[message_id] = author
        self._changed(message_id)
        self._keep_within_bounds()

    def withdrawn(self, message_id: str) -> None:
        """Note that a message was removed from the history."""
        for ids in (self._came_again, self._one_by_one, self._uncited, self._cited_amid, self.read):
            ids.pop(message_id, None)
        self._changed(message_id)

    def cited(self, entries: tuple[HistoryEntry, ...], sender_id: str, content: bytes) -> None:
        """Note the citations of a content message of the history."""
        uncited, read = self._uncited, self.read
        heads = [entry[0] for entry in entries if entry[0] in uncited or (read and entry[0] in read)]
        if not heads:
            return
        of_others = {message_id for message_id in heads if self._uncited.get(message_id) != sender_id}
        if of_others and not self._segments.is_later_segment(content):
            of_others.clear()
        for message_id in heads:
            if message_id not in of_others:
                if self._uncited.pop(message_id, None) is not None:
                    self._changed(message_id)
                self.read.pop(message_id, None)
                self._cited_amid.pop(message_id, None)
            elif self._uncited.get(message_id) != self._own_name:
                # The next segment of its message must still cite an own segment.
                self._cited_amid[message_id] = None

    def rebuild(
        self, messages: Sequence[SdsMessage], cited_by: Callable[[SdsMessage], tuple[HistoryEntry, ...]]
    ) -> None:
        """Determine after a restart which messages are uncited, or cited only by later segments."""
        self._uncited.update((message.message_id, message.sender_id) for message in messages)
        for message in messages:
            self.cited(cited_by(message), message.sender_id, message.content or b"")
        self._keep_within_bounds()

    def _keep_within_bounds(self) -> None:
        while len(self._uncited) > _MAX_OWED:
            self._changed(self._uncited.popitem(last=False)[0])

    def _changed(self, message_id: str) -> None:
        if self._journal is not None:
            self._journal.touch(UNCITED, message_id)

    def select(
        self,
        newest: tuple[HistoryEntry, ...],
        history: LocalHistory,
        beside: tuple[HistoryEntry, ...] = (),
        *,
        content: bytes | None,
    ) -> tuple[HistoryEntry, ...]:
        """Return the citations of the next message: ``beside``, the pending ones, oldest first, and the newest entries.

        ``content`` is the content of the message, None for a sync message. Uncited messages stay uncited until the
        message enters the history, because the message is not sent if its encryption fails. A sync message does not
        enter the history: a participant that misses it cannot get it by repair.
        """
        entries = newest if self._is_enough(newest) else self._with_owed(newest, history, content)
        if beside:
            cited = {entry.message_id for entry in entries}
            # Their hints may have changed: a node may have rejected the WakuMessage of a hint.
            again = (history.entry(entry) for entry in beside if entry.message_id not in cited)
            entries = (*again, *entries)
        return entries

    def _is_enough(self, newest: tuple[HistoryEntry, ...]) -> bool:
        """Return whether no message but the newest is pending, as when participants send in turn."""
        beside = len(self._uncited) - bool(newest and newest[-1].message_id in self._uncited)
        return not self._came_again and not self.read and not beside and not self._one_by_one

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
        # Uncited messages take precedence over repeated ones. The uncited messages include the last one of this sender:
        # a message that cites all of them is ordered after all messages that its sender sent and received.
        heads = reversed(self._uncited) if is_content else list(self._uncited)
        for message_id in heads:
            if len(chosen) >= (_MAX_HEADS if is_content else _MAX_PER_MESSAGE):
                break
            if _choose(message_id, history, chosen, skipped) and not is_content:
                # The next sync message cites others first.
                self._uncited.move_to_end(message_id)
        self._choose_one_by_one(history, chosen, cited)
        full = len(chosen) + _MAX_PER_MESSAGE
        while self._came_again and len(chosen) < full:
            message_id, _ = self._came_again.popitem(last=False)
            _choose(message_id, history, chosen, cited)
        return (*(record.entry for record in sorted(chosen.values())), *newest)

    def _choose_one_by_one(self, history: LocalHistory, chosen: dict[str, HistoryRecord], cited: set[str]) -> None:
        """Choose the messages with the most remaining citations first, and of these the oldest."""
        due = sorted(self._one_by_one.items(), key=lambda item: -item[1])[:_MAX_ONE_BY_ONE]
        for message_id, times in due:
            if times > 1:
                self._one_by_one[message_id] = times - 1
            else:
                del self._one_by_one[message_id]
            _choose(message_id, history, chosen, cited)


def _choose(message_id: str, history: LocalHistory, chosen: dict[str, HistoryRecord], skipped: set[str]) -> bool:
    record = history.get(message_id)
    if record is None or message_id in skipped:
        return False
    chosen[message_id] = record
    return True
