"""``fairway participant``: a participant for scripts, run by `fairway.apps.participant`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from fairway.apps.participant import Reporting, run_participant
from fairway.apps.settings import ChannelSettings
from fairway.cli._channel_options import with_settings


@with_settings
def command(
    settings: ChannelSettings,
    *,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save files into FOLDER under their names, and other payloads as FOLDER/MESSAGE_ID, before their "
            "lines, which say where.",
        ),
    ] = None,
    payloads: Annotated[
        bool, typer.Option("--payloads", help="Let the lines of received messages carry payload_base64.")
    ] = False,
) -> None:
    """Take part in a channel, driven by JSON lines on stdin; every event is a JSON line on stdout.

    Commands: {"command":"send","text":"hello"} with base64 or file in place of text, and request_id, count, by and
    tag if you like; send_ephemeral; statistics; status; stop. Each is answered by a line: "accepted" (the message is
    durable), "statistics", "state", "stopped", or "error" with what is wrong.

    A received message is finished when its line is written. One that was not comes again after a crash, with
    "redelivered" true. The end of stdin, SIGTERM and SIGINT stop it, with exit code 0; 2 if it could not run.

    Example: [bold]echo '{"command":"send","text":"hello"}' | fairway participant --node /ip4/127.0.0.1/tcp/60000
    --channel team --sender alice --store alice.db[/bold]
    """
    asyncio.run(
        run_participant(
            settings,
            Reporting(save=save, payloads=payloads),
            commands=sys.stdin.fileno(),
            events=sys.stdout.fileno(),
        )
    )
