"""``fairway backup``: copies a store or an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairway.storage.backup import back_up
from fairway.units import counted


def command(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The store of channels, or an archive in SQLite.")],
    target: Annotated[Path, typer.Argument(metavar="COPY", help="Path of the copy, which must not exist.")],
) -> None:
    """Copy a store with all its channels, or the archive of a node, into a new file, also while a program uses it.

    The copy is the state at one moment. When the command ends, the copy is complete, checked and on the disk, and only
    its owner may read it. To restore it, end the program, move FILE and the files beside it away, and put the copy in
    its place.

    Example: [bold]fairway backup alice.db backups/alice-monday.db[/bold]
    """
    back_up(source, target)
    typer.echo(f"{target}: {counted(target.stat().st_size, 'byte')}")
