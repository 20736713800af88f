"""``fairway network``: a simulated Waku network on this machine, for trying programs together."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fairway.storage.nwaku_archive import NwakuArchive
from fairway.waku.local import LocalNetwork, NetworkFaults, NetworkServer
from fairway.waku.local.hub import serve_until_stopped


def command(
    *,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free port.")] = 0,
    loss: Annotated[float, typer.Option(help="Share of deliveries that are lost, 0 to 1.")] = 0.0,
    duplication: Annotated[float, typer.Option(help="Share of deliveries that are doubled, 0 to 1.")] = 0.0,
    min_delay_ms: Annotated[int, typer.Option(help="Shortest delay of a hop, milliseconds.")] = 0,
    max_delay_ms: Annotated[
        int, typer.Option(help="Longest delay of a hop, milliseconds; a larger span reorders more.")
    ] = 0,
    store_loss: Annotated[float, typer.Option(help="Share of messages that the store does not get, 0 to 1.")] = 0.0,
    store_lag_ms: Annotated[int, typer.Option(help="Delay with which a message enters the store, milliseconds.")] = 0,
    store_lies: Annotated[float, typer.Option(help="Share of the store's answers that are false, 0 to 1.")] = 0.0,
    answer_loss: Annotated[
        float, typer.Option(help="Share of messages that are accepted while the answer is lost, 0 to 1.")
    ] = 0.0,
    too_many_requests: Annotated[float, typer.Option(help="Share of messages refused with 429, 0 to 1.")] = 0.0,
    invalid_message: Annotated[float, typer.Option(help="Share of messages refused with 420, 0 to 1.")] = 0.0,
    no_peers_to_relay: Annotated[float, typer.Option(help="Share of messages refused with 503 or 505, 0 to 1.")] = 0.0,
    unwanted: Annotated[float, typer.Option(help="Share of payloads refused each time with 420, 0 to 1.")] = 0.0,
    rate_limit: Annotated[
        int | None, typer.Option(help="Messages that each node may send in ten minutes.", show_default="no limit")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed loses the same messages.")] = 0,
    archive: Annotated[
        Path | None, typer.Option(help="Keep what is sent here, as a nwaku store would (SQLite); outlives the process.")
    ] = None,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", help="Stop also when standard input ends, for a child process.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines, for programs.")] = False,
) -> None:
    """Serve a simulated Waku network to programs on this machine, with faults that you choose.

    Prints its address, runs until Ctrl-C or SIGTERM, and ends with its counts. It can be killed and started again
    on the same port at any moment: programs come back by themselves.

    Examples: [bold]fairway network --port 60010 --loss 0.3[/bold]

    [bold]fairway network --json --min-delay-ms 20 --max-delay-ms 250 --archive messages.sqlite[/bold]
    """
    faults = NetworkFaults(
        loss=loss,
        duplication=duplication,
        min_delay_ms=min_delay_ms,
        max_delay_ms=max_delay_ms,
        store_loss=store_loss,
        store_lag_ms=store_lag_ms,
        store_lies=store_lies,
        answer_loss=answer_loss,
        too_many_requests=too_many_requests,
        invalid_message=invalid_message,
        no_peers_to_relay=no_peers_to_relay,
        unwanted=unwanted,
        messages_per_epoch=rate_limit,
    )
    network = LocalNetwork(faults, seed=seed, archive=None if archive is None else NwakuArchive(archive))

    def announce(server: NetworkServer) -> None:
        typer.echo(
            json.dumps({"address": server.address})
            if as_json
            else f"a local network is at {server.address}; Ctrl-C ends it"
        )

    asyncio.run(serve_until_stopped(network, on_ready=announce, port=port, until_stdin_closes=until_stdin_closes))
    statistics = asdict(network.statistics())
    if as_json:
        typer.echo(json.dumps({"statistics": statistics}))
    else:
        typer.echo(", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in statistics.items()))
