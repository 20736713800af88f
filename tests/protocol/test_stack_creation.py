"""What a stack cannot be made with is refused before anything happens, and the text says what is expected."""

from __future__ import annotations

import pytest

from fairway.errors import ConfigurationError
from fairway.protocol.stack import Stack


@pytest.mark.parametrize(
    ("content_topic", "text"),
    [
        ("", "expected /application/version/name/encoding"),
        ("harbour", "'harbour' is not a content topic"),
        ("/fairway/1/harbour", "is not a content topic"),
        ("/fairway/1/harbour/proto/", "is not a content topic"),
        ("/fairway/1//proto", "is not a content topic"),
        ("/2/fairway/1/harbour/proto", "has generation 2"),
        ("/fair\ud800way/1/harbour/proto", "is not Unicode text"),
        ("/fairway/1/har\ud800bour/proto", "cannot be encoded"),
    ],
)
def test_a_content_topic_that_does_not_parse_is_refused(start_ms, content_topic, text):
    with pytest.raises(ConfigurationError, match=text):
        Stack("harbour", "alice", content_topic, now_ms=start_ms, seed=b"seed")


@pytest.mark.parametrize(("channel_id", "sender_id"), [("", "alice"), ("harbour", ""), ("harbour", "a" * 257)])
def test_names_that_nobody_can_use_are_refused(start_ms, topic, channel_id, sender_id):
    with pytest.raises(ConfigurationError, match=r"_id (must not be empty|has 257 bytes)"):
        Stack(channel_id, sender_id, topic, now_ms=start_ms, seed=b"seed")
