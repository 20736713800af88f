"""`Presence` alone: chances to speak, recent messages, and the bound of its names."""

from __future__ import annotations

from fairway.events import AwayReason, MemberArrived, MemberAway
from fairway.protocol.jitter import Jitter
from fairway.protocol.outgoing.sync_timer import SyncTimer
from fairway.protocol.sds.presence import Presence

INTERVAL_MS = 2_000
HOUR_MS = 3_600_000


def presence_of(*names: str, interval_ms: int = INTERVAL_MS) -> Presence:
    presence = Presence(set(names), 0)
    presence.follow(SyncTimer(lambda: interval_ms, Jitter(b"seed"), 0).turn_ms)
    return presence


def listen(presence: Presence, from_ms: int, to_ms: int, *, content_every_ms: int = 0) -> int:
    """Let time pass in steps of a second, with or without content; return the time."""
    for now_ms in range(from_ms, to_ms, 1_000):
        if content_every_ms and now_ms % content_every_ms == 0:
            presence.content_transmitted(now_ms)
        presence.end_chance(now_ms)
    return to_ms


def test_a_silent_member_goes_away_after_minutes_with_content_and_after_hours_without():
    busy, quiet = presence_of("bob"), presence_of("bob")
    for presence in (busy, quiet):
        presence.heard("bob", 1, 0)
    listen(busy, 0, 60_000, content_every_ms=5_000)
    listen(quiet, 0, HOUR_MS)
    assert busy.is_present("bob")
    assert quiet.is_present("bob")
    listen(busy, 60_000, 200_000, content_every_ms=5_000)
    listen(quiet, HOUR_MS, 4 * HOUR_MS)
    for presence in (busy, quiet):
        assert list(presence.take_events()) == [
            MemberArrived(sender_id="bob"),
            MemberAway(sender_id="bob", reason=AwayReason.SILENT, last_heard_ms=0),
        ]


def test_a_larger_group_gives_each_member_more_time():
    group = presence_of(*(f"member {number}" for number in range(9)))
    for number in range(9):
        group.heard(f"member {number}", 1, 0)
    listen(group, 0, 300_000, content_every_ms=5_000)
    assert group.is_present("member 0")
    listen(group, 300_000, 700_000, content_every_ms=5_000)
    assert not group.is_present("member 0")


def test_without_sync_messages_silence_proves_nothing():
    presence = presence_of("bob", interval_ms=0)
    presence.heard("bob", 1, 0)
    listen(presence, 0, 24 * HOUR_MS, content_every_ms=600_000)
    assert presence.is_present("bob")
    assert not presence.is_away("carol")


def test_a_chance_in_which_the_node_was_offline_does_not_count():
    presence = presence_of("bob")
    presence.heard("bob", 1, 0)
    for now_ms in range(0, HOUR_MS, 60_000):
        presence.content_transmitted(now_ms)
        presence.set_connected(False, now_ms + 5_000)
        presence.content_transmitted(now_ms + 6_000)
        presence.set_connected(True, now_ms + 30_000)
        presence.end_chance(now_ms + 59_000)
    assert presence.is_present("bob")


def test_a_program_that_slept_for_days_counts_one_chance():
    presence = presence_of("bob")
    presence.heard("bob", 1, 0)
    presence.end_chance(100 * HOUR_MS)
    assert presence.is_present("bob")


def test_only_recent_messages_and_first_transmissions_prove_presence():
    presence = presence_of("bob")
    now_ms = 100 * HOUR_MS
    minutes_ago_ms, hours_ago_ms = now_ms - 600_000, now_ms - 2 * HOUR_MS
    assert presence.was_sent_now(None, None, now_ms)
    assert presence.was_sent_now(minutes_ago_ms, None, now_ms)
    assert presence.was_sent_now(minutes_ago_ms, minutes_ago_ms, now_ms)
    assert presence.was_sent_now(now_ms + 600_000, now_ms + 600_000, now_ms)
    assert not presence.was_sent_now(hours_ago_ms, hours_ago_ms, now_ms)
    assert not presence.was_sent_now(now_ms, minutes_ago_ms, now_ms)


def test_a_name_that_is_no_participant_is_not_remembered():
    presence = presence_of("bob")
    for number in range(1_000):
        presence.heard(f"invented {number}", 1, 0)
    assert [member.sender_id for member in presence.members()] == ["bob"]


def test_who_was_never_heard_is_away_only_after_listening_as_long_as_for_a_silent_member():
    presence = presence_of("bob", "carol")
    assert not presence.is_away()
    assert not presence.is_away("carol")
    listen(presence, 0, 200_000, content_every_ms=5_000)
    assert presence.is_away()
    assert presence.is_away("carol")
    presence.heard("bob", 1, 200_000)
    assert not presence.is_away()
    assert presence.is_away("carol")


def test_the_later_timestamp_of_a_goodbye_and_another_message_decides():
    presence = presence_of("bob", "carol")
    presence.heard("bob", 7, 0)
    presence.heard("bob", 5, 1, leaves=True)
    assert presence.is_present("bob")
    presence.heard("bob", 9, 2, leaves=True)
    presence.heard("bob", 8, 3)
    presence.heard("bob", 0, 4)
    assert presence.is_away("bob")
    presence.heard("bob", 10, 5)
    assert presence.is_present("bob")
    presence.heard("carol", 3, 6, leaves=True)
    presence.heard("carol", 2, 7)
    assert presence.is_away("carol")
    assert [type(event).__name__ for event in presence.take_events()] == [
        "MemberArrived",
        "MemberAway",
        "MemberArrived",
    ]
