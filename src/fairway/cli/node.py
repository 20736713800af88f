"""``fairway node``: a Waku service node, for light clients, other nodes, and tools that speak nwaku's REST API."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fairway.cli._config_file import read_config
from fairway.cli._log_lines import LogLevel, logging_to_stderr
from fairway.cli._node_process import RPC_VARIABLE, NodeRln, NodeSettings, request_rate, retention_of, serve
from fairway.cli._password import PASSWORD_VARIABLE, password_of
from fairway.errors import ConfigurationError
from fairway.libp2p.limits import HostLimits
from fairway.nodes.discovery.network import network_of
from fairway.nodes.discovery.peer_memory import default_state, peers_file
from fairway.nodes.protocols.rules import MAX_RELAYED_BYTES
from fairway.nodes.rest.address import token_in
from fairway.service.options import (
    DEFAULT_CLUSTER,
    DEFAULT_CONNECTIONS,
    DEFAULT_SHARD_COUNT,
    ServiceOptions,
    StoreSyncOptions,
)
from fairway.service.rest.options import RestOptions
from fairway.wire.topics import CLUSTER_COUNT, SHARDS_PER_CLUSTER

_NO_ARCHIVE = "none:"
_listening = partial(typer.Option, rich_help_panel="Where it is reached")
_port = partial(_listening, metavar="PORT", min=0, max=65535, show_default="any free one")
_network = partial(typer.Option, rich_help_panel="The network")
_archive = partial(typer.Option, rich_help_panel="The archive")
_rln = partial(typer.Option, rich_help_panel="Rate limits that members prove (RLN)")
_limits = partial(typer.Option, rich_help_panel="Limits and tests")


def command(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            is_eager=True,
            callback=read_config,
            help="TOML file with any of these options: tcp-port = 60000. The command line takes precedence.",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON lines; the first is printed when the node serves, with peer id and addresses."
        ),
    ] = False,
    until_stdin_closes: Annotated[
        bool, typer.Option("--until-stdin-closes", help="Stop when standard input ends, for a child process.")
    ] = False,
    log_level: Annotated[
        LogLevel, typer.Option("--log-level", help="Lowest level of the log on standard error.")
    ] = LogLevel.INFO,
    tcp_port: Annotated[int, _port(help="libp2p over TCP.")] = 0,
    ws_port: Annotated[int, _port(help="libp2p over WebSocket, for browsers.")] = 0,
    ws_origin: Annotated[
        list[str] | None,
        _listening(
            metavar="ORIGIN",
            help="Web pages that may use the WebSocket port, like https://app.example.org, or '*'. Repeatable.",
            show_default="those of this machine",
        ),
    ] = None,
    host: Annotated[
        str,
        _listening(
            metavar="ADDRESS",
            help="IP address of these two ports; 0.0.0.0 allows other machines.",
        ),
    ] = "127.0.0.1",
    tls_cert: Annotated[
        Path | None,
        _listening(
            metavar="FILE",
            help="Certificate (PEM, with its chain) for the WebSocket port, which then speaks TLS only: /tls/ws.",
        ),
    ] = None,
    tls_key: Annotated[
        Path | None, _listening(metavar="FILE", help="Key of that certificate (PEM, no password).")
    ] = None,
    announce: Annotated[
        list[str] | None,
        _listening(
            metavar="MULTIADDR",
            help="Address for other nodes, if a NAT or a proxy is in front of this one. Repeatable.",
            show_default="the listening addresses; for 0.0.0.0 those of this machine",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        _listening(
            "--key-file",
            metavar="FILE",
            help="File of the node's key, created if missing: keeps the peer id over restarts.",
            show_default="node.key in the folder of --state",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        _listening(
            metavar="DIR",
            help="Folder for the node's own state; one for each node.",
            show_default="~/.local/state/fairway, or in XDG_STATE_HOME",
        ),
    ] = None,
    rest_port: Annotated[int, _port(help="REST API and metrics, as in nwaku.")] = 0,
    rest_host: Annotated[
        str,
        _listening(
            metavar="ADDRESS",
            help="IP address of the REST API; without --rest-token-file do not expose it to other machines.",
        ),
    ] = "127.0.0.1",
    rest_token_file: Annotated[
        Path | None,
        _listening(
            metavar="FILE",
            help="File with a token that clients of the REST API must send: Authorization: Bearer TOKEN.",
        ),
    ] = None,
    rest_admin_token_file: Annotated[
        Path | None,
        _listening(
            metavar="FILE",
            help="File with the token for the whole API with /admin; --rest-token-file alone closes /admin.",
        ),
    ] = None,
    rest_tls_cert: Annotated[
        Path | None,
        _listening(
            metavar="FILE",
            help="Certificate (PEM, with its chain) for the REST API, which is then at https:// only.",
        ),
    ] = None,
    rest_tls_key: Annotated[
        Path | None, _listening(metavar="FILE", help="Key of that certificate (PEM, no password).")
    ] = None,
    rest_origin: Annotated[
        list[str] | None,
        _listening(
            metavar="ORIGIN",
            help="Web pages that may use the REST API, like https://app.example.org, or '*'; repeatable.",
        ),
    ] = None,
    no_rest: Annotated[bool, _listening("--no-rest", help="Serve no REST API.")] = False,
    peer: Annotated[
        list[str] | None,
        _network(metavar="MULTIADDR", help="A node to stay connected to, fairway or nwaku; repeatable."),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        _network(
            metavar="FILE",
            help="Certificate authorities (PEM) to trust beside the system's for nodes at /tls/ws.",
        ),
    ] = None,
    network: Annotated[
        str | None,
        _network(
            metavar="NAME|FILE",
            help="A network to join, with discovery of its nodes: twn, waku.test, logos.test, or a TOML file. Replaces "
            "--cluster and --shards.",
        ),
    ] = None,
    cluster: Annotated[
        int | None,
        _network(
            metavar="NUMBER",
            min=0,
            max=CLUSTER_COUNT - 1,
            help="1 is The Waku Network.",
            show_default=f"{DEFAULT_CLUSTER}",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        _network(
            metavar="NUMBER",
            min=0,
            max=SHARDS_PER_CLUSTER,
            help="Number of network shards in the cluster; 0: without autosharding.",
            show_default=f"{DEFAULT_SHARD_COUNT}; outside cluster {DEFAULT_CLUSTER} as many as --shard needs",
        ),
    ] = None,
    shard: Annotated[
        list[int] | None,
        _network(metavar="NUMBER", help="A network shard to serve; repeatable.", show_default="all"),
    ] = None,
    archive: Annotated[
        str,
        _archive(
            metavar="URL",
            help="Archive in nwaku's layout: sqlite:PATH, postgresql://user@host/db, memory:, or none:.",
        ),
    ] = "memory:",
    keep: Annotated[
        str,
        _archive(
            metavar="TIME",
            help="How long to keep messages: 12h, 30d, or 'forever'.",
            show_default="30d, an hour after a warning of what will be removed",
        ),
    ] = "30d",
    keep_size: Annotated[
        str | None,
        _archive(metavar="SIZE", help="Largest size of the archive: 500MB, 20GB.", show_default="no limit"),
    ] = None,
    store_sync: Annotated[
        bool,
        _archive(
            "--store-sync",
            help="Synchronize the archive with those of connected store nodes, fairway or nwaku; with --rln only "
            "those of --peer.",
        ),
    ] = False,
    store_sync_interval: Annotated[
        float, _archive(metavar="SECONDS", min=1, help="Time between two synchronizations, each with one node.")
    ] = StoreSyncOptions().interval_s,
    store_sync_range: Annotated[
        float, _archive(metavar="SECONDS", min=1, help="Age of the oldest messages that are synchronized.")
    ] = StoreSyncOptions().range_s,
    rln: Annotated[
        str | None,
        _rln(
            metavar="FILE|contract",
            help="Group whose members may send: relay and serve only messages with a proof. 'contract' is "
            f"the group of --network, read from a node of its chain at ${RPC_VARIABLE}.",
            show_default="no proofs are required",
        ),
    ] = None,
    rln_slash_log: Annotated[
        Path | None,
        _rln(metavar="FILE", help="Append the secrets that members reveal by sending more than they may."),
    ] = None,
    rln_keystore: Annotated[
        Path | None,
        _rln(
            metavar="FILE",
            help="Keystore with the node's own membership, for messages published by its REST API (/relay).",
        ),
    ] = None,
    rln_password_file: Annotated[
        Path | None,
        _rln(
            metavar="FILE",
            help=f"File whose first line is the password; without it ${PASSWORD_VARIABLE} is taken, or you are asked.",
        ),
    ] = None,
    requests_per_second: Annotated[
        float,
        _limits(
            metavar="NUMBER",
            min=0,
            help="Average requests a second from each peer to each service; 0: no limit.",
        ),
    ] = 200.0,
    max_connections: Annotated[
        int, _limits(metavar="NUMBER", min=16, help="libp2p connections, an eighth of them its own.")
    ] = DEFAULT_CONNECTIONS,
    max_connections_per_ip: Annotated[
        int,
        _limits(
            metavar="NUMBER",
            min=1,
            help="Connections from one IP address; raise it behind a proxy, which has one address for all.",
        ),
    ] = HostLimits().max_connections_per_ip,
    loss: Annotated[
        float,
        _limits(metavar="SHARE", min=0, max=1, help="For tests: share of messages that the node drops, 0 to 1."),
    ] = 0.0,
    seed: Annotated[int | None, _limits(metavar="NUMBER", help="For tests: seed of the dropped messages.")] = None,
) -> None:
    r"""Serve the Waku network: relay, light push, filter and store, over TCP and WebSocket, and nwaku's REST API.

    Runs until Ctrl-C or SIGTERM. Programs connect to one of the printed
    addresses: fairway.connect("/ip4/127.0.0.1/tcp/60000/p2p/16Uiu2..."), or
    js-waku to the one with /ws. The address of the REST API is a status page
    in a browser, and /docs describes the API.

    A node for the programs of this machine, with fixed ports:

    [bold]fairway node --tcp-port 60000 --ws-port 8000 --rest-port 8645 \
             --archive sqlite:messages.db[/bold]

    A node of a public network, which discovers its peers:

    [bold]fairway node --network twn --tcp-port 60000[/bold]

    A node of your own network, with at most 20 GB in PostgreSQL:

    [bold]fairway node --cluster 16 --shards 1 --peer /ip4/192.0.2.7/tcp/60000 \
             --archive postgresql://waku@127.0.0.1/waku --keep-size 20GB[/bold]
    """
    del config  # its callback has read it
    for certificate, its_key, prefix in ((tls_cert, tls_key, "--tls"), (rest_tls_cert, rest_tls_key, "--rest-tls")):
        if (certificate is None) != (its_key is None):
            raise ConfigurationError(f"a certificate and its key go together: give {prefix}-cert and {prefix}-key")
    if not store_sync and any(_is_given(context, f"store_sync_{name}") for name in ("interval", "range")):
        raise ConfigurationError("--store-sync-interval and --store-sync-range need --store-sync")
    joined = None if network is None else network_of(network)
    if joined is not None and (cluster is not None or shards is not None):
        raise ConfigurationError(f"--network {network} sets --cluster and --shards; leave these out")
    cluster_id = joined.cluster if joined else DEFAULT_CLUSTER if cluster is None else cluster
    shard_count = joined.shards if joined else _shards_of(cluster_id, shard or ()) if shards is None else shards
    kept = state or default_state()
    options = ServiceOptions(
        cluster_id=cluster_id,
        network=joined,
        peer_memory=None if network is None else peers_file(kept, f"{network}"),
        max_message_bytes=joined.max_message_bytes if joined else MAX_RELAYED_BYTES,
        shards=tuple(shard) if shard else tuple(range(shard_count)),
        shard_count=shard_count,
        host=host,
        tcp_port=tcp_port,
        ws_port=ws_port,
        ws_origins=tuple(ws_origin or ()),
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_ca_file=tls_ca,
        announce=tuple(announce or ()),
        peers=tuple(peer or ()),
        archive=None if archive == _NO_ARCHIVE else archive,
        retention=retention_of(keep if _is_given(context, "keep") else None, keep_size),
        store_sync=StoreSyncOptions(interval_s=store_sync_interval, range_s=store_sync_range) if store_sync else None,
        request_rate=request_rate(requests_per_second),
        host_limits=HostLimits(max_connections=max_connections, max_connections_per_ip=max_connections_per_ip),
        loss=loss,
        seed=seed,
    )
    rest = RestOptions(
        host=rest_host,
        port=rest_port,
        token=None if rest_token_file is None else token_in(rest_token_file),
        admin_token=None if rest_admin_token_file is None else token_in(rest_admin_token_file),
        tls_cert=rest_tls_cert,
        tls_key=rest_tls_key,
        allowed_origins=tuple(rest_origin or ()),
    )
    settings = NodeSettings(
        options=options,
        rest=None if no_rest else rest,
        key=key,
        state=kept,
        rln=_rln_of(rln, rln_slash_log, rln_keystore, rln_password_file),
        until_stdin_closes=until_stdin_closes,
        as_json=as_json,
    )
    with logging_to_stderr(log_level):
        asyncio.run(serve(settings, typer.echo))


def _is_given(context: typer.Context, name: str) -> bool:
    """Return whether the command line or the file of ``--config`` gives an option."""
    source = context.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def _rln_of(
    group: str | None, slash_log: Path | None, keystore: Path | None, password_file: Path | None
) -> NodeRln | None:
    if group is None:
        if slash_log or keystore or password_file:
            raise ConfigurationError("--rln-slash-log, --rln-keystore and --rln-password-file need --rln")
        return None
    password = "" if keystore is None else password_of(password_file)
    return NodeRln(group=group, slash_log=slash_log, keystore=keystore, password=password)


def _shards_of(cluster: int, served: Sequence[int]) -> int:
    """Return the number of network shards of a cluster, if only served ones are given."""
    needed = max(served, default=-1) + 1
    # A private network with shard 0 has only that shard, so that all content topics map to it.
    return needed if served and cluster != DEFAULT_CLUSTER else DEFAULT_SHARD_COUNT
