"""What a chat shows and where its lines come from: a terminal with a line being typed, or a pipe."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import termios
import tty
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from fairway.apps.line_editor import LineEditor
from fairway.apps.lines import LineReader, TooLong

_KEYS_BYTES = 4096


class Screen(ABC):
    """Lines in, text out."""

    @abstractmethod
    def lines(self) -> AsyncIterator[str]:
        """Yield what is typed, line by line, until the end of the input."""

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
                self.show(Text(f"a line of more than {line.limit_bytes:,} bytes was left out; send it with /file"))
            else:
                yield line.decode(errors="replace")

    def show(self, text: Text) -> None:
        """Print a line."""
        self._console.print(text, soft_wrap=True)


class TerminalScreen(Screen):
    """For people: what is being typed stays below what appears."""

    def __init__(self, console: Console, prompt: str) -> None:
        self._console = console
        self._editor = LineEditor(prompt)
        self._keys: asyncio.Queue[bytes] = asyncio.Queue()

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """Get every key as it is typed, until the end of the context."""
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        loop = asyncio.get_running_loop()
        # Keys come at once and are not echoed; Ctrl-C still is an interrupt.
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
        """Yield what is typed."""
        while not self._editor.has_ended:
            for line in self._editor.feed(await self._keys.get()):
                self._draw()
                yield line
            self._draw()

    def show(self, text: Text) -> None:
        """Print a line above the one that is being typed."""
        self._write(self._editor.erasure())
        self._console.print(text, soft_wrap=True)
        self._draw()

    def _draw(self) -> None:
        self._write(self._editor.drawing(shutil.get_terminal_size().columns))

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
