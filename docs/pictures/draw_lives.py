"""Draw the lives of sends into docs/protocol.md, from the tables that the protocol follows.

Run it: python docs/pictures/draw_lives.py
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fairway.protocol.outgoing import request_life

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

PAGE: Final = Path(__file__).parent.parent / "protocol.md"
LIVES: Final[dict[str, Mapping[Enum, Mapping[Enum, Enum]]]] = {
    "send": request_life.LIFE,
}


def drawing(life: Mapping[Enum, Mapping[Enum, Enum]]) -> str:
    """Return a table of states as a Mermaid state diagram; its first state is where everything begins."""
    steps: dict[tuple[Enum, Enum], list[str]] = {}
    for state, row in life.items():
        for step, then in row.items():
            steps.setdefault((state, then), []).append(step.value)
    states = list(dict.fromkeys(state for pair in [(next(iter(life)),) * 2, *steps] for state in pair))
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{state.value}" as {state.name}' for state in states]
    lines.append(f"    [*] --> {states[0].name}")
    lines += [f"    {state.name} --> {then.name}: {' / '.join(words)}" for (state, then), words in steps.items()]
    return "\n".join(lines)


def drawn(page: str) -> str:
    """Return the page with each drawing as its table is now."""
    for name, life in LIVES.items():
        page = re.sub(
            rf"(<!-- life of a {name} -->\n```mermaid\n).*?(\n```)",
            lambda found, life=life: found[1] + drawing(life) + found[2],  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
