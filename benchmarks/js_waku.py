"""js-waku as a peer: installed beside the checkout once, then one Node process for each figure.

The packages and their versions stand in the ``package.json`` of a folder of ``peers``: `SDS` is the protocol alone,
`RELIABLE_CHANNEL` the whole live stack, which brings a hundred packages along. Without Node, or without a package
registry, nothing fails: the peer's column stays empty and says why.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

SDS = "js_waku"
RELIABLE_CHANNEL = "js_waku_channel"

_PEERS = Path(__file__).parent / "peers"
_VERSIONS = ("package.json", "package-lock.json")
"""What decides whether an installation can be used again; the second exists where everything is pinned."""
_INSTALL_SECONDS = 600
_MEASURE_SECONDS = 3_600


class PeerUnavailableError(Exception):
    """The peer cannot be measured here; the text says why, for a table's cell."""


class JsWaku:
    """The installed packages; `measure` runs one workload of ``bench.mjs``."""

    name = "js-waku"

    def __init__(self, folder: Path, peer: str = SDS) -> None:
        """Install into ``folder``, or raise `PeerUnavailableError`; what an earlier run installed is used again."""
        self._folder = folder
        npm = shutil.which("npm")
        node = shutil.which("node")
        if npm is None or node is None:
            raise PeerUnavailableError("no Node.js with npm here")
        self._node = node
        folder.mkdir(parents=True, exist_ok=True)
        installed = folder / "installed.json"
        sources = [path for path in sorted((_PEERS / peer).iterdir()) if path.is_file()]
        wanted = b"".join(path.read_bytes() for path in sources if path.name in _VERSIONS)
        for path in sources:
            shutil.copyfile(path, folder / path.name)
        if not installed.exists() or installed.read_bytes() != wanted:
            how = "ci" if (folder / "package-lock.json").exists() else "install"
            _run([npm, how], folder, _INSTALL_SECONDS, f"npm {how} failed")
            installed.write_bytes(wanted)
        self.version = (
            _run([node, "--version"], folder, _INSTALL_SECONDS, "node does not start").strip().removeprefix("v")
        )

    def measure(self, workload: str, **parameters: object) -> dict[str, Any]:
        """Return what one workload measured, in a process of its own."""
        command = [self._node, "--expose-gc", "bench.mjs", workload, json.dumps(parameters)]
        measured: dict[str, Any] = json.loads(_run(command, self._folder, _MEASURE_SECONDS, f"{workload} failed"))
        return measured


def _run(command: list[str], folder: Path, seconds: int, what_failed: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailableError(f"{what_failed}: not done after {seconds} s") from error
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if "rror" in line] or [f"exit code {done.returncode}"]
        raise PeerUnavailableError(f"{what_failed}: {reasons[0].strip()}")
    return done.stdout
