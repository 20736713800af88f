"""What the citations of this participant vouch for, and when its messages need a bloom filter.

SDS attaches the bloom filter to every message. That is 18,752 bytes beside a citation of a hundred, and nearly always
it tells nothing that the citation does not: a participant delivers a message only after all that the message descends
from, so that who cites a message has all of that. In place of the filter this participant says so:

    A message that vouches (`SdsMessage.vouches`) acknowledges what it cites, and all that this descends from.

A message without filter does not say it by itself: another implementation may omit the filter and cite descendants of a
message that it gave up. This participant does not vouch while an own message cites a parked one (`PendingCitations`),
because each later message descends from that. It does not vouch either for `DOUBTFUL_MS` after it skipped a message: it
gave the message up, delivered around it, rebuilt it without its citations, or forgot it. Its messages then acknowledge
only what they cite.
A receiver believes the rule only of own messages made in the last `BELIEVED_MS`. A skipped message is older than the
moment of skipping. Clocks need not agree: both times are spans.

The filter is news where something was received that citations cannot tell of, and somebody waits to hear of it: a copy
came of a message that is parked, a message was parked whose author reads citations one by one, or more of such messages
came than one message cites.

docs/decisions/specifications.md, "When a bloom filter is attached".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from fairway.options import BloomPolicy
from fairway.protocol.journal import Journal

DOUBTFUL_MS: Final = 7_200_000
"""How long a participant does not vouch after it skipped a message."""
BELIEVED_MS: Final = 1_800_000
"""How old an own message may be that is acknowledged by a message which cites a descendant and vouches.

The difference leaves room for clocks that are set by an hour meanwhile. Older ones are acknowledged one by one."""
_TOLD_TIMES: Final = 2
"""Filters that tell of a message which was parked and whose author reads citations one by one: js-waku believes two."""
_NEWS_SPACING_MS: Final = 30_000
"""Between two filters that are attached because somebody waits; a sender repeats no sooner."""


class Vouching:
    """Whether what this participant cites stands for all that it descends from."""

    def __init__(self, policy: BloomPolicy, journal: Journal, table: str) -> None:
        """Vouch for everything; the row of ``table`` without a key is noted as changed when that ends."""
        self._policy = policy
        self._journal = journal
        self._table = table
        self.doubtful_since_ms: int | None = None
        """When this participant last went without a message, in Unix milliseconds; None if it never did."""
        self.lacking: tuple[str, ...] = ()
        """Parked messages that own messages cite: what these descend from may be missing here."""
        self._has_news = False
        self._filters_due = 0
        self._attached_ms: int | None = None

    def note_parked_ancestor(self, message_ids: Iterable[str]) -> None:
        """Note parked messages that an own message of the history cites, and so each later one descends from."""
        new = tuple(message_id for message_id in message_ids if message_id not in self.lacking)
        if new:
            self.lacking += new
            self._journal.touch(self._table, "")

    def review_lacking(self, is_here: Callable[[str], bool], is_parked: Callable[[str], bool], now_ms: int) -> None:
        """Forget those that entered the history. One that is neither there nor parked is gone for good."""
        if not self.lacking:
            return
        left = tuple(message_id for message_id in self.lacking if not is_here(message_id))
        self.lacking, before = tuple(message_id for message_id in left if is_parked(message_id)), self.lacking
        if self.lacking != before:
            self._journal.touch(self._table, "")
        if self.lacking != left:
            self.note_gap(now_ms)

    def note_gap(self, now_ms: int) -> None:
        """Note that this participant goes on without a message, or without what that descends from."""
        self.doubtful_since_ms = now_ms
        self._journal.touch(self._table, "")

    def filter_requested(self) -> None:
        """Note that somebody waits to hear of something received that no citation tells of."""
        self._has_news = True

    def want_filter(self) -> None:
        """Note that a message was parked whose author reads citations one by one, and so waits for a filter."""
        self._filters_due = _TOLD_TIMES

    def vouches(self, now_ms: int, *, is_incomplete: bool) -> bool:
        """Return whether this participant has all that a message descends from which it makes now.

        ``is_incomplete``: the message cites something of which this participant may lack what it descends from.
        """
        return not (is_incomplete or self.lacking or self._is_doubtful(now_ms))

    def attaches(self, now_ms: int) -> bool:
        """Return whether the message that is made now has a bloom filter, and note it if so."""
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
            # The clock was set back: the time begins anew, so that it neither ends early nor lasts for ever.
            self.note_gap(now_ms)
            return True
        return now_ms < since_ms + DOUBTFUL_MS

    def _attach(self, now_ms: int) -> bool:
        self._has_news = False
        self._filters_due = max(0, self._filters_due - 1)
        self._attached_ms = now_ms
        return True
