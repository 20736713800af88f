"""The channels of one node share its rate limit and its pace: together they send no more, and each gets its share."""

from __future__ import annotations

from collections import Counter

import pytest

from fairway.options import RateLimitConfig, ReliableChannelOptions
from fairway.protocol.effects import Change, NodeAnswer, Persist, Publish
from fairway.protocol.ratelimit import Membership
from fairway.protocol.stack import Stack

EPOCH_MS = 60_000
START_MS = 1_760_000_000_000 // EPOCH_MS * EPOCH_MS
TOPIC = "/fairway/1/harbour/proto"


class Node:
    """Channels of one node under virtual time, which takes everything unless told otherwise."""

    def __init__(self, *names, limit, rows=None, now_ms=START_MS, takes=lambda _: True):
        self.now_ms, self.takes = now_ms, takes
        self.membership = Membership()
        options = ReliableChannelOptions(
            sync_min_interval_ms=0,
            retry_interval_ms=0,
            rate_limit=RateLimitConfig(enabled=limit is not None, messages_per_epoch=limit, epoch_ms=EPOCH_MS),
        )
        self.rows: dict[str, dict[tuple[str, str], Change]] = rows or {name: {} for name in names}
        self.sent: list[tuple[int, str]] = []
        self.stacks = {
            name: Stack(
                name, "alice", TOPIC, options, now_ms=now_ms, seed=name.encode() * 16, membership=self.membership
            )
            for name in names
        }
        for name, stack in self.stacks.items():
            if rows is None:
                self.do(name, [Persist(changes=stack.snapshot())])
            else:
                self.do(name, stack.restore(tuple(self.rows[name].values()), now_ms))

    def do(self, name, effects):
        for effect in effects:
            if isinstance(effect, Persist):
                for change in effect.changes:
                    self.rows[name][change.table, change.key] = change
            elif isinstance(effect, Publish):
                taken = self.takes(self.now_ms)
                if taken:
                    self.sent.append((self.now_ms, name))
                answer = NodeAnswer(accepted=taken, too_many=not taken)
                self.do(name, self.stacks[name].published(effect.token, answer, self.now_ms))

    def send(self, name, count):
        for number in range(count):
            self.do(name, self.stacks[name].send(b"%d" % number, self.now_ms).effects)

    def run(self, for_ms):
        end_ms = self.now_ms + for_ms
        while True:
            due = [(at, name) for name, stack in self.stacks.items() if (at := stack.next_deadline()) is not None]
            at_ms, name = min(due, default=(end_ms + 1, ""))
            if at_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, at_ms)
            self.do(name, self.stacks[name].tick(self.now_ms))
        self.now_ms = end_ms

    def by_epoch(self):
        return Counter(at_ms // EPOCH_MS - START_MS // EPOCH_MS for at_ms, _ in self.sent)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_three_channels_of_one_node_send_no_more_than_its_limit_together(limit):
    node = Node("one", "two", "three", limit=limit)
    for name in node.stacks:
        node.send(name, 4)
    assert len(node.sent) == limit
    node.run(12 * EPOCH_MS)
    assert len(node.sent) == 12
    assert max(node.by_epoch().values()) <= limit


def test_each_channel_gets_its_share_however_much_another_wants():
    node = Node("busy", "calm", "quiet", limit=6)
    node.send("busy", 60)
    node.run(EPOCH_MS - 1)
    node.send("calm", 6)
    node.send("quiet", 6)
    before = len(node.sent)
    node.run(3 * EPOCH_MS)
    shares = Counter(name for _, name in node.sent[before:])
    assert min(shares["calm"], shares["quiet"]) >= 5
    node.run(15 * EPOCH_MS)
    assert len(node.sent) == 72
    assert max(node.by_epoch().values()) <= 6


def test_what_one_channel_does_not_want_is_left_to_the_others():
    node = Node("one", "two", limit=6)
    node.send("one", 6)
    assert len(node.sent) == 6


def test_a_restart_of_all_channels_does_not_refill_the_common_limit():
    node = Node("one", "two", limit=4)
    node.send("one", 1)
    node.send("two", 3)
    node.do("one", node.stacks["one"].tick(node.now_ms))
    again = Node("one", "two", limit=4, rows=node.rows, now_ms=node.now_ms)
    again.send("one", 2)
    again.send("two", 2)
    assert again.sent == []
    again.run(EPOCH_MS)
    assert len(again.sent) == 4


def test_a_channel_that_comes_back_beside_others_counts_what_they_sent():
    node = Node("one", "two", limit=4)
    node.send("two", 4)
    # The first one never wrote what the second sent.
    again = Node("one", "two", limit=4, rows=node.rows, now_ms=node.now_ms)
    again.send("one", 1)
    assert again.sent == []


def test_channels_share_the_pace_of_a_node_that_refuses():
    tokens = {"left": 5.0, "at": START_MS}

    def takes(now_ms):
        tokens["left"] = min(5.0, tokens["left"] + (now_ms - tokens["at"]) * 5 / 1_000)
        tokens["at"] = now_ms
        taken = tokens["left"] >= 1
        tokens["left"] -= taken
        return taken

    node = Node("one", "two", limit=None, takes=takes)
    node.send("one", 300)
    node.send("two", 60)
    node.run(20_000)
    counts = Counter(name for _, name in node.sent)
    assert counts["two"] >= 0.35 * sum(counts.values())
    node.run(80_000)
    assert Counter(name for _, name in node.sent) == {"one": 300, "two": 60}
    assert node.membership.pace.refusals < 80
