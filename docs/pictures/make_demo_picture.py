"""Make the picture of the demo that the README shows.

Run it: python docs/pictures/make_demo_picture.py
"""

from __future__ import annotations

import asyncio
import io
import random
import tempfile
from pathlib import Path

from rich.console import Console

from fairway.cli.demo import Demo

PICTURE = Path(__file__).with_name("demo.svg")


def main() -> None:
    """Run the demo once and save what it prints."""
    console = Console(record=True, width=100, highlight=False, file=io.StringIO())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "sea.raw"
        file.write_bytes(random.Random(1).randbytes(1_000_000))  # noqa: S311 - content, no secret
        demo = Demo(file, folder, ("alice", "bob", "carol"), console)
        asyncio.run(demo.run(loss=0.3, seed=1))
        demo.print_result()
    PICTURE.write_text(console.export_svg(title="fairway demo"), encoding="utf-8")


if __name__ == "__main__":
    main()
