"""`ServedTopics`: the pubsub topics that a node serves: those of its options, and further ones.

Pure. A further topic is served until each `join` had its `leave`. Those of the options are joined once and never left.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from collections.abc import Set as AbstractSet
from typing import Final

from fairway.errors import ConfigurationError
from fairway.wire.topics import StaticShard

MAX_PUBSUB_TOPICS: Final = 1_024
"""Pubsub topics of one node; other nodes remember as many of a peer."""


class ServedTopics:
    """The pubsub topics of one node."""

    def __init__(self, cluster_id: int, configured: Iterable[str]) -> None:
        self._cluster_id: Final = cluster_id
        self._joined = dict.fromkeys(configured, 1)
        self.now: Final[KeysView[str]] = self._joined.keys()
        """The topics that are served at present; it changes with `join` and `leave`."""
        self.begun = len(self._joined)
        """Topics that began to be served since the start."""
        self.ended = 0
        """Topics that are no longer served."""

    def join(self, pubsub_topics: AbstractSet[str]) -> list[str]:
        """Serve topics until `leave`; return those that are new.

        Raises `ConfigurationError` and changes nothing if a topic is no shard, or beyond `MAX_PUBSUB_TOPICS`.
        """
        new = [topic for topic in pubsub_topics if topic not in self._joined]
        for topic in new:
            StaticShard.parse(topic)
        if len(self._joined) + len(new) > MAX_PUBSUB_TOPICS:
            raise ConfigurationError(
                f"a node serves at most {MAX_PUBSUB_TOPICS} pubsub topics; unsubscribe from others first"
            )
        for topic in pubsub_topics:
            self._joined[topic] = self._joined.get(topic, 0) + 1
        self.begun += len(new)
        return new

    def leave(self, pubsub_topics: AbstractSet[str]) -> list[str]:
        """Undo a `join`; return the topics that are no longer served."""
        for topic in pubsub_topics:
            self._joined[topic] -= 1
        gone = [topic for topic in pubsub_topics if not self._joined[topic]]
        for topic in gone:
            del self._joined[topic]
        self.ended += len(gone)
        return gone

    def shards(self) -> tuple[int, ...]:
        """Return the shards that are served of the node's own cluster, in order."""
        known = map(StaticShard.parse, self._joined)
        return tuple(sorted(shard.shard for shard in known if shard.cluster_id == self._cluster_id))
