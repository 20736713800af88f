"""The files that a node keeps over restarts; `PeerMemory` is the file of the peers that served it.

A file that is damaged or of another network counts as absent: discovery begins anew.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from fairway.errors import DecodeError
from fairway.json_reading import read_json
from fairway.libp2p.errors import AddressError
from fairway.libp2p.multiaddr import Multiaddr
from fairway.storage.whole_file import replace_whole


def default_state() -> Path:
    """Return the default folder for state (XDG Base Directory Specification, XDG_STATE_HOME)."""
    given = os.environ.get("XDG_STATE_HOME", "")
    home = Path(given) if given.startswith("/") else Path("~/.local/state").expanduser()
    return home / "fairway"


def peers_file(folder: Path, network: str) -> Path:
    """Return the file of remembered peers of a network, by its name or the path of its file."""
    plain = re.fullmatch(r"[a-z0-9.-]{1,40}", network) and not network.endswith(".toml")
    name = network if plain else sha256(str(Path(network).absolute()).encode()).hexdigest()[:16]
    return folder / f"peers-{name}.json"


MAX_REMEMBERED: Final = 100
"""Most peers that are kept, the first ones of the file."""
MAX_FILE_BYTES: Final = 1_048_576
"""Longer files are not read."""

_LOG: Final = logging.getLogger(__name__)


class _Contents(msgspec.Struct, frozen=True, kw_only=True):
    cluster: int | None
    peers: list[str]
    sequences: dict[str, int]


class PeerMemory:
    """The file of one network."""

    def __init__(self, path: Path, *, cluster_id: int | None) -> None:
        """Keep the peers in ``path``; the first write creates its folder."""
        self._path: Final = path
        self._cluster_id: Final = cluster_id
        self._written: bytes | None = None

    def read(self) -> tuple[tuple[Multiaddr, ...], dict[str, int]]:
        """Return the addresses of the remembered peers, and the sequence numbers of lists by domain."""
        try:
            with self._path.open("rb") as file:
                contents = read_json(file.read(MAX_FILE_BYTES), _Contents)
            addresses = tuple(Multiaddr.parse(text) for text in contents.peers[:MAX_REMEMBERED])
        except FileNotFoundError:
            return (), {}
        except (OSError, DecodeError, AddressError) as error:
            _LOG.warning("%s is not used: %s", self._path, error)
            return (), {}
        if contents.cluster != self._cluster_id:
            _LOG.warning("%s is not used: it is of cluster %s", self._path, contents.cluster)
            return (), {}
        return tuple(one for one in addresses if one.peer_id is not None), dict(contents.sequences)

    def write(self, addresses: Iterable[Multiaddr], sequences: dict[str, int]) -> None:
        """Remember peers; a file that cannot be written is a warning."""
        peers = [str(address) for address in addresses][:MAX_REMEMBERED]
        data = msgspec.json.encode(_Contents(cluster=self._cluster_id, peers=peers, sequences=sequences))
        if data == self._written:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_whole(self._path, data)
        except OSError as error:
            _LOG.warning("%s cannot be written, so no peers are remembered: %s", self._path, error)
        else:
            self._written = data
