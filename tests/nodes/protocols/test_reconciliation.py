"""Two stores find the messages that each of them lacks, whatever they hold, and a hostile peer costs little."""

from __future__ import annotations

import json
from functools import reduce
from itertools import count, pairwise
from operator import xor
from pathlib import Path

import pytest
from Crypto.Hash import keccak
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairway.errors import DecodeError
from fairway.nodes.protocols.reconciliation import MAX_ROUNDS, Reconciliation
from fairway.storage.archive import ArchivedId
from fairway.wire.store_sync import (
    ZERO_HASH,
    ItemSet,
    SyncId,
    SyncPayload,
    SyncRange,
    decode_sync_payload,
    encode_sync_payload,
)

NWAKU = json.loads((Path(__file__).parents[2] / "vectors/nwaku/store_sync.json").read_bytes())
SHARD, OTHER_SHARD, TOPIC = "/waku/2/rs/2/0", "/waku/2/rs/2/1", "/app/1/room/proto"
END_NS = 3_600_000_000_000


def digest(text):
    return keccak.new(digest_bits=256, data=text.encode()).digest()


def stored(timestamp_ns, name, pubsub_topic=SHARD, content_topic=TOPIC):
    return ArchivedId(timestamp_ns, digest(f"{name}"), pubsub_topic, content_topic)


def side(messages, topics=(SHARD,), start_ns=0):
    return Reconciliation(sorted(messages), pubsub_topics=topics, start_ns=start_ns)


class Session:
    """A whole session of two nodes, over the wire; `alice` begins."""

    def __init__(self, alice, bob, *, end_ns=END_NS, cut_after=None):
        self.alice_sends, self.bob_sends, self.sizes = [], [], []
        payload, turns = alice.begin(end_ns), ((bob, self.bob_sends), (alice, self.alice_sends))
        for number in count():
            if number == cut_after:
                break
            node, sends = turns[number % 2]
            self.sizes.append(len(encode_sync_payload(payload)))
            step = node.receive(decode_sync_payload(encode_sync_payload(payload)))
            sends += step.peer_lacks
            if step.ended and step.reply is None:
                break
            payload = step.reply


def hashes(messages):
    return {one.message_hash for one in messages}


messages = st.builds(
    stored,
    st.integers(0, 40) | st.integers(0, END_NS - 1),
    st.integers(0, 10_000),
)
sets = st.tuples(
    st.lists(messages, max_size=300, unique_by=lambda one: one.message_hash).map(frozenset),
    st.integers(0, 9),
    st.integers(0, 9),
)


@given(sets, st.none() | st.integers(0, 6), st.integers(1, 9))
@settings(max_examples=60, deadline=None)
@example((frozenset(), 0, 0), None, 1)
@example((frozenset(stored(7, name) for name in range(300)), 2, 3), None, 2)
def test_two_stores_become_equal_over_sessions_that_may_be_cut_anywhere(drawn, cut_after, lost_each):
    """Each holds some of the messages. A first session may be cut after any payload, and a part of its transfers is
    lost; a second session is whole."""
    whole, here, there = drawn
    alice = {one for number, one in enumerate(sorted(whole)) if number % 10 >= here}
    bob = {one for number, one in enumerate(sorted(whole)) if (number * 7) % 10 >= there}
    both = alice | bob
    by_hash = {one.message_hash: one for one in both}
    for cut, lost in ((cut_after, slice(None, None, lost_each)), (None, slice(0))):
        session = Session(side(alice), side(bob), cut_after=cut)
        assert set(session.alice_sends) <= hashes(alice - bob)
        assert set(session.bob_sends) <= hashes(bob - alice)
        assert len(session.alice_sends) == len(set(session.alice_sends))
        del session.alice_sends[lost], session.bob_sends[lost]
        alice, bob = (
            alice | {by_hash[one] for one in session.bob_sends},
            bob | {by_hash[one] for one in session.alice_sends},
        )
    assert alice == bob == both


def test_ids_are_the_times_and_hashes_of_messages_and_those_of_one_time_are_in_the_order_of_hashes():
    messages = [stored(number % 2, number) for number in range(20)]
    asked = SyncPayload(ranges=(SyncRange(SyncId(0, ZERO_HASH), SyncId(9, ZERO_HASH), bytes(32)),))
    [listed] = side(messages).receive(asked).reply.ranges
    assert listed.content.ids == tuple(sorted((one.timestamp_ns, one.message_hash) for one in messages))


def test_a_range_is_equal_if_its_fingerprint_is_the_xor_of_the_hashes_here():
    messages = [stored(number, number) for number in range(200)]
    within = [int.from_bytes(one.message_hash) for one in messages[50:150]]
    for fingerprint, is_equal in ((reduce(xor, within), True), (reduce(xor, within[1:]), False)):
        asked = SyncRange(SyncId(50, ZERO_HASH), SyncId(150, ZERO_HASH), fingerprint.to_bytes(32))
        assert side(messages).receive(SyncPayload(ranges=(asked,))).ended is is_equal


def test_equal_stores_exchange_one_fingerprint():
    messages = [stored(number * 1_000, number) for number in range(5_000)]
    session = Session(side(messages), side(messages))
    assert (session.alice_sends, session.bob_sends) == ([], [])
    assert session.sizes == [len(SHARD) + 43, 1]


def test_a_few_differences_among_many_messages_cost_few_bytes():
    messages = [stored(number * 10_000_000, number) for number in range(10_000)]
    session = Session(side(messages), side(messages[:123] + messages[124:]), end_ns=100_000_000_000)
    assert session.alice_sends == [messages[123].message_hash]
    assert sum(session.sizes) < 13_000
    assert len(session.sizes) <= 8


def test_only_topics_of_both_nodes_are_compared():
    alice = [stored(1, 1, SHARD), stored(2, 2, OTHER_SHARD)]
    bob = [stored(3, 3, OTHER_SHARD), stored(4, 4, "/waku/2/rs/2/2")]
    session = Session(side(alice, (SHARD, OTHER_SHARD)), side(bob, (OTHER_SHARD, "/waku/2/rs/2/2")))
    assert session.alice_sends == [alice[1].message_hash]
    assert session.bob_sends == [bob[0].message_hash]


def test_nodes_without_a_common_topic_exchange_nothing():
    session = Session(side([stored(1, 1)]), side([stored(2, 2, OTHER_SHARD)], (OTHER_SHARD,)))
    assert (session.alice_sends, session.bob_sends, session.sizes[1:]) == ([], [], [1])


def test_a_peer_with_content_topics_gets_messages_of_these_only():
    node = side([stored(1, 1), stored(2, 2, content_topic="/app/1/other/proto")])
    asked = SyncPayload(
        content_topics=("/app/1/other/proto",),
        ranges=(SyncRange(SyncId(0, ZERO_HASH), SyncId(9, ZERO_HASH), ItemSet((), reconciled=False)),),
    )
    assert node.receive(asked).peer_lacks == (digest("2"),)


@pytest.mark.parametrize("start_ns", [500_000, 500_003])
def test_times_before_the_range_of_a_node_are_not_compared(start_ns):
    """Else a peer with a longer range would send all its older messages in each session."""
    messages = [stored(number * 1_000, number) for number in range(1_000)]
    kept = [one for one in messages if one.timestamp_ns >= start_ns]
    missing = kept.pop(100)
    session = Session(side(messages), side(kept, start_ns=start_ns))
    assert (session.alice_sends, session.bob_sends) == ([missing.message_hash], [])


def test_a_session_has_a_bounded_number_of_rounds():
    node = side([stored(number, number) for number in range(200)])
    asked = SyncPayload(ranges=(SyncRange(SyncId(0, ZERO_HASH), SyncId(END_NS, ZERO_HASH), bytes(32)),))
    for _ in range(MAX_ROUNDS):
        node.receive(asked)
    with pytest.raises(DecodeError, match="rounds"):
        node.receive(asked)


def test_a_message_is_sent_once_in_a_session_however_often_a_peer_denies_it():
    node = side([stored(1, 1), stored(2, 2)])
    asked = SyncPayload(ranges=(SyncRange(SyncId(0, ZERO_HASH), SyncId(9, ZERO_HASH), ItemSet((), reconciled=True)),))
    assert len(node.receive(asked).peer_lacks) == 2
    assert node.receive(asked).peer_lacks == ()


places = st.builds(SyncId, st.integers(0, 400), st.sampled_from([ZERO_HASH, digest("3"), digest("250")]))
contents = (
    st.none()
    | st.binary(min_size=32, max_size=32)
    | st.builds(ItemSet, st.lists(places, max_size=5).map(tuple), st.booleans())
)


@given(st.lists(st.tuples(places, contents), min_size=2, max_size=9, unique_by=lambda one: one[0]), st.integers(0, 400))
def test_the_answer_to_any_payload_covers_its_ranges_and_names_only_what_is_here(drawn, start_ns):
    bounds = sorted(drawn, key=lambda one: one[0])
    asked = SyncPayload(ranges=tuple(SyncRange(one[0], other[0], one[1]) for one, other in pairwise(bounds)))
    here = [stored(number, number) for number in range(start_ns, 350)]
    step = side(here, start_ns=start_ns).receive(asked)
    assert set(step.peer_lacks) <= hashes(here)
    reply = step.reply
    if reply is not None and reply.ranges:
        assert (reply.ranges[0].start, reply.ranges[-1].end) == (bounds[0][0], bounds[-1][0])
        assert all(one.end == other.start for one, other in pairwise(reply.ranges))
        listed = [(one, each) for one in reply.ranges if isinstance(one.content, ItemSet) for each in one.content.ids]
        assert all(one.start <= each < one.end and each.message_hash in hashes(here) for one, each in listed)
        assert len({each for _, each in listed}) == len(listed)


def test_ids_outside_their_range_are_ignored():
    node = side([stored(1, 1), stored(20, 2)])
    claimed = ItemSet((SyncId(20, digest("2")), SyncId(30, digest("3"))), reconciled=False)
    step = node.receive(SyncPayload(ranges=(SyncRange(SyncId(0, ZERO_HASH), SyncId(9, ZERO_HASH), claimed),)))
    assert step.peer_lacks == (digest("1"),)


# nwaku's own tests


def nwaku_side(total, differing=()):
    return [stored(1_000 + number, f"msg{number}{'_x' if number in differing else ''}") for number in range(total)]


def kind(one):
    return {None: "equal", bytes: "fingerprint"}.get(one.content and type(one.content), "item set")


@pytest.mark.parametrize("case", NWAKU["descents"], ids=lambda case: f"{case['count']} messages")
def test_answers_have_the_shape_of_those_of_nwaku(case):
    """The other node sends the fingerprint of the range with the difference, until this node answers with its ids."""
    differing = case["differing"]
    local = side(nwaku_side(case["count"]))
    remote = side(nwaku_side(case["count"], {differing}))
    start, end = SyncId(1_000, ZERO_HASH), SyncId(1_000 + case["count"] - 1, ZERO_HASH)
    place = SyncId(1_000 + differing, ZERO_HASH)
    for length, content in case["answers"]:
        begun = Reconciliation(
            nwaku_side(case["count"], {differing}), pubsub_topics=(SHARD,), start_ns=start.timestamp_ns
        ).begin(end.timestamp_ns)
        reply = local.receive(begun).reply
        assert [kind(one) for one in reply.ranges] == [content] * length
        [there] = [one for one in reply.ranges if one.start <= place < one.end]
        start, end = there.start, there.end
    assert remote.receive(reply).peer_lacks == (digest(f"msg{differing}_x"),)


def test_an_equal_range_needs_no_answer_and_the_differing_one_is_listed_as_in_nwaku():
    case = NWAKU["halves"]
    remote = nwaku_side(case["count"], range(case["differing_from"], case["count"]))
    bounds = [SyncId(one, ZERO_HASH) for one in case["bounds"]]
    parts = [
        Reconciliation(remote, pubsub_topics=(SHARD,), start_ns=start.timestamp_ns).begin(end.timestamp_ns).ranges[0]
        for start, end in pairwise(bounds)
    ]
    reply = side(nwaku_side(case["count"])).receive(SyncPayload(ranges=tuple(parts))).reply
    assert [kind(one) for one in reply.ranges] == case["answer"]
