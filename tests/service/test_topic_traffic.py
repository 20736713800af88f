"""Messages and bytes by topic over the last minutes, and that strangers' topics cannot fill the memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairway.service.topic_traffic import MAX_TOPIC_CHARACTERS, MAX_TOPICS, SLOT_S, SLOTS, ShardTotals, TopicTraffic

SHARD = "/waku/2/rs/16/0"
WINDOW_S = SLOTS * SLOT_S


def named(report):
    return {topic.content_topic: topic.flow for topic in report.topics}


def test_a_message_stands_in_the_slot_in_which_it_came_once_that_is_complete():
    traffic = TopicTraffic()
    traffic.count(SHARD, "/a", 100, 1_000.0)
    traffic.count(SHARD, "/a", 50, 1_001.0)
    assert sum(traffic.report(1_001.0, max_topics=5).total.messages) == 0
    report = traffic.report(1_000.0 + SLOT_S, max_topics=5)
    assert len(report.total.messages) == len(report.total.message_bytes) == SLOTS
    assert (report.total.messages[-1], report.total.message_bytes[-1]) == (2, 150)
    assert named(report)["/a"] == report.total
    later = traffic.report(1_000.0 + 11 * SLOT_S, max_topics=5)
    assert later.total.messages[-11] == 2
    assert sum(later.total.messages) == 2


def test_what_is_older_than_the_window_is_forgotten_with_its_topic():
    traffic = TopicTraffic()
    traffic.count(SHARD, "/old", 1, 0.0)
    at_the_edge = traffic.report(WINDOW_S, max_topics=5)
    assert at_the_edge.total.messages[0] == 1
    after = traffic.report(WINDOW_S + SLOT_S, max_topics=5)
    assert sum(after.total.messages) == 0
    assert after.topics == ()
    assert traffic.shards() == {SHARD: ShardTotals(messages=1, message_bytes=1)}


def test_a_clock_that_stands_still_for_hours_leaves_nothing_behind():
    traffic = TopicTraffic()
    for second in range(400):
        traffic.count(SHARD, "/a", 1, float(second))
    assert sum(traffic.report(100_000.0, max_topics=5).total.messages) == 0


def test_the_topics_with_the_most_messages_stand_apart_and_the_rest_together():
    traffic = TopicTraffic()
    for number in range(10):
        for _ in range(number + 1):
            traffic.count(SHARD, f"/topic-{number}", 10, 0.0)
    report = traffic.report(SLOT_S, max_topics=3)
    assert [topic.content_topic for topic in report.topics] == ["/topic-9", "/topic-8", "/topic-7"]
    assert report.topic_count == 10
    assert report.others.messages[-1] == sum(range(1, 8))
    assert report.others.message_bytes[-1] == 10 * sum(range(1, 8))


def test_a_flood_of_invented_topics_neither_grows_nor_displaces_one_that_is_in_use():
    traffic = TopicTraffic()
    now_s = 0.0
    for slot in range(20):
        now_s = slot * SLOT_S
        for number in range(2 * MAX_TOPICS):
            traffic.count(SHARD, f"/invented/{slot}/{number}", 1, now_s)
            if number % 100 == 0:
                traffic.count(SHARD, "/in-use", 5, now_s)
    report = traffic.report(now_s + SLOT_S, max_topics=MAX_TOPICS)
    assert report.topic_count <= MAX_TOPICS
    assert report.topics[0].content_topic == "/in-use"
    assert sum(report.topics[0].flow.messages) == 20 * 40


def test_a_topic_that_comes_into_use_amid_a_flood_is_admitted():
    traffic = TopicTraffic()
    for number in range(2 * MAX_TOPICS):
        traffic.count(SHARD, f"/invented/{number}", 1, 0.0)
    for _ in range(5):
        traffic.count(SHARD, "/late", 1, SLOT_S)
    assert traffic.report(2 * SLOT_S, max_topics=1).topics[0].content_topic == "/late"


def test_a_name_of_any_length_is_cut():
    traffic = TopicTraffic()
    traffic.count(SHARD, "/" + "x" * 100_000, 1, 0.0)
    (topic,) = traffic.report(SLOT_S, max_topics=5).topics
    assert len(topic.content_topic) == MAX_TOPIC_CHARACTERS


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1_000), st.floats(0, 3 * WINDOW_S)), max_size=60),
    st.integers(0, 40),
)
def test_the_parts_are_always_the_total(messages, max_topics):
    traffic = TopicTraffic()
    now_s = 0.0
    for topic, size, at_s in sorted(messages, key=lambda message: message[2]):
        traffic.count(SHARD, f"/{topic}", size, at_s)
        now_s = at_s
    report = traffic.report(now_s, max_topics=max_topics)
    flows = [*(topic.flow for topic in report.topics), report.others]
    for slot in range(SLOTS):
        assert sum(flow.messages[slot] for flow in flows) == report.total.messages[slot]
        assert sum(flow.message_bytes[slot] for flow in flows) == report.total.message_bytes[slot]
    totals = traffic.shards().get(SHARD, ShardTotals(messages=0, message_bytes=0))
    assert (totals.messages, totals.message_bytes) == (len(messages), sum(size for _, size, _ in messages))
