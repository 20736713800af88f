"""The console on which commands print: no text from the network can control the terminal.

A command escapes names and texts of others when it composes a line. The console escapes everything else: only line
breaks and the styles of the program reach the terminal.
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
    """A console that prints control characters as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render with printable characters only."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text, keep="\n\t"), segment.style)
