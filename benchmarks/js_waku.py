"""js-waku as a peer: installed beside the checkout once, then one Node process for each figure.

The packages and their versions stand in ``peers/js_waku/package.json``. Without Node, or without a package registry,
nothing fails: the peer's column stays empty and says why.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).parent / "peers" / "js_waku"
_FILES = ("package.json", ".npmrc", "bench.mjs")
_INSTALL_SECONDS = 600
_MEASURE_SECONDS = 3_600


class PeerUnavailableError(Exception):
    """The peer cannot be measured here; the text says why, for a table's cell."""


class JsWaku:
    """The installed packages; `measure` runs one workload of ``bench.mjs``."""

    name = "js-waku"

    def __init__(self, folder: Path) -> None:
        """Install into ``folder``, or raise `PeerUnavailableError`; what an earlier run installed is used again."""
        self._folder = folder
        npm = shutil.which("npm")
        node = shutil.which("node")
        if npm is None or node is None:
            raise PeerUnavailableError("no Node.js with npm here")
        self._node = node
        folder.mkdir(parents=True, exist_ok=True)
        installed = folder / "installed.json"
        wanted = (_SOURCE / "package.json").read_bytes()
        for name in _FILES:
            shutil.copyfile(_SOURCE / name, folder / name)
        if not installed.exists() or installed.read_bytes() != wanted:
            _run([npm, "install"], folder, _INSTALL_SECONDS, "npm install failed")
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
