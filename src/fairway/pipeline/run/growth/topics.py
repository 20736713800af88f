"""Check that new messages do not change the topic of a channel.

The topic is decided from all messages of a channel (`fairway.pipeline.run.topics`), so that more messages may change
it. Then rows move into or out of the quarantine, which needs a whole run.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.run.growth import WholeRunNeeded
from fairway.pipeline.run.growth.held_rows import HeldRows, of_channels
from fairway.pipeline.run.topics import CLAIMS, CountedTopics, TopicCount, is_enough

_KEY = CLAIMS.names[:2]


def grown_topics(known: CountedTopics, claims: pa.Table, sds_messages: HeldRows) -> CountedTopics:
    """Return which channels have messages on several topics, including new messages (`CLAIMS`).

    Raises `WholeRunNeeded` if a channel may be on another topic than before, or on a topic without a count.
    """
    fresh: defaultdict[str, dict[str | None, int]] = defaultdict(dict)
    for name, topic, messages in zip(*(column.to_pylist() for column in claims.columns), strict=True):
        fresh[name][topic] = messages
    if _has_another_topic(claims, known, sds_messages):
        raise WholeRunNeeded("a channel got its first message on another content topic")
    grown = {name: _grown(known.channels[name], topics) for name, topics in fresh.items() if name in known.channels}
    return CountedTopics(channels={**known.channels, **grown}, is_complete=known.is_complete)


def _grown(known: TopicCount, fresh: dict[str | None, int]) -> TopicCount:
    total = known.total + sum(fresh.values())
    grown = TopicCount(known.topic, known.most + fresh.get(known.topic, 0), total)
    # Of the other topics only the total number of messages is known.
    others = [known.total - known.most + messages for topic, messages in fresh.items() if topic != known.topic]
    if grown.is_decided != known.is_decided or any(is_enough(most, total) for most in others):
        raise WholeRunNeeded("a channel may be on another content topic than before")
    return grown


def _has_another_topic(claims: pa.Table, known: CountedTopics, sds_messages: HeldRows) -> bool:
    """Return whether a channel whose messages had one topic now has messages on several."""
    had_one = pc.invert(pc.is_in(claims["channel_id"], value_set=pa.array(known.channels, pa.string())))
    pairs = claims.filter(had_one).select(_KEY)
    chosen = of_channels(pairs["channel_id"].combine_chunks())
    for part in sds_messages.by_file():
        pairs = pa.concat_tables([pairs, part.found(("channel_id",), chosen, _KEY)])
        pairs = pairs.group_by(_KEY, use_threads=False).aggregate([])
    return bool(pairs.num_rows > len(pairs["channel_id"].unique()))
