"""Writes small files, and the names of files, so that they survive a crash of the process or of the machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(target: Path, told: Mapping[str, Any]) -> None:
    """Replace or create a JSON file in one step, durably."""
    write_bytes(target, json.dumps(told, indent=2).encode())


def write_bytes(target: Path, content: bytes) -> None:
    """Replace or create a file in one step, durably."""
    written = target.with_name(f".{target.name}.new")
    try:
        with written.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        written.replace(target)
    except OSError:
        written.unlink(missing_ok=True)
        raise
    make_durable(target.parent)


def make_durable(folder: Path) -> None:
    """Make the names in a folder durable, if the system supports it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
