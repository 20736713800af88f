"""js-waku as a peer: installed beside the checkout once, then one Node process for each figure.

The packages and their versions are in the ``package.json`` of a folder of ``peers``: `SDS` is the protocol alone,
`RELIABLE_CHANNEL` the whole live stack with a hundred packages. Without Node or a package registry the column of the
peer says why it is empty.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.installing import PeerUnavailableError, install_once, run

__all__ = ["RELIABLE_CHANNEL", "SDS", "JsWaku", "PeerUnavailableError", "install", "node", "node_version"]

SDS = "js_waku"
RELIABLE_CHANNEL = "js_waku_channel"

_PEERS = Path(__file__).parent / "peers"
_VERSIONS = ("package.json", "package-lock.json")
"""What decides whether an installation can be used again; the second exists where everything is pinned."""
_START_SECONDS = 60
_MEASURE_SECONDS = 3_600


def node() -> str:
    """Return the command that runs Node.js, or raise `PeerUnavailableError`."""
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        raise PeerUnavailableError("no Node.js with npm here")
    return found


def node_version() -> str | None:
    """Return the version of Node.js, None without it."""
    try:
        told = run([node(), "--version"], Path.cwd(), _START_SECONDS, "node does not start")
    except PeerUnavailableError:
        return None
    return told.strip().removeprefix("v")


def install(scripts: Path, target: Path) -> Path:
    """Install what the ``package.json`` of a folder of scripts names, beside copies of them, and return where.

    Raises `PeerUnavailableError`; what an earlier run installed is used again.
    """
    node()
    target.mkdir(parents=True, exist_ok=True)
    for path in scripts.iterdir():
        if path.is_file():
            shutil.copyfile(path, target / path.name)
    versions = [path for name in _VERSIONS if (path := scripts / name).exists()]
    how = "ci" if len(versions) == len(_VERSIONS) else "install"
    install_once(target, versions, [["npm", how, "--no-audit", "--no-fund"]])
    return target


class JsWaku:
    """The installed packages; `measure` runs one workload of ``bench.mjs``."""

    name = "js-waku"

    def __init__(self, folder: Path, peer: str = SDS) -> None:
        """Install into ``folder``, or raise `PeerUnavailableError`."""
        self._folder = install(_PEERS / peer, folder)

    def measure(self, workload: str, **parameters: object) -> dict[str, Any]:
        """Return what one workload measured, in a process of its own."""
        command = [node(), "--expose-gc", "bench.mjs", workload, json.dumps(parameters)]
        measured: dict[str, Any] = json.loads(run(command, self._folder, _MEASURE_SECONDS, f"{workload} failed"))
        return measured
