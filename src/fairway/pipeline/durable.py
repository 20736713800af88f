"""Durable writes of small JSON files, which survive a crash of the process or of the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fairway.storage.whole_file import replace_whole


def write_json(target: Path, told: Mapping[str, Any]) -> None:
    """Replace or create a JSON file in one step, durably."""
    replace_whole(target, json.dumps(told, indent=2).encode())
