"""What is wrong with a message that leaves is said, and nothing is said of what is right."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Final

import pytest

from fairway.options import BloomPolicy, Profile, RateLimitConfig, SdsConfig, SegmentationConfig
from fairway.protocol.effects import Change
from fairway.protocol.outgoing.dispatching import RATE_LIMIT
from fairway.protocol.outgoing.requests import SEGMENTS
from fairway.protocol.ratelimit.quota import Quota
from fairway.protocol.sds.channel import HISTORY, MessageChannel
from fairway.protocol.sds.dependencies import PARKED
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.simulation.wire_rules import RATE_EPOCH_MS, WireRules
from fairway.wire.sds import HistoryEntry, SdsMessage
from fairway.wire.segment import WAKU_SEGMENTS

_NOW_MS: Final = 1_760_000_000_000


class _Watched:
    """A participant whose messages are looked at."""

    def __init__(self) -> None:
        config = SdsConfig(bloom_policy=BloomPolicy.ALWAYS)
        self.rules = WireRules(Profile.WAKU, config)
        self.sds = MessageChannel("harbour", "alice", config, now_ms=_NOW_MS)
        self.on_disk: dict[tuple[str, str], Change] = {}

    def hand_over(self, message: SdsMessage, at_ms: int = _NOW_MS, ahead_ms: int = 0) -> list[str]:
        """Return what is wrong with a message of somebody whose clock is so much ahead."""
        plain = Profile.WAKU.codec.encode(message)
        stamp_ns = (at_ms + ahead_ms) * 1_000_000
        return list(self.rules.faults(at_ms, "alice", message, plain, self.hash_of(message), stamp_ns))

    @staticmethod
    def hash_of(message: SdsMessage) -> bytes:
        return hashlib.sha256(message.message_id.encode()).digest()

    def make(self, content: bytes, at_ms: int = _NOW_MS) -> SdsMessage:
        """Return a message that is kept, and may be cited from now on."""
        message = self.sds.send(content, at_ms)
        self.sds.broadcast(message, self.hash_of(message))
        segment = ("a request", 0, False, 0, None, False, (), False)
        rows = {SEGMENTS: segment, HISTORY: (message.lamport_timestamp,)}
        changes = [Change(table=table, key=message.message_id, row=row) for table, row in rows.items()]
        self.keep(changes, at_ms)
        return message

    def keep(self, changes: list[Change], at_ms: int = _NOW_MS) -> None:
        """Give changes to the store, which has written them at once."""
        self.rules.kept(at_ms, "alice", changes)
        self.rules.written("alice", changes)
        self.on_disk |= {(change.table, change.key): change for change in changes}

    def restart(self) -> None:
        """Begin a new life with what is on the disk."""
        self.rules.began("alice")
        self.rules.restored("alice", [change for change in self.on_disk.values() if change.row is not None])


def test_nothing_is_wrong_with_what_a_channel_makes() -> None:
    watched = _Watched()

    assert [fault for number in range(100) for fault in watched.hand_over(watched.make(b"%d" % number))] == []


def test_a_filter_that_lacks_what_is_cited_is_noticed() -> None:
    watched = _Watched()
    first, second = watched.make(b"one"), watched.make(b"two")

    assert watched.hand_over(first) == []
    (fault,) = watched.hand_over(replace(second, bloom_filter=bytes(len(second.bloom_filter or b""))))
    assert "its bloom filter lacks it" in fault


def test_a_sync_message_without_the_newest_that_its_sender_has_is_noticed() -> None:
    watched = _Watched()
    for content in (b"one", b"two", b"three"):
        watched.hand_over(watched.make(content))
    sync, other = watched.sds.send_sync(_NOW_MS + 60_000), watched.sds.send_sync(_NOW_MS + 61_000)
    assert sync is not None
    assert other is not None

    assert watched.hand_over(sync, _NOW_MS + 60_000) == []
    (fault,) = watched.hand_over(replace(other, causal_history=other.causal_history[:-1]), _NOW_MS + 61_000)
    assert f"it does not cite {other.causal_history[-1].message_id[:12]}" in fault


def test_a_sync_message_that_goes_again_need_not_cite_what_came_since_it_was_made() -> None:
    watched = _Watched()
    watched.hand_over(watched.make(b"one"))
    sync = watched.sds.send_sync(_NOW_MS + 60_000)
    late = watched.sds.send_sync(_NOW_MS + 61_000)
    assert sync is not None
    assert late is not None

    assert watched.hand_over(sync, _NOW_MS + 60_000) == []
    newest = watched.make(b"two", _NOW_MS + 62_000)
    assert watched.hand_over(sync, _NOW_MS + 180_000) == []
    assert any(newest.message_id[:12] in fault for fault in watched.hand_over(late, _NOW_MS + 180_000))


@pytest.mark.parametrize(("pause_ms", "is_too_much"), [(1_000, True), (20_000, False)])
def test_one_sync_message_after_the_other_is_too_much(pause_ms: int, is_too_much: bool) -> None:
    watched = _Watched()
    watched.hand_over(watched.make(b"one"))
    times_ms = [_NOW_MS + number * pause_ms for number in range(90)]
    syncs = [(at_ms, watched.sds.send_sync(at_ms)) for at_ms in times_ms]

    faults = [fault for at_ms, sync in syncs if sync is not None for fault in watched.hand_over(sync, at_ms)]
    assert any("it is a sync message" in fault for fault in faults) is is_too_much


@pytest.mark.parametrize(("ahead_ms", "is_too_much"), [(0, True), (300_000, False)])
def test_time_by_which_a_clock_was_set_ahead_counts_towards_sync_messages(ahead_ms: int, is_too_much: bool) -> None:
    watched = _Watched()
    watched.hand_over(watched.make(b"one"))
    faults = []
    for number in range(40):
        sync = watched.sds.send_sync(_NOW_MS + number * 1_000)
        assert sync is not None
        faults += watched.hand_over(sync, _NOW_MS + number * 1_000, ahead_ms if number > 20 else 0)
    assert any("it is a sync message" in fault for fault in faults) is is_too_much


@pytest.mark.parametrize(("copies", "is_too_much"), [(90, False), (1, True)])
def test_who_hears_much_under_other_hashes_may_say_much(copies: int, is_too_much: bool) -> None:
    watched = _Watched()
    watched.hand_over(watched.make(b"one"))
    faults = []
    for number in range(90):
        at_ms = _NOW_MS + number * 1_000
        watched.rules.heard_restamped("alice", "said by bob", b"%d" % (number % copies))
        sync = watched.sds.send_sync(at_ms)
        assert sync is not None
        faults += watched.hand_over(sync, at_ms)
    assert any("it is a sync message" in fault for fault in faults) is is_too_much


def test_a_restarted_filter_needs_only_what_stands_last_in_the_log() -> None:
    watched = _Watched()
    early, *rest = [watched.make(b"%d" % number) for number in range(150)]
    watched.keep([Change(table=HISTORY, key="old, and came of late", row=(1,))])
    newest = replace(rest[-1], bloom_filter=bytes(len(early.bloom_filter or b"")))
    cited = replace(newest, causal_history=(HistoryEntry("old, and came of late"), newest.causal_history[-1]))

    assert len(watched.hand_over(replace(cited, message_id="before"))) == 2
    watched.restart()
    (fault,) = watched.hand_over(replace(cited, message_id="after"))
    assert newest.causal_history[-1].message_id[:12] in fault


def test_a_filter_that_is_full_of_what_waits_need_not_hold_the_log_after_a_restart() -> None:
    watched = _Watched()
    first, second = watched.make(b"one"), watched.make(b"two")
    empty = bytes(len(second.bloom_filter or b""))
    cited = replace(second, causal_history=(HistoryEntry(first.message_id),), bloom_filter=empty)
    waiting = range(SdsConfig().bloom_capacity)
    changes = [Change(table=PARKED, key=f"waits {number}", row=(number,)) for number in waiting]

    assert len(watched.hand_over(replace(cited, message_id="before"))) == 1
    watched.keep(changes)
    watched.restart()
    assert watched.hand_over(replace(cited, message_id="after")) == []


def test_what_came_of_late_and_stands_early_in_the_log_leaves_a_restarted_filter_sooner() -> None:
    watched = _Watched()
    late = [Change(table=HISTORY, key="old, and came of late", row=(1,))]
    early = [watched.make(b"%d" % number) for number in range(60)]
    watched.keep(late)
    watched.restart()
    empty = bytes(len(early[-1].bloom_filter or b""))
    cited = replace(early[-1], causal_history=(HistoryEntry("old, and came of late"),), bloom_filter=empty)

    assert len(watched.hand_over(replace(cited, message_id="before"))) == 1
    last = [watched.make(b"%d, later" % number) for number in range(40)][-1]
    cited = replace(cited, lamport_timestamp=last.lamport_timestamp)
    assert watched.hand_over(replace(cited, message_id="after")) == []


def test_another_word_under_the_same_id_is_noticed() -> None:
    watched = _Watched()
    message = watched.make(b"one")
    watched.hand_over(message)

    assert watched.hand_over(message) == []
    assert any("something else" in fault for fault in watched.hand_over(replace(message, content=b"two")))


def test_what_leaves_out_of_order_is_noticed() -> None:
    watched = _Watched()
    first, second = watched.make(b"one"), watched.make(b"two")
    watched.hand_over(second)

    assert any("leaves after what was made later" in fault for fault in watched.hand_over(first))


@pytest.mark.parametrize("is_durable", [True, False])
def test_what_an_earlier_life_tried_in_vain_is_sent_again_after_what_was_made_later(is_durable: bool) -> None:
    watched = _Watched()
    first, second = watched.make(b"one"), watched.make(b"two")
    watched.hand_over(first)
    tried = Change(table=SEGMENTS, key=first.message_id, row=("a request", 0, False, 1, None, False, (), False))
    watched.rules.kept(_NOW_MS, "alice", [tried])
    watched.rules.written("alice", [tried] if is_durable else [])
    watched.restart()
    watched.hand_over(second)

    assert any("leaves after what was made later" in fault for fault in watched.hand_over(first)) is not is_durable


def test_a_segment_whose_send_has_ended_leaves_when_somebody_asks_for_it() -> None:
    watched = _Watched()
    first, second = watched.make(b"one"), watched.make(b"two")
    watched.hand_over(second)
    watched.rules.kept(_NOW_MS, "alice", [Change(table=SEGMENTS, key=first.message_id, row=None)])

    assert watched.hand_over(first) == []


def test_what_overtakes_something_refused_is_noticed() -> None:
    watched = _Watched()
    first, second = watched.make(b"one"), watched.make(b"two")
    watched.hand_over(first)
    watched.rules.refused(_NOW_MS, "alice", watched.hash_of(first))

    assert any("refused once" in fault for fault in watched.hand_over(second, _NOW_MS + 2_000))
    assert watched.hand_over(first, _NOW_MS + 2_000) == []
    assert watched.hand_over(second, _NOW_MS + 2_000) == []


@pytest.mark.parametrize("hangs", [True, False])
def test_what_was_made_before_a_refusal_and_waits_behind_an_answer_that_hangs_overtakes_by_right(hangs: bool) -> None:
    watched = _Watched()
    watched.rules.answers_hang = hangs
    first, second, third = watched.make(b"one"), watched.make(b"two"), watched.make(b"three", _NOW_MS + 2)
    watched.hand_over(first)
    watched.rules.refused(_NOW_MS + 1, "alice", watched.hash_of(first))

    assert any("refused once" in fault for fault in watched.hand_over(second, _NOW_MS + 2_000)) is not hangs
    assert any("refused once" in fault for fault in watched.hand_over(third, _NOW_MS + 2_000))


def test_what_waits_for_a_slow_disk_while_something_is_refused_overtakes_it_by_right() -> None:
    watched = _Watched()
    watched.rules.disk_ms = 3_000
    first, second, third = (watched.make(content) for content in (b"one", b"two", b"three"))
    watched.hand_over(first)
    watched.rules.refused(_NOW_MS, "alice", watched.hash_of(first))

    assert watched.hand_over(second, _NOW_MS + 2_000) == []
    assert any("refused once" in fault for fault in watched.hand_over(third, _NOW_MS + 10_000))


def test_a_hint_that_leads_to_what_was_refused_is_noticed_in_a_later_life_too() -> None:
    watched = _Watched()
    first = watched.make(b"one")
    watched.hand_over(first)
    watched.rules.refused(_NOW_MS, "alice", watched.hash_of(first))
    second = watched.make(b"two", _NOW_MS + 5_000)

    assert any("knew was refused" in fault for fault in watched.hand_over(second, _NOW_MS + 5_000))
    watched.restart()
    assert any("knew was refused" in fault for fault in watched.hand_over(second, _NOW_MS + 5_000))


def test_a_life_that_ended_before_its_node_refused_something_did_not_know_so() -> None:
    watched = _Watched()
    first = watched.make(b"one")
    watched.hand_over(first)
    watched.rules.refused(_NOW_MS + 10_000, "alice", watched.hash_of(first))
    watched.restart()
    second = watched.make(b"two", _NOW_MS + 20_000)

    assert watched.hand_over(second, _NOW_MS + 20_000) == []


def test_a_burst_that_keeps_a_retry_waiting_is_noticed_unless_it_waited_for_the_disk_itself() -> None:
    watched = _Watched()
    watched.rules.disk_ms = 3_000
    repeated, *early = [watched.make(b"%d" % number) for number in range(21)]
    assert watched.hand_over(repeated) == []
    due = Change(table=SEGMENTS, key=repeated.message_id, row=("a request", 0, False, 1, None, False, (), False))
    watched.rules.kept(_NOW_MS, "alice", [due])

    assert [fault for message in early for fault in watched.hand_over(message, _NOW_MS + 5_000)] == []
    late = [watched.make(b"late %d" % number) for number in range(20)]
    (fault,) = [fault for message in late for fault in watched.hand_over(message, _NOW_MS + 6_000)]
    assert "waits to be sent again" in fault


def test_a_hint_that_leads_elsewhere_is_noticed() -> None:
    watched = _Watched()
    first, second = watched.make(b"one"), watched.make(b"two")
    watched.hand_over(first)
    watched.hand_over(second)
    third = watched.make(b"three")
    turned = tuple(entry._replace(retrieval_hint=watched.hash_of(second)) for entry in third.causal_history[:1])

    (fault,) = watched.hand_over(replace(third, causal_history=turned))
    assert "leads to something else" in fault


def test_parity_of_other_data_is_noticed() -> None:
    watched = _Watched()
    config = SegmentationConfig(segment_size_bytes=128, parity_rate=0.5)
    parts = Segmenter(config, WAKU_SEGMENTS).split(bytes(range(250)) * 3)
    contents = [part.content for part in parts.segments]
    forged = WAKU_SEGMENTS.encode(replace(WAKU_SEGMENTS.decode(contents[-1]), payload=bytes(128)))

    assert [fault for content in contents[:-1] for fault in watched.hand_over(watched.make(content))] == []
    assert any("not that of its data" in fault for fault in watched.hand_over(watched.make(forged)))


def test_what_is_not_paid_for_is_noticed() -> None:
    watched = _Watched()
    watched.rules.is_limited = True
    quota = Quota(RateLimitConfig(enabled=True, messages_per_epoch=10, epoch_ms=RATE_EPOCH_MS))
    first, second = watched.make(b"one"), watched.make(b"two")
    quota.charge(_NOW_MS)
    watched.rules.written("alice", [Change(table=RATE_LIMIT, key="", row=tuple(quota.state()))])

    assert watched.hand_over(first) == []
    assert any("charged" in fault for fault in watched.hand_over(second))


class _Charging(_Watched):
    """A participant with a rate limit, whose charges are durable at once."""

    def __init__(self) -> None:
        super().__init__()
        self.quota = Quota(RateLimitConfig(enabled=True, messages_per_epoch=10, epoch_ms=RATE_EPOCH_MS))

    def charge(self, at_ms: int = _NOW_MS) -> None:
        self.quota.charge(at_ms)
        self.keep([Change(table=RATE_LIMIT, key="", row=tuple(self.quota.state()))], at_ms)

    def overcharged(self, at_ms: int = _NOW_MS) -> int:
        return self.rules.overcharged("alice", at_ms // RATE_EPOCH_MS)


def test_what_is_charged_and_never_handed_over_is_counted() -> None:
    watched = _Charging()
    for _ in range(3):
        watched.charge()
    watched.hand_over(watched.make(b"one"))

    assert watched.overcharged() == 2


def test_what_a_life_charged_that_ended_before_it_handed_it_over_is_not_counted() -> None:
    watched = _Charging()
    for content in (b"one", b"two"):
        watched.charge()
        watched.restart()
        watched.charge()
        watched.hand_over(watched.make(content))
    assert watched.overcharged() == 0

    watched.charge()
    assert watched.overcharged() == 1


def test_what_a_clock_that_is_set_back_takes_along_is_not_counted() -> None:
    watched, later_ms = _Charging(), _NOW_MS + RATE_EPOCH_MS
    for at_ms in (_NOW_MS, later_ms, later_ms, later_ms, _NOW_MS):
        watched.charge(at_ms)
        watched.hand_over(watched.make(b"at %d" % at_ms, at_ms), at_ms)
    assert (watched.overcharged(), watched.overcharged(later_ms)) == (0, 0)

    watched.charge()
    assert watched.overcharged() == 1


def test_what_is_charged_before_a_clock_is_set_back_is_counted() -> None:
    watched, later_ms = _Charging(), _NOW_MS + RATE_EPOCH_MS
    for at_ms in (later_ms, later_ms, _NOW_MS):
        watched.charge(at_ms)

    assert watched.overcharged(later_ms) == 2


@pytest.mark.parametrize("waited_ms", [0, 30_000, 200_000])
def test_an_answer_that_does_not_wait_for_its_turn_is_noticed(waited_ms: int) -> None:
    watched = _Watched()
    rules, codec, times = watched.rules, Profile.WAKU.codec, Profile.WAKU.repair
    rules.answers_wait_ms = 120_000
    carol = MessageChannel("harbour", "carol", SdsConfig(bloom_policy=BloomPolicy.ALWAYS), now_ms=_NOW_MS)
    said = carol.send(b"who has this?", _NOW_MS)
    entry = HistoryEntry(said.message_id, None, "carol")
    asking = SdsMessage(message_id="bob asks", sender_id="bob", channel_id="harbour", repair_request=(entry,))
    for name, message in (("carol", said), ("bob", asking)):
        list(rules.faults(_NOW_MS, name, message, codec.encode(message), watched.hash_of(message), _NOW_MS * 1_000_000))

    faults = watched.hand_over(said, _NOW_MS + waited_ms)

    turn_ms = times.response_offset("alice", "carol", said.message_id, rules.answers_wait_ms)
    assert any("its turn" in fault for fault in faults) is (waited_ms + 1_000 < turn_ms)
    assert 1_000 < turn_ms < 200_000


@pytest.mark.parametrize(("asks_again", "left_before"), [(False, False), (True, False), (False, True)])
def test_an_answer_after_another_one_is_noticed_unless_somebody_asked_since_that_left(
    asks_again: bool, left_before: bool
) -> None:
    watched = _Watched()
    rules, codec = watched.rules, Profile.WAKU.codec
    rules.answers_are_called_off = True
    carol = MessageChannel("harbour", "carol", SdsConfig(bloom_policy=BloomPolicy.ALWAYS), now_ms=_NOW_MS)
    said = carol.send(b"who has this?", _NOW_MS)
    entry = HistoryEntry(said.message_id, None, "carol")
    asking = SdsMessage(message_id="bob asks", sender_id="bob", channel_id="harbour", repair_request=(entry,))
    heard = [("bob", asking), ("carol", said), *([("bob", asking)] if asks_again else [])]
    for name, message in heard:
        left_ms = _NOW_MS - 1 if message is said and left_before else _NOW_MS
        list(rules.faults(left_ms, name, message, codec.encode(message), watched.hash_of(message), left_ms * 1_000_000))
        rules.heard_asking(_NOW_MS, "alice", [each.message_id for each in message.repair_request])
        rules.heard(_NOW_MS, "alice", watched.hash_of(message))

    faults = watched.hand_over(said, _NOW_MS + 20_000)

    assert any("nobody asked since" in fault for fault in faults) is not (asks_again or left_before)


@pytest.mark.parametrize("has_filters", [True, False])
def test_answers_given_again_may_be_as_long_as_what_their_giver_says_otherwise(has_filters: bool) -> None:
    watched = _Watched()
    rules, codec = watched.rules, Profile.WAKU.codec
    rules.has_filters = {"alice": has_filters, "carol": True}.__getitem__
    carol = MessageChannel("harbour", "carol", SdsConfig(bloom_policy=BloomPolicy.ALWAYS), now_ms=_NOW_MS)
    said = carol.send(b"with a filter of 18 kB", _NOW_MS)
    plain = codec.encode(said)
    list(rules.faults(_NOW_MS, "carol", said, plain, watched.hash_of(said), _NOW_MS * 1_000_000))

    answers = [watched.hand_over(said, _NOW_MS + number) for number in range(15)]

    assert any("given more than once" in fault for faults in answers for fault in faults) is not has_filters


@pytest.mark.parametrize("is_logged", [True, False])
def test_what_was_kept_in_an_earlier_life_pays_for_answers_given_again(is_logged: bool) -> None:
    watched = _Watched()
    rules, codec = watched.rules, Profile.WAKU.codec
    rules.has_filters = lambda _: False
    carol = MessageChannel("harbour", "carol", SdsConfig(bloom_policy=BloomPolicy.ALWAYS), now_ms=_NOW_MS)
    long, said = carol.send(bytes(300_000), _NOW_MS), carol.send(b"with a filter of 18 kB", _NOW_MS)
    for message in (long, said):
        plain = codec.encode(message)
        list(rules.faults(_NOW_MS, "carol", message, plain, watched.hash_of(message), _NOW_MS * 1_000_000))
    logged = [Change(table=HISTORY, key=long.message_id, row=(_NOW_MS,))]
    if is_logged:
        watched.keep(logged)
    else:
        rules.kept(_NOW_MS, "alice", logged)

    watched.restart()
    answers = [watched.hand_over(said, _NOW_MS + number) for number in range(15)]

    assert any("given more than once" in fault for faults in answers for fault in faults) is not is_logged


def test_what_the_disk_had_not_written_when_its_program_was_killed_need_not_be_cited() -> None:
    watched = _Watched()
    for content in (b"one", b"two"):
        watched.hand_over(watched.make(content))
    watched.rules.kept(_NOW_MS + 1, "alice", [Change(table=HISTORY, key="never written", row=(_NOW_MS + 1,))])
    sync = watched.sds.send_sync(_NOW_MS + 60_000)
    assert sync is not None

    assert any("does not cite never writte" in fault for fault in watched.hand_over(sync, _NOW_MS + 60_000))
    watched.restart()
    assert watched.hand_over(sync, _NOW_MS + 60_000) == []


def test_what_reached_the_disk_amid_a_crash_is_to_be_cited() -> None:
    watched = _Watched()
    for content in (b"one", b"two", b"three"):
        watched.hand_over(watched.make(content))
    late, later = watched.sds.send_sync(_NOW_MS + 60_000), watched.sds.send_sync(_NOW_MS + 61_000)
    assert late is not None
    assert later is not None
    *_, newest = late.causal_history
    # Nothing had said of it that it is written.
    watched.rules.written("alice", [Change(table=HISTORY, key=newest.message_id, row=None)])

    watched.restart()
    assert watched.hand_over(late, _NOW_MS + 60_000) == []
    (fault,) = watched.hand_over(replace(later, causal_history=later.causal_history[:-1]), _NOW_MS + 61_000)
    assert f"does not cite {newest.message_id[:12]}" in fault


def test_what_is_nothing_new_may_not_use_up_an_epoch() -> None:
    watched = _Watched()
    watched.rules.configured = 2
    said = [watched.make(b"%d" % number) for number in range(3)]

    assert [fault for message in said for fault in watched.hand_over(message)] == []
    sync = watched.sds.send_sync(_NOW_MS)
    assert sync is not None
    faults = watched.hand_over(sync)
    assert any("nothing new" in fault for fault in faults)
    faults = watched.hand_over(sync, _NOW_MS + RATE_EPOCH_MS)
    assert not any("nothing new" in fault for fault in faults)


class _MetAgain:
    """Alice, who hears messages of Bob again, half of which are not in her log for sure: those she need not cite."""

    def __init__(self, count: int) -> None:
        self.rules, self._codec = _Watched().rules, Profile.WAKU.codec
        bob = MessageChannel("harbour", "bob", SdsConfig(), now_ms=_NOW_MS)
        self.in_her_log = [bob.send(b"%d" % number, _NOW_MS).message_id for number in range(count)]
        self.elsewhere = [bob.send(b"other %d" % number, _NOW_MS).message_id for number in range(count)]
        for place, message_id in enumerate(self.in_her_log):
            self.rules.written("alice", [Change(table=HISTORY, key=message_id, row=(_NOW_MS + place,))])
        for copy in (1, 2):
            for message_id in (*self.elsewhere, *self.in_her_log):
                message = SdsMessage(
                    message_id=message_id,
                    sender_id="bob",
                    channel_id="harbour",
                    lamport_timestamp=_NOW_MS,
                    content=b"said",
                )
                self._hand_over(
                    "bob",
                    message,
                    _NOW_MS + copy,
                    message_hash := hashlib.sha256(b"%d %s" % (copy, message_id.encode())).digest(),
                )
                self.rules.heard(_NOW_MS + 10_000, "alice", message_hash)

    def _hand_over(self, name: str, message: SdsMessage, at_ms: int, message_hash: bytes) -> list[str]:
        plain = self._codec.encode(message)
        return list(self.rules.faults(at_ms, name, message, plain, message_hash, at_ms * 1_000_000))

    def left_out(self, after_ms: int, *cited: str) -> int:
        """Return of how many messages a sync message of Alice is told to lack a citation, after so much time."""
        at_ms = _NOW_MS + 10_000 + after_ms
        sync = SdsMessage(
            message_id=f"sync-{at_ms}",
            sender_id="alice",
            channel_id="harbour",
            lamport_timestamp=at_ms,
            causal_history=tuple(map(HistoryEntry, cited)),
        )
        faults = self._hand_over("alice", sync, at_ms, hashlib.sha256(sync.message_id.encode()).digest())
        return sum("sent again" in fault for fault in faults)


def test_who_cites_twenty_messages_that_came_again_leaves_others_to_its_next_message() -> None:
    met = _MetAgain(15)

    assert met.left_out(2_000, *met.elsewhere, *met.in_her_log[:5]) == 0
    assert met.left_out(4_000, *met.in_her_log[5:]) == 0
    assert met.left_out(6_000) == 0


def test_who_cites_fewer_than_twenty_messages_that_came_again_leaves_none_out() -> None:
    met = _MetAgain(15)

    assert met.left_out(2_000, *met.elsewhere, *met.in_her_log[:4]) == 11


def test_what_a_message_had_no_room_to_cite_the_next_one_cites_however_much_came_again() -> None:
    met = _MetAgain(50)

    assert met.left_out(2_000, *met.in_her_log[:20]) == 0
    assert met.left_out(4_000, *met.in_her_log[20:40]) == 0
    assert met.left_out(6_000, *met.in_her_log[40:47]) == 3


def test_what_was_cited_by_what_got_lost_may_be_cited_anew_before_other_messages() -> None:
    met = _MetAgain(15)
    others = [f"said by others {number}" for number in range(20)]

    assert met.left_out(500, *others, "one", "two") == 0
    assert met.left_out(2_000, *others) == 0
    assert met.left_out(4_000, *met.in_her_log) == 0


@pytest.mark.parametrize(("asks_after_ms", "left_out"), [(500, 0), (1_500, 15)])
def test_what_a_store_may_bring_before_it_is_read_need_not_be_cited(asks_after_ms: int, left_out: int) -> None:
    met = _MetAgain(15)
    met.rules.queried(_NOW_MS + 10_000 + asks_after_ms, "alice")

    assert met.left_out(3_000) == left_out


@pytest.mark.parametrize(("disk_ms", "cipher_ms", "unread_ms"), [(0, 0, 0), (6_000, 0, 0), (6_000, 3_000, 15_000)])
def test_what_a_cipher_takes_its_time_over_is_cited_once_it_is_read(
    disk_ms: int, cipher_ms: int, unread_ms: int
) -> None:
    met = _MetAgain(15)
    met.rules.disk_ms, met.rules.cipher_ms = disk_ms, cipher_ms

    assert met.left_out(unread_ms + 500) == 0
    assert met.left_out(unread_ms + 1_500) == 15
