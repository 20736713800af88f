"""The lives of sends: tables that the protocol follows, and that docs/protocol.md draws."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fairway.protocol.outgoing import request_life
from fairway.protocol.outgoing.request_life import RequestState

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

DRAW = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "pictures" / "draw_lives.py"))


def test_the_page_about_the_protocol_draws_the_tables_as_they_are() -> None:
    page = DRAW["PAGE"].read_text(encoding="utf-8")
    assert page.count("```mermaid\nstateDiagram-v2\n") == 1
    assert DRAW["drawn"](page) == page, "run python docs/pictures/draw_lives.py"


@pytest.mark.parametrize(
    ("life", "first", "ends"),
    [
        (request_life.LIFE, RequestState.OPEN, {RequestState.FORGOTTEN}),
    ],
    ids=["send"],
)
def test_every_state_can_be_reached_and_only_ends_cannot_be_left(
    life: Mapping[Enum, Mapping[Enum, Enum]], first: Enum, ends: set[Enum]
) -> None:
    reached, waiting = {first}, [first]
    while waiting:
        for then in life.get(waiting.pop(), {}).values():
            if then not in reached:
                reached.add(then)
                waiting.append(then)
    assert reached == set(type(first))
    assert {state for state in type(first) if not life.get(state)} == ends
