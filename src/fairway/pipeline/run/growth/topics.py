"""Whether a channel is on the topic that it was on before, after new messages claim it.

What is decided from all messages of a channel (`fairway.pipeline.run.topics`) may turn out otherwise with more of them.
Then rows of other tables would have to come back from the quarantine, or go there: that is for a whole run.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fairway.pipeline.run.growth.held_rows import HeldRows
from fairway.pipeline.run.growth.whole_run import WholeRunNeeded
from fairway.pipeline.run.topics import CountedTopics, TopicCount, is_enough

_KEY = ("channel_id", "content_topic")


def grown_topics(known: CountedTopics, claims: pa.Table, sds_messages: HeldRows) -> CountedTopics:
    """Return which channels have messages on several topics, with those of new messages (`CLAIMS`).

    Raises `WholeRunNeeded` if a channel may be on another topic than before, or on one that nobody counted yet.
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
    # Of the other topics only is known how many messages they have together.
    others = [known.total - known.most + messages for topic, messages in fresh.items() if topic != known.topic]
    if grown.is_decided != known.is_decided or any(is_enough(most, total) for most in others):
        raise WholeRunNeeded("a channel may be on another content topic than before")
    return grown


def _are_elsewhere(claims: pa.Table, known: CountedTopics, sds_messages: HeldRows) -> bool:
    """Return whether there are messages of a channel that had one topic, on another than the new ones are on."""
    has_one = pc.invert(pc.is_in(claims["channel_id"], value_set=pa.array(known.channels, pa.string())))
    claims = claims.filter(has_one).combine_chunks()
    names, topics = (claims[name].combine_chunks() for name in _KEY)

    def chosen(rows: pa.Table) -> NDArray[np.bool_]:
        places = pc.index_in(rows["channel_id"], value_set=names)
        same = pc.fill_null(pc.equal(topics.take(places), rows["content_topic"]), fill_value=False)
        # Null is a topic as well.
        same = pc.or_(same, pc.and_(topics.take(places).is_null(), rows["content_topic"].is_null()))
        elsewhere: NDArray[np.bool_] = pc.and_(places.is_valid(), pc.invert(same)).to_numpy()
        return elsewhere

    return bool(len(names)) and sds_messages.found(_KEY, chosen, _KEY).num_rows > 0
