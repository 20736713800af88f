"""The console on which commands print: whatever they print, nothing in it steers the terminal.

Commands make the names and texts of others visible where they compose a line, for only there it is known what belongs
on one line. This console sees to the rest: of all text that it renders only line breaks and the styles of this program
reach the terminal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment

from fairway.visible import visible

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType


class PlainConsole(Console):
    """A console that shows control characters by their numbers."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as usual, with visible characters only."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text, keep="\n\t"), segment.style)
