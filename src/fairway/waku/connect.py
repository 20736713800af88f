"""From an address to a node: the one place that knows which implementation speaks what.

`_CONNECTORS` is the table; another kind of node is another line in it. Invariant: an address that is not understood is
a `ConfigurationError` that shows the ones which are, and nothing was opened.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

from fairway.errors import ConfigurationError
from fairway.waku.light import LightNode, LightOptions
from fairway.waku.local.process_wide import process_network
from fairway.waku.local.remote import RemoteNode
from fairway.waku.node import WakuNode
from fairway.waku.rest.node import RestNode
from fairway.waku.rest.options import RestNodeOptions


async def connect(address: str, **options: Any) -> WakuNode:
    """Return a node of the network at an address; close it in the end.

    - ``"/ip4/192.0.2.7/tcp/60000/p2p/16Uiu2..."``: a light client of the service node at a multiaddr, or of several,
      separated by commas. Options ``options`` (`LightOptions`) and ``connect_timeout_s``, see `LightNode.start`.
    - ``"http://127.0.0.1:8645"``, ``"https://user:password@example.org/waku"``: the REST API of a nwaku, or of a
      ``fairway node``. Options ``options`` (`RestNodeOptions`) and ``connect_timeout_s``, see `RestNode.start`.
    - ``"local:"``: the network inside this process; ``"local:NAME"``: one of several. Option ``name``: how the network
      calls the node. It is there at once, whatever ``connect_timeout_s`` says.
    - ``"local://127.0.0.1:PORT"``: a network that another process of this machine serves (``fairway network``). Options
      ``name``, ``connect_timeout_s`` and ``request_timeout_s``, see `RemoteNode.connect`.

    With ``connect_timeout_s`` None this returns at once, and the node connects whenever somebody answers there; its
    status says when. A channel made with it takes in what is sent and keeps it until then.

    Raises `ConfigurationError` for an address or an option that is not understood, `NodeUnavailableError` if nobody
    answers there.
    """
    for prefix, (example, connector) in _CONNECTORS.items():
        if isinstance(address, str) and address.startswith(prefix):
            known = list(inspect.signature(connector).parameters)[1:]
            for option in options:
                if option not in known:
                    raise ConfigurationError(f"{example} has no option {option!r}; it has {', '.join(known)}")
            return await connector(address.removeprefix(prefix), **options)
    examples = ", ".join(example for example, _ in _CONNECTORS.values())
    raise ConfigurationError(f"the address {address!r} is not understood; this version understands {examples}")


async def _serving_process(
    place: str, *, name: str | None = None, connect_timeout_s: float | None = 10.0, request_timeout_s: float = 10.0
) -> WakuNode:
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or parts.netloc != place or parts.username is not None:
        raise ConfigurationError(
            f"'local://{place}' names no host and port; give the address that 'fairway network' prints, "
            "like local://127.0.0.1:60010"
        )
    return await RemoteNode.connect(
        host, port, name=name, connect_timeout_s=connect_timeout_s, request_timeout_s=request_timeout_s
    )


async def _light_client(
    rest: str, *, options: LightOptions | None = None, connect_timeout_s: float | None = 10.0
) -> WakuNode:
    peers = [address.strip() for address in f"/{rest}".split(",")]
    return await LightNode.start(peers, options, connect_timeout_s=connect_timeout_s)


async def _rest_client(
    rest: str, *, options: RestNodeOptions | None = None, connect_timeout_s: float | None = 10.0
) -> WakuNode:
    return await RestNode.start(f"http{rest}", options, connect_timeout_s=connect_timeout_s)


async def _this_process(network: str, *, name: str | None = None, connect_timeout_s: float | None = None) -> WakuNode:
    del connect_timeout_s  # It is there.
    return process_network(network).node(name)


_CONNECTORS: Final[dict[str, tuple[str, Callable[..., Awaitable[WakuNode]]]]] = {
    "/": ("/ip4/127.0.0.1/tcp/PORT/p2p/PEER", _light_client),
    "http": ("http://127.0.0.1:8645", _rest_client),
    "local://": ("local://127.0.0.1:PORT", _serving_process),
    "local:": ("local: or local:NAME", _this_process),
}
"""By prefix, the longer one first: an example, and what makes a node from the rest of the address and options."""
