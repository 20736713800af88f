"""`connect`: makes a node from an address.

`_CONNECTORS` maps prefixes of addresses to implementations; a new kind of node is a new line there. An unknown address
raises `ConfigurationError` before anything is opened. Each implementation is imported when an address needs it: a
network inside this process needs no libp2p.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from fairway.errors import ConfigurationError
from fairway.nodes.node import WakuNode
from fairway.opening import Opening
from fairway.protocol.ratelimit import RlnProofProvider
from fairway.type_checks import check_type

if TYPE_CHECKING:
    from fairway.nodes.discovery.network import Network
    from fairway.nodes.light.options import LightOptions
    from fairway.nodes.rest.options import RestNodeOptions

_Options = TypeVar("_Options", "LightOptions", "RestNodeOptions")
_TIMEOUT_S: Final = 10.0


def connect(
    address: str,
    *,
    options: LightOptions | RestNodeOptions | None = None,
    name: str | None = None,
    connect_timeout_s: float | None = _TIMEOUT_S,
    state: str | PathLike[str] | None = None,
    rln: RlnProofProvider | None = None,
    tls_ca_file: str | PathLike[str] | None = None,
) -> Opening[WakuNode]:
    """Connect to a Waku network, and return the node: use ``async with``, or ``await`` it and close the node.

    The address selects the kind of node:

    - ``"/ip4/192.0.2.7/tcp/60000/p2p/16Uiu2..."``: a light client of the service node at a multiaddr, or of several,
      separated by commas. ``options`` are `LightOptions`.
    - ``"waku:"``, ``"waku:logos.test"``, ``"waku:./ours.toml"``: a light client that finds service nodes by itself. The
      network is The Waku Network, another one in the table of `fairway.nodes.discovery.network`, or one that a file
      describes. ``options`` are `LightOptions`. The client remembers the nodes that served it in the folder ``state``,
      by default ``fairway`` in the user's folder for state (``$XDG_STATE_HOME``).
    - ``"http://127.0.0.1:8645"``, ``"https://user:password@example.org/waku"``: the REST API of nwaku or of
      ``fairway node``. ``options`` are `RestNodeOptions`.
    - ``"local:"``: a network inside this process; ``"local:NAME"``: one of several. ``name`` is the name of the node
      in that network.

    ``rln`` is the membership for networks with RLN proofs, such as a `fairway.rln.RlnMembership`: a light client and a
    client of a REST API prove with it their own messages and those of their channels. The table or the file of a
    network gives the length of its epochs and its limit.

    ``tls_ca_file`` names authorities, in PEM form, to trust beside the system's for a node at ``https://`` or
    ``/tls/ws``; ``options`` have the same.

    ``connect_timeout_s`` is the longest wait for a connection. With None this returns at once, and the node connects in
    the background; its status then changes. A channel with such a node keeps messages to send until then.

    Raises `ConfigurationError` at once for an unknown address or option, and `NodeUnavailableError` if no connection is
    made in time.
    """
    examples = ", ".join(example for example, _ in _CONNECTORS.values())
    check_type("address", address, str, f"this version understands {examples}")
    check_type("name", name, str | None)
    check_type("connect_timeout_s", connect_timeout_s, float | None)
    check_type("state", state, str | PathLike | None)
    check_type("rln", rln, RlnProofProvider | None)
    check_type("tls_ca_file", tls_ca_file, str | PathLike | None)
    if connect_timeout_s is not None and connect_timeout_s <= 0:
        raise ConfigurationError(f"connect_timeout_s must be above 0, or None, not {connect_timeout_s}")
    given = {
        "options": options,
        "name": name,
        "state": None if state is None else Path(state),
        "rln": rln,
        "tls_ca_file": None if tls_ca_file is None else Path(tls_ca_file),
    }
    chosen = {option: value for option, value in given.items() if value is not None}
    for prefix, (example, connector) in _CONNECTORS.items():
        if address.startswith(prefix):
            known = list(inspect.signature(connector).parameters)[1:]
            for option in chosen:
                if option not in known:
                    raise ConfigurationError(f"{example} has no option {option!r}; it has {', '.join(known)}")
            opened = connector(address.removeprefix(prefix), connect_timeout_s=connect_timeout_s, **chosen)
            return Opening(opened, "fairway.connect")
    raise ConfigurationError(f"the address {address!r} is not understood; this version understands {examples}")


async def _light_client(
    rest: str,
    *,
    options: LightOptions | RestNodeOptions | None = None,
    connect_timeout_s: float | None,
    rln: RlnProofProvider | None = None,
    tls_ca_file: Path | None = None,
) -> WakuNode:
    from fairway.nodes.light import LightNode, LightOptions  # noqa: PLC0415 - see the module's text

    peers = [address.strip() for address in f"/{rest}".split(",")]
    chosen = _chosen(LightOptions, options, "light client", tls_ca_file)
    return await LightNode.start(peers, chosen, connect_timeout_s=connect_timeout_s, rln=rln)


async def _found_nodes(
    network: str,
    *,
    options: LightOptions | RestNodeOptions | None = None,
    connect_timeout_s: float | None,
    state: Path | None = None,
    rln: RlnProofProvider | None = None,
    tls_ca_file: Path | None = None,
) -> WakuNode:
    from fairway.nodes.discovery.network import DEFAULT_NETWORK, network_of  # noqa: PLC0415 - see the module's text
    from fairway.nodes.discovery.peer_memory import default_state, peers_file  # noqa: PLC0415 - see the module's text
    from fairway.nodes.light import LightNode, LightOptions  # noqa: PLC0415 - see the module's text

    chosen = _chosen(LightOptions, options, "light client", tls_ca_file)
    name = network or DEFAULT_NETWORK
    memory = peers_file(state or default_state(), name)
    joined = network_of(name)
    _check_epochs(name, joined, rln)
    return await LightNode.start(
        [], chosen, connect_timeout_s=connect_timeout_s, network=joined, memory=memory, rln=rln
    )


def _check_epochs(name: str, joined: Network, rln: RlnProofProvider | None) -> None:
    """Raise `ConfigurationError` for a membership whose epochs are not those of a network."""
    from fairway.rln.membership import RlnMembership  # noqa: PLC0415 - see the module's text

    if joined.rln is None or not isinstance(rln, RlnMembership):
        return
    epoch_ms = joined.rln.epoch_s * 1_000
    if rln.network.epoch_ms != epoch_ms:
        raise ConfigurationError(
            f"the network {name} has epochs of {epoch_ms} ms, the group of the membership has {rln.network.epoch_ms}: "
            "give a membership in the network's own group"
        )


async def _rest_client(
    rest: str,
    *,
    options: LightOptions | RestNodeOptions | None = None,
    connect_timeout_s: float | None,
    rln: RlnProofProvider | None = None,
    tls_ca_file: Path | None = None,
) -> WakuNode:
    from fairway.nodes.rest import RestNode, RestNodeOptions  # noqa: PLC0415 - see the module's text

    chosen = _chosen(RestNodeOptions, options, "REST client", tls_ca_file)
    return await RestNode.start(f"http{rest}", chosen, connect_timeout_s=connect_timeout_s, rln=rln)


def _chosen(
    kind: type[_Options], options: LightOptions | RestNodeOptions | None, client: str, tls_ca_file: Path | None
) -> _Options:
    """Return the options of a client with the authorities to trust; raise `ConfigurationError` for others."""
    if not isinstance(options, kind | None):
        raise ConfigurationError(f"the options of a {client} are {kind.__name__}, not {type(options).__name__}")
    chosen = options or kind()
    return chosen if tls_ca_file is None else replace(chosen, tls_ca_file=tls_ca_file)


async def _this_process(network: str, *, name: str | None = None, connect_timeout_s: float | None) -> WakuNode:
    from fairway.nodes.local.network import process_network  # noqa: PLC0415 - see the module's text

    del connect_timeout_s  # It needs no connection.
    return process_network(network).node(name)


_CONNECTORS: Final[dict[str, tuple[str, Callable[..., Coroutine[Any, Any, WakuNode]]]]] = {
    "/": ("/ip4/127.0.0.1/tcp/PORT/p2p/PEER", _light_client),
    "waku:": ("waku: or waku:NETWORK", _found_nodes),
    "http": ("http://127.0.0.1:8645", _rest_client),
    "local:": ("local: or local:NAME", _this_process),
}
"""Prefix of an address -> an example, and the function that makes the node."""
