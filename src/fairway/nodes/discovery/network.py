"""`Network`: the parameters for joining a network, from the table of public networks or from a file.

`networks.toml` is the table; each entry has its source. A file for another network has the same fields at its top
level.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, Self

import msgspec

from fairway.errors import ConfigurationError, DecodeError
from fairway.libp2p.errors import AddressError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.nodes.discovery.node_list import NodeListUrl
from fairway.nodes.discovery.node_record import NodeRecord
from fairway.nodes.protocols.rules import MAX_RELAYED_BYTES
from fairway.wire.topics import CLUSTER_COUNT, SHARDS_PER_CLUSTER

DEFAULT_NETWORK: Final = "twn"
"""The Waku Network."""


class RlnSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rate limit of a network that asks for RLN proofs (17/WAKU2-RLN-RELAY)."""

    epoch_s: int
    """Length of an epoch."""
    messages_per_epoch: int
    """Messages of one membership in an epoch."""
    chain_id: int | None = None
    """Chain of the contract with the memberships; None for memberships kept elsewhere."""
    contract: str | None = None
    """Address of that contract, "0x" and 40 hexadecimal digits."""

    def __post_init__(self) -> None:
        if self.epoch_s < 1 or self.messages_per_epoch < 1:
            raise ValueError("epoch_s and messages_per_epoch of a network are at least 1")


class Network(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A network. The fields of a file have the same names."""

    source: str
    """Source of the values."""
    cluster: int
    """Its cluster id."""
    shards: int = 8
    """Number of its network shards, for autosharding."""
    lists: tuple[str, ...] = ()
    """Lists of nodes in DNS: "enrtree://KEY@DOMAIN"."""
    records: tuple[str, ...] = ()
    """Node records: "enr:..."."""
    peers: tuple[str, ...] = ()
    """Multiaddrs of nodes, with their peer ids."""
    name_servers: tuple[str, ...] = ()
    """Name servers that have the lists, like "192.0.2.1:53"; without any, those of the machine."""
    max_message_bytes: int = MAX_RELAYED_BYTES
    """Longest encoded WakuMessage that its nodes relay."""
    rln: RlnSettings | None = None
    """The rate limit; None without RLN."""

    def __post_init__(self) -> None:
        if not 0 <= self.cluster < CLUSTER_COUNT:
            raise ValueError(f"cluster lies in 0..{CLUSTER_COUNT - 1}, not {self.cluster}")
        if not 0 < self.shards <= SHARDS_PER_CLUSTER:
            raise ValueError(f"shards lies in 1..{SHARDS_PER_CLUSTER}, not {self.shards}")
        if not (self.lists or self.records or self.peers):
            raise ValueError("a network needs lists, records or peers to begin with")
        try:
            for text in self.lists:
                NodeListUrl.parse(text)
            for text in self.records:
                NodeRecord.parse(text)
            for text in self.peers:
                if Multiaddr.parse(text).peer_id is None:
                    raise ValueError(f"{text} has no peer id at its end (/p2p/...)")
        except (DecodeError, AddressError) as error:
            raise ValueError(str(error)) from error

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file in TOML; raise `ConfigurationError` if it cannot be read or describes no network."""
        try:
            return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), cls)
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
            raise ConfigurationError(f"{path} describes no network: {error}") from error


def network_of(name: str) -> Network:
    """Return a network by its name in the table, or by the path of a file (with a slash, or ending in ".toml").

    Raises `ConfigurationError` for an unknown name and for a file that describes no network.
    """
    if "/" in name or name.endswith(".toml"):
        return Network.load(Path(name))
    known = public_networks()
    if name not in known:
        raise ConfigurationError(
            f"the network {name!r} is unknown; known are {', '.join(known)}, or the path of a file for another one"
        )
    return known[name]


@cache
def public_networks() -> dict[str, Network]:
    """Return the table of public networks by name."""
    table = tomllib.loads((files("fairway.nodes.discovery") / "networks.toml").read_text(encoding="utf-8"))
    return msgspec.convert(table, dict[str, Network])
