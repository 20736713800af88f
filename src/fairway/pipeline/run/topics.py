"""Infers the content topic of a channel that has none in the options: the topic of nearly all of its messages.

Every WakuMessage with a decodable SDS message is counted once. A channel belongs to a topic if it has at least
`MIN_MESSAGES` and `MOST_PERCENT` of them are on that topic. Its messages on other topics are ``wrong-topic``. Only
channels with several topics are kept, each with its most frequent topic.

The counts of two sets of messages add up. So they depend neither on partitions nor on the order of rows. A run that
grows uses them to check whether the topic would change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

MIN_MESSAGES: Final = 100
"""Least number of messages for a topic: with fewer, one message would be more than 1 %."""
MOST_PERCENT: Final = 99
_MOST_SMALL: Final = 1_000
"""Smaller channels with several topics that one task keeps; a sender can invent any number of them."""

CLAIMS: Final = pa.schema([("channel_id", pa.string()), ("content_topic", pa.string()), ("messages", pa.int64())])
"""Counts of messages by channel and content topic."""


class TopicCount(NamedTuple):
    """A channel with messages on several content topics."""

    topic: str | None
    """One of the most frequent topics; of several the first by name."""
    most: int
    """Messages on this topic."""
    total: int
    """Messages on any topic."""

    @property
    def is_decided(self) -> bool:
        """Return whether the channel belongs to this topic."""
        return self.topic is not None and is_enough(self.most, self.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedTopics:
    """The channels of a run with messages on several content topics."""

    channels: Mapping[str, TopicCount] = field(default_factory=dict)
    is_complete: bool = True
    """Whether no such channel was omitted because of the limit."""

    def decided(self) -> dict[str, str]:
        """Return the topics of the channels with a decided topic, though some of their messages are on others."""
        return {
            name: found.topic for name, found in self.channels.items() if found.is_decided and found.topic is not None
        }

    def as_json(self) -> dict[str, Any]:
        """Return the value as JSON types."""
        return {"complete": self.is_complete, "channels": [[name, *told] for name, told in self.channels.items()]}

    @classmethod
    def from_json(cls, told: Iterable[Mapping[str, Any]]) -> CountedTopics:
        """Return the union of several results of `as_json`, which share no channel."""
        parts = list(told)
        rows = [row for part in parts for row in part["channels"]]
        return cls(
            channels={name: TopicCount(*counts) for name, *counts in sorted(rows, key=lambda row: str(row[0]))},
            is_complete=all(part["complete"] for part in parts),
        )


def is_enough(count: int, total: int) -> bool:
    """Return whether ``count`` of ``total`` messages of a channel decide its topic."""
    return total >= MIN_MESSAGES and count * 100 >= total * MOST_PERCENT


def claims_in(decoded: pa.Table) -> pa.Table:
    """Return the claims (`CLAIMS`) of decodable messages."""
    keys = decoded.select(CLAIMS.names[:2])
    counted = keys.group_by(keys.column_names, use_threads=False).aggregate([([], "count_all")])
    return counted.select([*keys.column_names, "count_all"]).rename_columns(CLAIMS.names).cast(CLAIMS)


def sum_of(claims: Iterable[pa.Table]) -> pa.Table:
    """Return claims (`CLAIMS`) added up."""
    keys = CLAIMS.names[:2]
    together = pa.concat_tables([CLAIMS.empty_table(), *claims])
    found = together.group_by(keys, use_threads=False).aggregate([("messages", "sum")])
    return found.select([*keys, "messages_sum"]).rename_columns(CLAIMS.names).cast(CLAIMS)


def several_topics(claims: pa.Table) -> CountedTopics:
    """Return the channels with messages on several topics; ``claims`` has all claims of its channels, added up."""
    found = claims.group_by("channel_id", use_threads=False).aggregate(
        [("messages", "count"), ("messages", "sum"), ("messages", "max")]
    )
    found = found.filter(pc.greater(found["messages_count"], 1))
    is_small = pc.less(found["messages_sum"], MIN_MESSAGES)
    is_complete = (pc.sum(is_small).as_py() or 0) <= _MOST_SMALL
    if not is_complete:
        found = found.filter(pc.invert(is_small))
    names = found["channel_id"].combine_chunks()
    most = found["messages_max"].take(pc.index_in(claims["channel_id"], value_set=names))
    first = claims.filter(pc.equal(claims["messages"], most).fill_null(fill_value=False))
    first = first.group_by("channel_id", use_threads=False).aggregate([("content_topic", "min")])
    topics = first["content_topic_min"].take(pc.index_in(names, value_set=first["channel_id"].combine_chunks()))
    rows = zip(
        names.to_pylist(),
        topics.to_pylist(),
        found["messages_max"].to_pylist(),
        found["messages_sum"].to_pylist(),
        strict=True,
    )
    return CountedTopics(
        channels={name: TopicCount(topic, count, total) for name, topic, count, total in rows}, is_complete=is_complete
    )
