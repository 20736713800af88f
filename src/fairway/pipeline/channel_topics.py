"""The content topics of channels, as given by an operator.

A sender can write the name of a channel into a message on any content topic. Participants do not receive it, because a
channel is on one topic (RELIABLE-CHANNEL-API, "Create Reliable Channel"), but an archive of many topics has it. If the
topic of a channel is known, its messages on other topics are put in quarantine as ``wrong-topic``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairway.errors import ConfigurationError
from fairway.wire.topics import ContentTopic

ChannelTopics = Mapping[str, str]
"""The content topics of channels, by channel id."""


def check_channel_topics(topics: ChannelTopics) -> None:
    """Raise `ConfigurationError` for an empty channel id or an invalid content topic."""
    for channel_id, topic in topics.items():
        if not channel_id:
            raise ConfigurationError(f"channel_topics has {topic!r} for a channel without a name: give its id")
        try:
            ContentTopic.parse(topic)
        except ConfigurationError as error:
            raise ConfigurationError(f"channel_topics, channel {channel_id!r}: {error}") from error


def channel_topics_of(texts: Iterable[str] | None) -> dict[str, str]:
    """Return the topics of ``--channel-topic`` texts, each of the form ``CHANNEL=TOPIC``.

    A channel id may contain ``=``, but not ``=/``, because a topic begins with ``/``. Raises `ConfigurationError` for a
    text of another form, and for a channel with two topics.
    """
    topics: dict[str, str] = {}
    for text in texts or ():
        channel_id, separator, rest = text.partition("=/")
        if not (channel_id and separator):
            raise ConfigurationError(
                f"--channel-topic {text!r} is not CHANNEL=TOPIC; give a channel id and its content topic, such as "
                "team=/my-app/1/team/proto"
            )
        topic = f"/{rest}"
        if topics.setdefault(channel_id, topic) != topic:
            raise ConfigurationError(
                f"--channel-topic gives channel {channel_id!r} the topics {topics[channel_id]} and {topic}; a channel "
                "is on one: leave the other one out"
            )
    check_channel_topics(topics)
    return topics


def topic_of(channel_id: str, given: str | None, topics: ChannelTopics) -> str | None:
    """Return the content topic of a channel by ``--topic`` or ``--channel-topic``; None if neither names it.

    Raises `ConfigurationError` if the two options name different topics.
    """
    known = topics.get(channel_id, given)
    if given not in {None, known}:
        raise ConfigurationError(
            f"--topic says {given} of channel {channel_id!r}, --channel-topic says {known}: a channel is on one topic, "
            "leave the wrong one out"
        )
    return known


def topic_refusal(topics: ChannelTopics, channel_id: str, content_topic: str | None) -> str | None:
    """Return the reason why a message on a content topic is not of a channel; None if it is on the channel's topic."""
    expected = topics.get(channel_id, content_topic)
    if expected == content_topic:
        return None
    return f"channel {channel_id!r} is on {expected}, and this message on {content_topic}"
