"""Make the pictures of the demo that the README shows: one while it goes on, one of its end.

Run it: python docs/pictures/make_demo_pictures.py
"""

from __future__ import annotations

import asyncio
import io
import re
import tempfile
from pathlib import Path

from rich.console import Console, RenderableType

from fairway.apps.demonstration import Demonstration
from fairway.apps.demonstration_display import progress_view, summary
from fairway.apps.demonstration_picture import make_picture
from fairway.apps.demonstration_result import DemonstrationPlan

HERE = Path(__file__).parent
WIDTH, HEIGHT = 100, 30


def save(picture: RenderableType, name: str, title: str) -> None:
    """Write what a terminal would show as an SVG."""
    console = Console(record=True, width=WIDTH, height=HEIGHT, force_terminal=True, file=io.StringIO())
    console.print(picture)
    # Without the fonts that rich would have a browser fetch: a page of documentation calls nobody.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title=title), flags=re.DOTALL)
    (HERE / name).write_text(svg, encoding="utf-8")


async def main() -> None:
    """Run the demo once; the picture of its middle is taken when the killed one is back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "sea.png"
        file.write_bytes(make_picture(1))
        plan = DemonstrationPlan(file=file, title=file.name, loss=0.3, participants=3, seed=1, kill=True)
        demonstration = Demonstration(plan, folder, archive=folder / "archive.sqlite", say=None)
        running = asyncio.ensure_future(demonstration.run())

        def is_back() -> bool:
            killing = demonstration.killing
            return killing is not None and killing.name in demonstration.present

        while not running.done() and not is_back():
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.4)
        save(progress_view(demonstration, height=HEIGHT), "demo-under-way.svg", "fairway demo, under way")
        save(summary(await running, plan.title), "demo-summary.svg", "fairway demo, at its end")


asyncio.run(main())
