"""Counts that are told at most once a minute."""

from __future__ import annotations

from fairway.events import MessagesUndecryptable, SenderIdInUse
from fairway.protocol.notices import NOTICE_PAUSE_MS, Notices
from fairway.protocol.statistics import Tally

START_MS = 1_760_000_000_000


def test_the_first_is_told_at_once_and_further_ones_together_a_minute_later():
    tally = Tally()
    notices = Notices(tally)
    assert notices.take(START_MS) == []
    assert notices.next_deadline() is None
    tally.add("undecryptable")
    tally.add("sender_id_in_use")
    assert notices.take(START_MS) == [MessagesUndecryptable(count=1, opened=0), SenderIdInUse(count=1)]
    for _ in range(5):
        tally.add("undecodable")
    tally.add("opened")
    assert notices.take(START_MS + 1) == []
    assert notices.next_deadline() == START_MS + NOTICE_PAUSE_MS
    assert notices.take(START_MS + NOTICE_PAUSE_MS) == [MessagesUndecryptable(count=5, opened=1)]
    assert notices.next_deadline() is None
