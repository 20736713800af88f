"""Draw how soon messages came in recorded worlds, by loss, as cumulative shares: worlds.svg.

Run it: python docs/pictures/make_worlds_picture.py RECORD...     (files that `fairway simulate --record` wrote)
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Final

from fairway.simulation.campaign import rows_in
from fairway.simulation.figures import S_MS, Figures, add_up, loss_class
from fairway.simulation.histogram import EDGES_MS, Histogram

HERE: Final = Path(__file__).parent
WIDTH, HEIGHT, GAP, LEFT, TOP = 260, 180, 30, 44, 34
FIRST_MS, LAST_MS = 100, 600_000
COLOURS: Final = {0: "#2a78b5", 30: "#d9822b", 50: "#b5322a"}
TICKS: Final = {100: "0.1 s", 1_000: "1 s", 10_000: "10 s", 100_000: "100 s"}


def across(duration_ms: float) -> float:
    """Return where a duration lies between the sides of a panel."""
    share = math.log(max(duration_ms, FIRST_MS) / FIRST_MS) / math.log(LAST_MS / FIRST_MS)
    return round(WIDTH * min(share, 1), 1)


def line(durations: Histogram, count: int) -> str:
    """Return the points of a cumulative share."""
    edges = [edge for edge in EDGES_MS if FIRST_MS <= edge <= LAST_MS]
    return " ".join(f"{across(edge)},{HEIGHT * (1 - durations.within(edge) / count):.1f}" for edge in edges)


def panel(title: str, asked_ms: int, lines: dict[int, tuple[Histogram, int]]) -> list[str]:
    """Return one panel: a line for each class of loss, and what the FURPS ask for."""
    drawn = [
        f'<text x="0" y="-12" font-weight="bold">{title}</text>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
    ]
    for tick_ms, text in TICKS.items():
        drawn.append(f'<text x="{across(tick_ms)}" y="{HEIGHT + 16}" text-anchor="middle" fill="#555">{text}</text>')
    for share in (0.25, 0.5, 0.75, 0.9):
        at = HEIGHT * (1 - share)
        drawn.append(f'<line x1="0" x2="{WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        drawn.append(f'<text x="-6" y="{at + 4:.1f}" text-anchor="end" fill="#555">{share:.0%}</text>')
    x = across(asked_ms)
    drawn.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{HEIGHT}" stroke="#555" stroke-dasharray="4 3"/>')
    drawn.append(f'<text x="{x + 4}" y="{HEIGHT - 6}" fill="#555">{asked_ms // S_MS or 1} S</text>')
    for loss, (durations, count) in lines.items():
        if count:
            colour = COLOURS[loss]
            drawn.append(
                f'<polyline points="{line(durations, count)}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
    return drawn


def main(paths: list[str]) -> None:
    """Draw what the records hold of worlds with 0, about 30 and about 50 % loss."""
    rows = [row for path in paths for row in rows_in(Path(path))]
    figures = add_up((loss_class(row["loss"]), Figures.of_json(row["figures"])) for row in rows if "figures" in row)
    shown = {loss: of for loss, of in figures.items() if loss in COLOURS}
    panels = (
        panel("its sender knows a recipient", S_MS, {k: (of.known, of.known.count) for k, of in shown.items()}),
        panel("a loss is noticed", 3 * S_MS, {k: (of.noticed, of.losses) for k, of in shown.items()}),
        panel("everybody has it", 6 * S_MS, {k: (of.last, of.last.count) for k, of in shown.items()}),
    )
    step = WIDTH + GAP + LEFT
    width, height = step * len(panels), TOP + HEIGHT + 50
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#fff"/><g font-family="sans-serif">',
    ]
    for number, parts in enumerate(panels):
        drawn += [f'<g transform="translate({LEFT + number * step},{TOP})">', *parts, "</g>"]
    for number, loss in enumerate(shown):
        x, y = LEFT + number * 110, height - 8
        drawn.append(f'<text x="{x}" y="{y}" fill="{COLOURS[loss]}" font-weight="bold">{loss} % loss</text>')
    (HERE / "worlds.svg").write_text("\n".join([*drawn, "</g></svg>", ""]), encoding="utf-8")


main(sys.argv[1:])
