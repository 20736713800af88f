"""The screen of a chat: a terminal with a line that is being typed, or a pipe."""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import sys
import termios
import tty
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from fairway.cli._lines import LineReader, TooLong

_KEYS_BYTES = 4096


class Screen(ABC):
    """Reads lines and prints text."""

    @abstractmethod
    def lines(self) -> AsyncIterator[str]:
        """Yield the typed lines until the end of the input."""

    @abstractmethod
    def show(self, text: Text) -> None:
        """Print a line."""


class PipeScreen(Screen):
    """For scripts: plain lines."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def lines(self) -> AsyncIterator[str]:
        """Yield the lines of stdin."""
        async for line in LineReader(sys.stdin.fileno()):
            if isinstance(line, TooLong):
                self.show(Text(f"a line of more than {line.limit_bytes:,} bytes was skipped; send it with /file"))
            else:
                yield line.decode(errors="replace")

    def show(self, text: Text) -> None:
        """Print a line."""
        self._console.print(text, soft_wrap=True)


class TerminalScreen(Screen):
    """For people: the typed line stays below printed lines."""

    def __init__(self, console: Console, prompt: str) -> None:
        self._console = console
        self._editor = LineEditor(prompt)
        self._keys: asyncio.Queue[bytes] = asyncio.Queue()

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """Read every key as it is typed, until the end of the context."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        loop = asyncio.get_running_loop()
        # Keys arrive at once and are not echoed; Ctrl-C still interrupts.
        tty.setcbreak(descriptor)
        loop.add_reader(descriptor, lambda: self._keys.put_nowait(os.read(descriptor, _KEYS_BYTES)))
        try:
            self._draw()
            yield
        finally:
            loop.remove_reader(descriptor)
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
            self._write(self._editor.erasure())

    async def lines(self) -> AsyncIterator[str]:
        """Yield the typed lines."""
        while not self._editor.has_ended:
            for line in self._editor.feed(await self._keys.get()):
                self._draw()
                yield line
            self._draw()

    def show(self, text: Text) -> None:
        """Print a line above the typed one."""
        self._write(self._editor.erasure())
        self._console.print(text, soft_wrap=True)
        self._draw()

    def _draw(self) -> None:
        self._write(self._editor.drawing(shutil.get_terminal_size().columns))

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


MAX_CHARACTERS: Final = 10_000
"""Longest typed line; further characters are ignored."""
_ERASE_LINE: Final = "\r\x1b[K"
_ENTER: Final = "\r\n"
_BACKSPACES: Final = "\x7f\b"
_END: Final = "\x04"
_KILL_LINE: Final = "\x15"
_KILL_WORD: Final = "\x17"
_ESCAPE: Final = "\x1b"


class LineEditor:
    """Turns keys into lines. Backspace erases a character, Ctrl-W a word, Ctrl-U the line; the cursor does not move.

    A terminal in its usual mode mixes typed and printed text. Here the program reads each key, keeps the line itself,
    and draws it again after each printed line.
    """

    def __init__(self, prompt: str) -> None:
        self.has_ended = False
        """Whether Ctrl-D was typed on an empty line, or the input ended."""
        self._prompt = prompt
        self._line = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._escape = ""

    def feed(self, keys: bytes) -> list[str]:
        """Take typed bytes; return the lines that they complete. No bytes mean the end of the input."""
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
        """Return the text that draws the line on the current row: the prompt, and as much of the end as fits."""
        shown = self._line
        room = max(1, columns - cell_len(self._prompt) - 1)
        while cell_len(shown) > room:
            shown = shown[1:]
        return f"{_ERASE_LINE}{self._prompt}{shown}"

    @staticmethod
    def erasure() -> str:
        """Return the text that clears the current row."""
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
        """Skip arrow keys and similar ones: ESC, and after ESC [ or ESC O everything up to a letter or a tilde."""
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
