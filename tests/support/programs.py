"""Runs the programs of examples/ as processes that a test kills and starts again."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Self

from patience import PATIENCE_S


@contextmanager
def running(*command: object, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run a process, and kill it at the end."""
    with subprocess.Popen([str(part) for part in command], text=True, **options) as process:  # type: ignore[call-overload]
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def fairway_node() -> Iterator[str]:
    """Run `fairway node`; yields its address."""
    command = (sys.executable, "-c", "from fairway.cli import main; main()", "node", "--json")
    with running(*command, stdout=subprocess.PIPE) as node:
        assert node.stdout is not None
        yield json.loads(node.stdout.readline())["multiaddrs"][0]


class Program:
    """A Python program with lines on its output."""

    def __init__(self, *command: object) -> None:
        self._command = [sys.executable, *map(str, command)]
        self.lines: list[str] = []
        """All lines so far, of all runs."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._new: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the process with SIGKILL, if it runs."""
        if self._process.returncode is not None:
            return
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def start_again(self) -> None:
        """Kill the process and start the program again."""
        self.kill()
        self.__enter__()

    def type(self, line: str) -> None:
        """Write a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def wait_for(self, words: str) -> str:
        """Return the next line of this run with some words."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._new.get(timeout=max(0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line with {words!r} among {self.lines}") from None
            if words in line:
                return line

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self.lines.append(line.rstrip("\n"))
            self._new.put(line.rstrip("\n"))
