"""``fairway node``: a Waku service node, for light clients, other nodes, and tools that speak nwaku's REST API."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from fairway.apps.service_node import NodeSettings, parse_duration, parse_size, request_rate, serve
from fairway.service.archives import Retention
from fairway.service.options import DEFAULT_CLUSTER, DEFAULT_SHARD_COUNT, ServiceOptions
from fairway.service.rest.options import NWAKU_CACHE_MESSAGES, RestOptions

_PORT = {"min": 0, "max": 65535}


def command(
    *,
    host: Annotated[str, typer.Option(help="Address to listen on. Others than loopback are for others to reach.")] = (
        "127.0.0.1"
    ),
    tcp_port: Annotated[int, typer.Option(**_PORT, help="libp2p over TCP; 0 takes any free port.")] = 0,
    ws_port: Annotated[int, typer.Option(**_PORT, help="libp2p over WebSocket, for browsers; 0: any free port.")] = 0,
    rest_port: Annotated[
        int, typer.Option(**_PORT, help="REST API and metrics, as nwaku has them; 0 takes any free port.")
    ] = 0,
    no_rest: Annotated[bool, typer.Option("--no-rest", help="Serve no REST API.")] = False,
    rest_host: Annotated[
        str, typer.Option(help="Address of the REST API, which has no accounts: keep it out of others' reach.")
    ] = "127.0.0.1",
    rest_origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of web pages that may use the REST API, or '*'; may be given several times."),
    ] = None,
    rest_cache: Annotated[
        int, typer.Option(min=1, help="Messages that wait to be fetched by REST clients.")
    ] = NWAKU_CACHE_MESSAGES,
    cluster: Annotated[int, typer.Option(min=0, help="The network: 1 is The Waku Network.")] = DEFAULT_CLUSTER,
    shard: Annotated[
        list[int] | None, typer.Option(help="A shard to serve; may be given several times.", show_default="all")
    ] = None,
    shards: Annotated[int, typer.Option(min=1, help="How many shards the cluster has.")] = DEFAULT_SHARD_COUNT,
    archive: Annotated[
        str,
        typer.Option(
            help="Where messages are kept: sqlite:PATH, postgresql://user@host/db (nwaku's layouts) or memory:."
        ),
    ] = "memory:",
    keep: Annotated[str, typer.Option(help="For how long: 12h, 30d, or 'forever'.")] = "30d",
    keep_size: Annotated[
        str | None, typer.Option(help="How much at most: 500MB, 20GB.", show_default="no limit")
    ] = None,
    peer: Annotated[
        list[str] | None, typer.Option(help="Multiaddr of a node to stay connected to; may be given several times.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="File with the node's key, made if it is not there.", show_default="a new key")
    ] = None,
    requests_per_second: Annotated[
        float, typer.Option(min=0, help="What each peer may ask of each service in the long run; 0: no limit.")
    ] = 200.0,
    loss: Annotated[float, typer.Option(help="For tests: share of messages that the node loses, 0 to 1.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="For tests: the same seed loses the same messages.")] = None,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", help="Stop also when standard input ends: a child of a program.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines; the first one, once ready, is who and where.")
    ] = False,
) -> None:
    """Serve the Waku network: relay, light push, filter and store, over TCP and WebSocket, and nwaku's REST API.

    Runs until Ctrl-C or SIGTERM. Programs connect to one of the addresses that it prints:
    fairway.connect("/ip4/127.0.0.1/tcp/60000/p2p/16Uiu2..."), or js-waku with the one that has /ws in it. The REST API
    has a page about itself at /docs.

    Examples: [bold]fairway node --tcp-port 60000 --ws-port 8000 --archive sqlite:messages.db[/bold]

    [bold]fairway node --cluster 16 --shards 1 --peer /ip4/192.0.2.7/tcp/60000/p2p/16Uiu2...[/bold]
    """
    options = ServiceOptions(
        cluster_id=cluster,
        shards=tuple(shard) if shard else tuple(range(shards)),
        shard_count=shards,
        host=host,
        tcp_port=tcp_port,
        ws_port=ws_port,
        peers=tuple(peer or ()),
        archive=archive,
        retention=Retention(max_age_s=parse_duration(keep), max_bytes=parse_size(keep_size)),
        request_rate=request_rate(requests_per_second),
        loss=loss,
        seed=seed,
    )
    rest = RestOptions(
        host=rest_host, port=rest_port, allowed_origins=tuple(rest_origin or ()), cache_messages=rest_cache
    )
    settings = NodeSettings(
        options=options,
        rest=None if no_rest else rest,
        key=key,
        until_stdin_closes=until_stdin_closes,
        as_json=as_json,
    )
    asyncio.run(serve(settings, typer.echo))
