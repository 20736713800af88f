"""py-libp2p as a peer, in a virtual environment of its own, because it pins many packages.

Its versions are those of the tests against real peers. Two packages are compiled at the installation. Without a C
compiler and the headers of GMP its column says why it is empty.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from benchmarks.installing import PeerUnavailableError, install_once

NAME = "py-libp2p"

_VERSIONS = Path(__file__).parents[1] / "tests" / "interop" / "py" / "requirements.txt"


def install(folder: Path) -> Path:
    """Return an interpreter that has it, installed into ``folder`` if it is not; may raise `PeerUnavailableError`."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        raise PeerUnavailableError("no C compiler, which its installation needs (and the headers of GMP)")
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "venv" / "bin" / "python"
    pip: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
        _VERSIONS,
    ]
    install_once(folder, [_VERSIONS], [[sys.executable, "-m", "venv", "--clear", folder / "venv"], pip])
    return python
