"""The options of the pipeline's commands that select messages of archives and name their channels."""

from __future__ import annotations

from typing import Annotated

import typer

Since = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="Only messages from this time on, such as 2026-01-31T10:55:00Z."),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only messages up to this time.")]
Channels = Annotated[
    list[str] | None,
    typer.Option("--channel", metavar="ID", help="Only this channel. Repeatable.", show_default="all"),
]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="Only this content topic. Repeatable.", show_default="all"),
]
TopicPattern = Annotated[
    str | None,
    typer.Option("--topic-pattern", metavar="REGEX", help="Only content topics that match.", show_default="all"),
]
ChannelTopicPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--channel-topic",
        metavar="CHANNEL=TOPIC",
        help="The content topic of a channel: messages on others are no part of it. Repeatable.",
        show_default="any",
    ),
]
