"""The options that every command with a channel takes, and the settings that they make."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairway.apps.settings import ChannelSettings, load_options, shared_key
from fairway.errors import ConfigurationError
from fairway.options import Profile

_TAKING_PART = "Taking part"
_TUNING = "Tuning"

Node = Annotated[
    str | None,
    typer.Option(
        "--node",
        metavar="ADDRESS",
        envvar="FAIRWAY_NODE",
        help="Where the node is, such as local://127.0.0.1:4000, which 'fairway network' prints.",
        rich_help_panel=_TAKING_PART,
    ),
]
Channel = Annotated[
    str | None,
    typer.Option(
        "--channel",
        metavar="NAME",
        envvar="FAIRWAY_CHANNEL",
        help="The channel, the same for all participants.",
        rich_help_panel=_TAKING_PART,
    ),
]
Sender = Annotated[
    str | None,
    typer.Option(
        "--sender",
        metavar="NAME",
        envvar="FAIRWAY_SENDER",
        help="Who you are: unique in the channel, and the same at every start.",
        rich_help_panel=_TAKING_PART,
    ),
]
Topic = Annotated[
    str | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="Content topic, the same for all; /fairway/1/CHANNEL/proto if none.",
        rich_help_panel=_TAKING_PART,
    ),
]
Store = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="PATH",
        envvar="FAIRWAY_STORE",
        help="File in which the channel survives a crash; without one it lives in memory.",
        rich_help_panel=_TAKING_PART,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="HEX",
        envvar="FAIRWAY_KEY",
        help="Key that the group shares, 64 hex digits: AES-256-GCM as in 26/WAKU2-PAYLOAD.",
        rich_help_panel=_TAKING_PART,
    ),
]
WireProfile = Annotated[
    Profile | None,
    typer.Option("--profile", help="Which wire the channel speaks; waku if none.", rich_help_panel=_TUNING),
]
OptionsFile = Annotated[
    Path | None,
    typer.Option("--options", metavar="FILE", help="JSON object of ReliableChannelOptions.", rich_help_panel=_TUNING),
]
RetryInterval = Annotated[
    int | None,
    typer.Option(
        "--retry-interval-ms",
        metavar="MS",
        help="Unacknowledged messages are sent again after this.",
        rich_help_panel=_TUNING,
    ),
]
SyncInterval = Annotated[
    int | None,
    typer.Option(
        "--sync-interval-ms",
        metavar="MS",
        help="Sync messages go out at a random time within this.",
        rich_help_panel=_TUNING,
    ),
]
MaxMessage = Annotated[
    int | None,
    typer.Option("--max-message-bytes", metavar="BYTES", help="Larger messages are refused.", rich_help_panel=_TUNING),
]


def settings_of(
    *,
    node: str | None,
    channel: str | None,
    sender: str | None,
    topic: str | None,
    store: Path | None,
    key: str | None,
    profile: Profile | None,
    options_file: Path | None,
    retry_interval_ms: int | None,
    sync_interval_ms: int | None,
    max_message_bytes: int | None,
) -> ChannelSettings:
    """Return the settings that the options say; raise `ConfigurationError` if one is missing or cannot work."""
    return ChannelSettings(
        node=_given(node, "--node", "FAIRWAY_NODE", "run 'fairway network' in another terminal to have one"),
        channel_id=_given(channel, "--channel", "FAIRWAY_CHANNEL", "any name that all participants use"),
        sender_id=_given(sender, "--sender", "FAIRWAY_SENDER", "any name that nobody else has in the channel"),
        content_topic=topic,
        store=store,
        options=load_options(
            profile=profile,
            file=options_file,
            retry_interval_ms=retry_interval_ms,
            sync_interval_ms=sync_interval_ms,
            max_message_bytes=max_message_bytes,
        ),
        encryption=shared_key(key) if key is not None else None,
    )


def _given(value: str | None, option: str, variable: str, hint: str) -> str:
    if not value:
        raise ConfigurationError(f"{option} is missing; give it, or set {variable}: {hint}")
    return value
