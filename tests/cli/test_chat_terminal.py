"""`fairway chat` on a terminal: what is being typed stays below what appears, and the terminal is left as it was."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from patience import PATIENCE_S

FAIRWAY = (sys.executable, "-c", "from fairway.cli import main; main()")


class Terminal:
    """A terminal of 80 columns with a chat on it."""

    def __init__(self, address: str) -> None:
        self._own, its = pty.openpty()
        self.before = termios.tcgetattr(its)
        environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "FAIRWAY_NODE": address}
        self.process = subprocess.Popen(
            [*FAIRWAY, "chat", "--channel", "team", "--sender", "alice"],
            stdin=its,
            stdout=its,
            stderr=its,
            env=environment,
            start_new_session=True,
        )
        self._its = its
        self.seen = ""

    def type(self, keys: str) -> None:
        os.write(self._own, keys.encode())

    def until(self, words: str) -> str:
        """Wait until something appears; return what appeared since the last time, up to the end of that."""
        end_s = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            ready, _, _ = select.select([self._own], [], [], max(0, end_s - time.monotonic()))
            assert ready, f"{words!r} never appeared after {self.seen!r}"
            self.seen += os.read(self._own, 65_536).decode(errors="replace")
        end = self.seen.index(words) + len(words)
        seen, self.seen = self.seen[:end], self.seen[end:]
        return seen

    def end(self) -> int:
        """Wait for the end of the chat."""
        return self.process.wait(PATIENCE_S)

    def settings(self) -> list[object]:
        return termios.tcgetattr(self._its)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        os.close(self._its)
        os.close(self._own)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    node = subprocess.Popen([*FAIRWAY, "node", "--json", "--state", str(tmp_path)], stdout=subprocess.PIPE)
    assert node.stdout is not None
    try:
        yield json.loads(node.stdout.readline())["multiaddrs"][0]
    finally:
        node.terminate()
        node.wait(PATIENCE_S)
        node.stdout.close()


@pytest.fixture
def terminal(address: str) -> Iterator[Terminal]:
    opened = Terminal(address)
    try:
        yield opened
    finally:
        opened.close()


def test_a_received_message_leaves_the_typed_line_as_it_is(terminal: Terminal, address: str):
    terminal.until("alice> ")
    terminal.type("half a l")
    terminal.until("alice> half a l")
    words = ("send", "--node", address, "--channel", "team", "--sender", "bob", "--wait", "sent", "from bob")
    subprocess.run([*FAIRWAY, *words], check=True, timeout=PATIENCE_S, capture_output=True)
    assert "bob" in terminal.until("from bob").removesuffix("from bob")
    assert terminal.until("half a l").endswith("\x1b[Kalice> half a l")
    terminal.type("im\x7fne\r")
    terminal.until("half a line")
    terminal.type("/quit\n")
    assert terminal.end() == 0
    assert terminal.settings() == terminal.before


@pytest.mark.parametrize(
    ("keys", "code"), [("\x04", 0), pytest.param("\x03", 130, marks=pytest.mark.full)], ids=["Ctrl-D", "Ctrl-C"]
)
def test_a_chat_restores_the_terminal(terminal: Terminal, keys: str, code: int):
    terminal.until("alice> ")
    # Ctrl-C reaches a session only through its controlling terminal; a signal is what it amounts to.
    if keys == "\x03":
        terminal.process.send_signal(2)
    else:
        terminal.type(keys)
    assert terminal.end() == code
    assert terminal.settings() == terminal.before
