"""Write the `Cargo.lock` of a crate from its `crates.toml`: the versions and checksums of all crates.

Cargo writes the address of a registry beside each crate. `crates.toml` is the same file without these, and cargo itself
says which registry it uses.

::

    python write_lock.py FOLDER          # FOLDER/Cargo.lock from FOLDER/crates.toml
    python write_lock.py FOLDER --pin    # the other way round, after a change of Cargo.toml
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

_PROBE = '[package]\nname = "probe"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\ncfg-if = "1"\n'
"""A crate with one small dependency, of which cargo says where it comes from."""


def main() -> None:
    """Write one of the two files from the other one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with Cargo.toml and crates.toml")
    parser.add_argument("--pin", action="store_true", help="write crates.toml from Cargo.lock")
    given = parser.parse_args()
    lock, crates = given.folder / "Cargo.lock", given.folder / "crates.toml"
    if given.pin:
        crates.write_text("".join(line for line in _lines(lock) if not line.startswith("source = ")))
        return
    source = _source()
    lock.write_text("".join(source + line if line.startswith("checksum = ") else line for line in _lines(crates)))


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines(keepends=True)


def _source() -> str:
    """Return the line by which cargo names the registry that it uses."""
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder)
        (probe / "Cargo.toml").write_text(_PROBE)
        (probe / "src").mkdir()
        (probe / "src" / "lib.rs").touch()
        subprocess.run(["cargo", "generate-lockfile", "--quiet"], cwd=probe, check=True)
        return next(line for line in _lines(probe / "Cargo.lock") if line.startswith("source = "))


if __name__ == "__main__":
    main()
