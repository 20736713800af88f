"""The line that a person types in a chat."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fairway.cli._screen import MAX_CHARACTERS, LineEditor


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        (b"hello\r", ["hello"]),
        (b"one\ntwo\n", ["one", "two"]),
        ("bób\n".encode(), ["bób"]),
        (b"helo\x7flo\n", ["hello"]),
        (b"\x7f\x7fa\n", ["a"]),
        (b"wrong\x15right\n", ["right"]),
        (b"one two \x17three\n", ["one three"]),
        (b"one\x17two\n", ["two"]),
        (b"a\x1b[Db\x1b[1;5C\x1bOH\x1b[3~c\n", ["abc"]),
        (b"a\x00\x07b\n", ["ab"]),
        (b"\xff\n", ["�"]),
    ],
)
def test_keys_make_lines(keys: bytes, lines: list[str]):
    assert LineEditor("> ").feed(keys) == lines


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20), max_size=5), st.data())
def test_keys_may_arrive_in_any_pieces(lines: list[str], data: st.DataObject):
    keys = "".join(f"{line}\n" for line in lines).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(keys)), max_size=5)))
    pieces = [keys[start:end] for start, end in zip([0, *cuts], [*cuts, len(keys)], strict=True)]
    editor = LineEditor("> ")
    assert [line for piece in pieces if piece for line in editor.feed(piece)] == lines


def test_the_end_is_ctrl_d_on_an_empty_line_or_no_more_input():
    editor = LineEditor("> ")
    editor.feed(b"a\x04")
    assert not editor.has_ended
    editor.feed(b"\n\x04")
    assert editor.has_ended
    editor = LineEditor("> ")
    editor.feed(b"")
    assert editor.has_ended


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=200), st.integers(8, 80))
def test_the_drawing_stays_on_its_row_and_shows_the_end(text: str, columns: int):
    editor = LineEditor("> ")
    editor.feed(text.encode())
    drawn = editor.drawing(columns).removeprefix(LineEditor.erasure())
    assert drawn.startswith("> ")
    assert cell_len(drawn) < columns
    assert text.endswith(drawn.removeprefix("> "))


def test_a_typed_line_is_bounded():
    editor = LineEditor("> ")
    assert editor.feed(b"x" * (MAX_CHARACTERS + 5) + b"\n") == ["x" * MAX_CHARACTERS]
