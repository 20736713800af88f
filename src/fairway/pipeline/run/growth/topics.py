"""Check that new messages do not change the topic of a channel.

The topic is decided from all messages of a channel (`fairway.pipeline.run.topics`), so that more messages may change
it. Then rows move into or out of the quarantine, which needs a whole run.
"""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from fairway.pipeline.run.growth.held_rows import HeldRows, among
from fairway.pipeline.run.growth.whole_run import WholeRunNeeded
from fairway.pipeline.run.topics import CountedTopics, TopicCount, is_enough

_KEY = ("channel_id", "content_topic")


def grown_topics(known: CountedTopics, claims: pa.Table, sds_messages: HeldRows) -> CountedTopics:
    """Return which channels have messages on several topics, including new messages (`CLAIMS`).

    Raises `WholeRunNeeded` if a channel may be on another topic than before, or on a topic without a count.
    """
    fresh: defaultdict[str, dict[str | None, int]] = defaultdict(dict)
    for name, topic, messages in zip(*(column.to_pylist() for column in claims.columns), strict=True):
        fresh[name][topic] = messages
    further = [name for name, topics in fresh.items() if name not in known.channels and len(topics) > 1]
    if further or _are_elsewhere(claims, known, sds_messages):
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


def _are_elsewhere(claims: pa.Table, known: CountedTopics, sds_messages: HeldRows) -> bool:
    """Return whether a channel that had one topic has old messages on another topic than the new ones."""
    has_one = pc.invert(pc.is_in(claims["channel_id"], value_set=pa.array(known.channels, pa.string())))
    claims = claims.filter(has_one).combine_chunks()
    wanted = dict(zip(*(claims[name].to_pylist() for name in _KEY), strict=True))
    # All messages of such a channel are on one topic, so any one message shows it.
    for part in sds_messages.by_file():
        if not wanted:
            return False
        channels = pa.chunked_array([pa.array(wanted, pa.string())])
        of_channels = among(pa.table([channels], names=["channel_id"]), ("channel_id",))
        pairs = part.found(_KEY, of_channels, _KEY).group_by(list(_KEY), use_threads=False).aggregate([])
        for name, topic in zip(*(pairs[name].to_pylist() for name in _KEY), strict=True):
            if wanted.pop(name, topic) != topic:
                return True
    return False
