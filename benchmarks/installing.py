"""Peers from package registries, installed beside the checkout once, and again when their versions change.

The tests against real peers use the same mark, so a folder is installed only once for both.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

_MARK = "installed"
_INSTALL_SECONDS = 600


class PeerUnavailableError(Exception):
    """The peer cannot be measured here; the text says why, for a table's cell."""


def install_once(folder: Path, versions: Sequence[Path], commands: Sequence[Sequence[str | Path]]) -> None:
    """Run commands in a folder, unless they were run there for the same versions; raises `PeerUnavailableError`."""
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in versions)).hexdigest()
    mark = folder / _MARK
    if mark.exists() and mark.read_text(encoding="ascii") == wanted:
        return
    for command in commands:
        told = [str(word) for word in command]
        run(told, folder, _INSTALL_SECONDS, f"{Path(told[0]).name} {' '.join(_words(told))} failed")
    mark.write_text(wanted, encoding="ascii")


def _words(command: list[str]) -> list[str]:
    """Return what a command is asked to do, without its options."""
    return list(takewhile(lambda word: not word.startswith("-"), command[1:])) or command[1:3]


def run(command: Sequence[str], folder: Path, seconds: float, what_failed: str) -> str:
    """Return what a command printed, or raise `PeerUnavailableError` with the first line that names an error."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailableError(f"{what_failed}: not done after {seconds:g} s") from error
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if "rror" in line] or [f"exit code {done.returncode}"]
        raise PeerUnavailableError(f"{what_failed}: {reasons[0].strip()}")
    return done.stdout
