"""Where a node keeps what it needs after a restart: its key, and the peers that served it."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path


def default_state() -> Path:
    """Return where state is kept if nothing else is said (XDG Base Directory Specification, XDG_STATE_HOME)."""
    given = os.environ.get("XDG_STATE_HOME", "")
    home = Path(given) if given.startswith("/") else Path("~/.local/state").expanduser()
    return home / "fairway"


def peers_file(folder: Path, network: str) -> Path:
    """Return the file of remembered peers of a network, by its name or the path of its file."""
    plain = re.fullmatch(r"[a-z0-9.-]{1,40}", network) and not network.endswith(".toml")
    name = network if plain else sha256(str(Path(network).absolute()).encode()).hexdigest()[:16]
    return folder / f"peers-{name}.json"
