"""Vouching: whether a citation also acknowledges ancestors, and when a message has a bloom filter.

SDS attaches the bloom filter to every message. A filter takes 18,752 bytes, a citation about a hundred. The filter
rarely adds information: a participant delivers a message only after all its ancestors, so a citation implies them. This
participant states that implication in the message and omits the filter:

    A message that vouches (`SdsMessage.vouches`) acknowledges the messages that it cites and all their ancestors.

A missing filter alone does not imply it: another implementation may omit the filter and cite descendants of a message
that it gave up. This participant does not vouch while an own message cites a parked one (`PendingCitations`), because
each later message descends from the parked one. It does not vouch either for `DOUBTFUL_MS` after it skipped a message:
it gave the message up, delivered around it, rebuilt it without its citations, or forgot it. Its messages then
acknowledge only the messages that they cite.
A receiver applies the rule only to own messages made in the last `BELIEVED_MS`. A skipped message is older than the
moment of skipping. The clocks of participants may differ: both times are durations.

A filter is attached if a peer waits for an acknowledgement that citations cannot give. The cases are:

* A copy of a parked message arrived.
* A message was parked whose author reads citations one by one.
* More messages of such authors arrived than one message cites.
* Many copies of old messages arrived (`fairway.protocol.sds.channel`).

docs/decisions/specifications.md, "When a bloom filter is attached".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fairway.options import BloomPolicy
from fairway.protocol.journal import Journal

DOUBTFUL_MS: Final = 7_200_000
"""Time without vouching after a skipped message."""
BELIEVED_MS: Final = 1_800_000
"""Maximum age of an own message that a vouching message acknowledges by the citation of a descendant.

`DOUBTFUL_MS` is longer, because a clock may be set by an hour meanwhile. Older messages are acknowledged one by one."""
_TOLD_TIMES: Final = 2
"""Filters attached after parking a message whose author reads citations one by one: js-waku requires two."""
_NEWS_SPACING_MS: Final = 30_000
"""Minimum time between two requested filters; a sender retransmits at most this often."""


class Vouching:
    """Whether a citation by this participant acknowledges the ancestors, too; and whether a filter is due."""

    def __init__(self, policy: BloomPolicy, journal: Journal, table: str) -> None:
        """Start without a gap; changes touch the row of ``table`` with the empty key."""
        self._policy = policy
        self._journal = journal
        self._table = table
        self.doubtful_since_ms: int | None = None
        """When this participant last skipped a message, in Unix milliseconds; None if it never did."""
        self.lacking: tuple[str, ...] = ()
        """Parked messages that own messages cite; their ancestors may be missing here."""
        self._has_news = False
        self._filters_due = 0
        self._attached_ms: int | None = None

    def note_parked_ancestor(self, message_ids: Iterable[str]) -> None:
        """Note parked messages that an own message of the history cites: each later own message descends from them."""
        new = tuple(message_id for message_id in message_ids if message_id not in self.lacking)
        if new:
            self.lacking += new
            self._journal.touch(self._table, "")

    def review_lacking(self, is_here: Callable[[str], bool], is_parked: Callable[[str], bool], now_ms: int) -> None:
        """Remove the parked ancestors that entered the history; an ancestor that was dropped instead is a gap."""
        if not self.lacking:
            return
        left = tuple(message_id for message_id in self.lacking if not is_here(message_id))
        self.lacking, before = tuple(message_id for message_id in left if is_parked(message_id)), self.lacking
        if self.lacking != before:
            self._journal.touch(self._table, "")
        if self.lacking != left:
            self.note_gap(now_ms)

    def note_gap(self, now_ms: int) -> None:
        """Note that this participant skipped a message, or an ancestor of a message."""
        self.doubtful_since_ms = now_ms
        self._journal.touch(self._table, "")

    def filter_requested(self) -> None:
        """Note that a peer waits for an acknowledgement that no citation gives."""
        self._has_news = True

    def want_filter(self) -> None:
        """Plan filters for a parked message whose author reads citations one by one."""
        self._filters_due = _TOLD_TIMES

    def vouches(self, now_ms: int, *, is_incomplete: bool) -> bool:
        """Return whether this participant has all ancestors of the message that it makes now.

        ``is_incomplete``: the message cites a message whose ancestors may be missing here.
        """
        return not (is_incomplete or self.lacking or self._is_doubtful(now_ms))

    def attaches(self, now_ms: int) -> bool:
        """Return whether the message that is made now has a bloom filter, and count that filter."""
        if self._policy is BloomPolicy.ALWAYS:
            return self._attach(now_ms)
        if self._policy is BloomPolicy.NEVER:
            return False
        if self._filters_due:
            return self._attach(now_ms)
        if not self._has_news:
            return False
        attached_ms = self._attached_ms
        is_soon = attached_ms is not None and attached_ms <= now_ms < attached_ms + _NEWS_SPACING_MS
        return not is_soon and self._attach(now_ms)

    def _is_doubtful(self, now_ms: int) -> bool:
        since_ms = self.doubtful_since_ms
        if since_ms is None:
            return False
        if since_ms > now_ms:
            # The clock was set back: the time starts over, so that it neither ends too early nor lasts for ever.
            self.note_gap(now_ms)
            return True
        return now_ms < since_ms + DOUBTFUL_MS

    def _attach(self, now_ms: int) -> bool:
        self._has_news = False
        self._filters_due = max(0, self._filters_due - 1)
        self._attached_ms = now_ms
        return True
