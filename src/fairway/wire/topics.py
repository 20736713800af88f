"""Content topics, their shards, and the pubsub topics of shards (23/WAKU2-TOPICS, RELAY-SHARDING).

An application selects messages by content topic. A pubsub topic names the gossip mesh that carries them. Autosharding
derives the pubsub topic from the content topic. Invariant: `str` returns exactly the text that `ContentTopic.parse` or
`StaticShard.parse` accepted, because filters, stores and message hashes compare topics byte by byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final, Self

from fairway.errors import ConfigurationError

CLUSTER_COUNT: Final = 65_536
"""RELAY-SHARDING, "Static Sharding": 2**16 clusters."""

SHARDS_PER_CLUSTER: Final = 1_024
"""RELAY-SHARDING, "Static Sharding": 1024 shards in each."""

_MAX_DIGITS: Final = 10
_SHOWN_CHARACTERS: Final = 120


def _shown(text: str) -> str:
    """Return the text in quotes, cut to a length that fits a log line."""
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")


def _decimal(text: str) -> int | None:
    """Return the number whose canonical spelling is ``text``; None for other texts."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        return None
    return None if text[0] == "0" and text != "0" else int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentTopic:
    """A content topic in parts: ``/[generation/]application/version/name/encoding`` (23/WAKU2-TOPICS)."""

    application: str
    """Name of the application; determines the shard together with the version."""
    version: str
    """Version of the application."""
    name: str
    """Subject of the topic; does not affect the shard."""
    encoding: str
    """Encoding of payloads, for example ``proto``."""
    generation: int | None = None
    """Generation of autosharding; ``None`` if the topic does not have it, which means 0."""

    def __post_init__(self) -> None:
        for part in (self.application, self.version, self.name, self.encoding):
            if not part or "/" in part:
                raise ConfigurationError(
                    f"application, version, name and encoding of a content topic must not be empty "
                    f"nor contain '/', which {_shown(part)} is or does"
                )
        if self.generation is not None and not 0 <= self.generation < 10**_MAX_DIGITS:
            raise ConfigurationError(f"the generation of a content topic must be 0 or more: {self.generation}")

    def __str__(self) -> str:
        prefix = "" if self.generation is None else f"/{self.generation}"
        return f"{prefix}/{self.application}/{self.version}/{self.name}/{self.encoding}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return ``text`` in parts, or raise `ConfigurationError` with the text and the expected form.

        RELAY-SHARDING, "Content Topics Format for Autosharding": content topics MUST follow 23/WAKU2-TOPICS; they MAY
        begin with a generation.
        """
        parts = text.split("/")
        generation = _decimal(parts[1]) if len(parts) == 6 else None
        if parts[0] or len(parts) not in {5, 6} or (len(parts) == 6 and generation is None) or "" in parts[1:]:
            raise ConfigurationError(
                f"{_shown(text)} is not a content topic; expected /application/version/name/encoding, or "
                "that behind a generation number as in /0/application/version/name/encoding"
            )
        application, version, name, encoding = parts[-4:]
        return cls(application=application, version=version, name=name, encoding=encoding, generation=generation)


def default_topic(channel_id: str) -> str:
    """Return ``/fairway/1/<channel id>/proto``; raise `ConfigurationError` if the id does not fit a topic."""
    if not channel_id or "/" in channel_id:
        raise ConfigurationError(
            f"the channel id {channel_id!r} cannot be part of a content topic; "
            "give the topic yourself (--topic, or content_topic), such as /my-app/1/team/proto"
        )
    return f"/fairway/1/{channel_id}/proto"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticShard:
    """A shard of a cluster, the pair in a pubsub topic ``/waku/2/rs/{cluster}/{shard}``."""

    cluster_id: int
    """0 to 65,535."""
    shard: int
    """0 to 1,023."""

    def __post_init__(self) -> None:
        if not 0 <= self.cluster_id < CLUSTER_COUNT:
            raise ConfigurationError(f"cluster_id must lie in 0..{CLUSTER_COUNT - 1}, not {self.cluster_id}")
        if not 0 <= self.shard < SHARDS_PER_CLUSTER:
            raise ConfigurationError(f"shard must lie in 0..{SHARDS_PER_CLUSTER - 1}, not {self.shard}")

    def __str__(self) -> str:
        return f"/waku/2/rs/{self.cluster_id}/{self.shard}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the shard that the pubsub topic ``text`` names, or raise `ConfigurationError`."""
        match text.split("/"):
            case ["", "waku", "2", "rs", cluster_text, shard_text]:
                cluster_id, shard = _decimal(cluster_text), _decimal(shard_text)
            case _:
                cluster_id = shard = None
        if cluster_id is None or shard is None:
            raise ConfigurationError(
                f"{_shown(text)} is not the pubsub topic of a shard; expected /waku/2/rs/cluster/shard "
                "with two decimal numbers, as in /waku/2/rs/1/0"
            )
        return cls(cluster_id=cluster_id, shard=shard)


def shard_of(content_topic: str | ContentTopic, shard_count: int) -> int:
    """Return the shard of ``content_topic`` by autosharding in a cluster of ``shard_count`` shards.

    RELAY-SHARDING, "Automatic Sharding", "Algorithm": SHA-256 over application and version, modulo the number of
    shards. Implementations reduce only the last eight bytes, and so does this function. For a power of two, which every
    network has, the result is the same. Raises `ConfigurationError`.
    """
    if not 1 <= shard_count <= SHARDS_PER_CLUSTER:
        raise ConfigurationError(f"shard_count must lie in 1..{SHARDS_PER_CLUSTER}, not {shard_count}")
    topic = ContentTopic.parse(content_topic) if isinstance(content_topic, str) else content_topic
    if topic.generation:
        raise ConfigurationError(
            f"{_shown(str(topic))} has generation {topic.generation}; sharding is only defined for generation 0"
        )
    try:
        digest = sha256((topic.application + topic.version).encode()).digest()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"{_shown(str(topic))} is not Unicode text: {error}") from error
    return int.from_bytes(digest[-8:], "big") % shard_count


def pubsub_topic(cluster_id: int, shard: int) -> str:
    """Return ``/waku/2/rs/{cluster_id}/{shard}``, or raise `ConfigurationError` for numbers out of range."""
    return str(StaticShard(cluster_id=cluster_id, shard=shard))


def autoshard(content_topic: str | ContentTopic, cluster_id: int, shard_count: int) -> str:
    """Return the pubsub topic that carries ``content_topic``; raise as `shard_of` does."""
    return pubsub_topic(cluster_id, shard_of(content_topic, shard_count))
