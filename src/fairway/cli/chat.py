"""``fairway chat``: a conversation on a terminal, by way of `fairway.apps.chat`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairway.apps.chat import chat
from fairway.apps.screen import PipeScreen, TerminalScreen
from fairway.apps.settings import ChannelSettings
from fairway.cli._channel_options import with_settings
from fairway.cli._console import PlainConsole


@with_settings
def command(
    settings: ChannelSettings,
    *,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Save files there by their names, what is no text as FOLDER/MESSAGE_ID."),
    ] = None,
) -> None:
    """Chat in a channel: each line that you type is sent, and received messages are shown.

    A line with a check mark says who has a message of yours. /file PATH sends a file, /who shows who acknowledged
    your last message, /waiting what waits for which missing message, /quit or Ctrl-D ends. Works with a pipe in place
    of a keyboard, too.

    Example: [bold]fairway chat --node /ip4/127.0.0.1/tcp/60000 --channel team --sender alice --store alice.db[/bold]
    """
    asyncio.run(_converse(settings, save))


async def _converse(settings: ChannelSettings, save: Path | None) -> None:
    console = PlainConsole(highlight=False)
    if sys.stdin.isatty() and console.is_terminal:
        screen = TerminalScreen(console, f"{settings.sender_id}> ")
        with screen.taken_over():
            await chat(settings, screen, save=save)
    else:
        await chat(settings, PipeScreen(console), save=save)
