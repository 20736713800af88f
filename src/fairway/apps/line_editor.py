"""A line that a person types on a terminal while other lines appear above it.

A terminal in its usual mode mixes what is typed with what is printed. Here the program gets every key, keeps the line
itself, and draws it again after whatever was printed. Pure: keys in, lines and drawings out; no terminal is touched.
"""

from __future__ import annotations

import codecs
import unicodedata
from typing import Final

from rich.cells import cell_len

MAX_CHARACTERS: Final = 10_000
"""Longest line that can be typed; further characters are ignored."""
_ERASE_LINE: Final = "\r\x1b[K"
_ENTER: Final = "\r\n"
_BACKSPACES: Final = "\x7f\b"
_END: Final = "\x04"
_KILL_LINE: Final = "\x15"
_KILL_WORD: Final = "\x17"
_ESCAPE: Final = "\x1b"


class LineEditor:
    """Turns key strokes into lines: erasing of characters (Backspace), words (Ctrl-W) and all (Ctrl-U); no movement."""

    def __init__(self, prompt: str) -> None:
        self.has_ended = False
        """Whether Ctrl-D was typed on an empty line, or the input ended."""
        self._prompt = prompt
        self._line = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._escape = ""

    def feed(self, keys: bytes) -> list[str]:
        """Take what was typed; return the lines that were completed by it. No bytes at all mean the end."""
        if not keys:
            self.has_ended = True
            return []
        lines: list[str] = []
        for character in self._decoder.decode(keys):
            if self._is_of_escape(character):
                continue
            if character in _ENTER:
                lines.append(self._line)
                self._line = ""
            elif character == _END:
                self.has_ended = self.has_ended or not self._line
            else:
                self._line = self._edited(character)
        return lines

    def drawing(self, columns: int) -> str:
        """Return what draws the line on the row of the cursor: prompt and as much of the end of it as fits."""
        shown = self._line
        room = max(1, columns - cell_len(self._prompt) - 1)
        while cell_len(shown) > room:
            shown = shown[1:]
        return f"{_ERASE_LINE}{self._prompt}{shown}"

    @staticmethod
    def erasure() -> str:
        """Return what clears the row of the cursor, so that something can be printed there."""
        return _ERASE_LINE

    def _edited(self, character: str) -> str:
        if character in _BACKSPACES:
            return self._line[:-1]
        if character == _KILL_LINE:
            return ""
        if character == _KILL_WORD:
            return self._line.rstrip().rpartition(" ")[0] + (" " if " " in self._line.rstrip() else "")
        is_control = unicodedata.category(character) == "Cc"
        return self._line if is_control or len(self._line) >= MAX_CHARACTERS else self._line + character

    def _is_of_escape(self, character: str) -> bool:
        """Swallow arrow keys and their like: ESC, and for ESC [ or ESC O everything up to a letter or a tilde."""
        if not self._escape:
            if character == _ESCAPE:
                self._escape = character
                return True
            return False
        if self._escape == _ESCAPE:
            self._escape = character if character in "[O" else ""
            return True
        if character.isalpha() or character == "~":
            self._escape = ""
        return True
