"""Runs fairway commands as processes with JSON lines: starts, kills, restarts and always ends them.

Invariant: when a `ProcessGroup` exits, normally or by an exception, all its processes have ended. Each process is
addressed by its own handle, never by a name. An unexpected end of a process is raised once, with the end of its log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from fairway.errors import FairwayError

_MAX_LINE_BYTES: Final = 16_777_216
_TAIL_BYTES: Final = 4_000
GRACE_S: Final = 5.0
"""Time for a process to end by itself, and again after a signal."""

OnLine = Callable[[Mapping[str, Any]], None]


class ProcessDiedError(FairwayError):
    """A process ended unexpectedly; ``log_tail`` is the end of its log."""

    def __init__(self, name: str, exit_code: int, log: Path) -> None:
        self.log_tail = tail(log)
        last = self.log_tail.rstrip().rpartition("\n")[2]
        super().__init__(f"the process of {name} ended with exit code {exit_code}; its log ends: {last or 'empty'}")
        self.name = name
        self.exit_code = exit_code


def fairway_command(*arguments: str) -> tuple[str, ...]:
    """Return the command line that runs a fairway command with this very interpreter and its packages."""
    # -P prevents modules of the working directory from replacing installed ones.
    return (sys.executable, "-P", "-m", "fairway", *arguments)


class ParticipantProcess:
    """One process that prints events as JSON lines on stdout, and reads commands as JSON lines from stdin.

    It may be started again after its end; it appends to the same log file.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path, on_line: OnLine) -> None:
        """Prepare; ``on_line`` is called with every object on stdout, in order, also those read after its end."""
        self.name = name
        self.command = tuple(command)
        self.log = log
        self.lives = 0
        """Number of its starts."""
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_ending = False

    @property
    def pid(self) -> int | None:
        """Process id of the present life, or None."""
        return self._process.pid if self.is_running and self._process is not None else None

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start it; it must not be running."""
        await self.gone()
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_MAX_LINE_BYTES,
                # An interrupt at the terminal is for the parent alone, which then ends its children in order.
                start_new_session=True,
            )
        self.lives += 1
        self._is_ending = False
        self._reading = asyncio.ensure_future(self._read(self._process))

    def tell(self, **command: Any) -> None:
        """Write a command to its stdin; after the end of the process the command is lost."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(json.dumps(command).encode() + b"\n")

    def kill(self) -> None:
        """Kill the process at once (SIGKILL)."""
        self._is_ending = True
        if self._process is not None and self.is_running:
            self._process.kill()

    async def gone(self) -> int | None:
        """Wait until it has ended and its output is read; return its exit code, None if it was never started."""
        if self._process is None:
            return None
        if self._reading is not None:
            await self._reading
        return await self._process.wait()

    async def end(self) -> int | None:
        """End it: close its stdin, then send SIGTERM, then SIGKILL."""
        self._is_ending = True
        process = self._process
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            for ask in (None, process.terminate, process.kill):
                if ask is not None and self.is_running:
                    ask()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), GRACE_S)
                    break
        return await self.gone()

    def check(self) -> None:
        """Raise `ProcessDiedError` if the process ended by itself, or the error that ``on_line`` raised."""
        if self._reading is not None and self._reading.done():
            self._reading.result()
        process = self._process
        if process is not None and process.returncode is not None and not self._is_ending:
            raise ProcessDiedError(self.name, process.returncode, self.log)

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            return
        async for line in process.stdout:
            # A process that was killed may leave half a line behind.
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                if isinstance(told, dict):
                    self._on_line(told)
        await process.wait()


class ProcessGroup:
    """Processes that end with a block of code. An async context manager."""

    def __init__(self) -> None:
        self._processes: list[ParticipantProcess] = []

    def add(self, process: ParticipantProcess) -> ParticipantProcess:
        """Add a process to the group and return it."""
        self._processes.append(process)
        return process

    def check(self) -> None:
        """Raise `ProcessDiedError` if a process ended by itself, or the error that its ``on_line`` raised."""
        for process in self._processes:
            process.check()

    async def __aenter__(self) -> Self:
        """Return the group itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all of them, the last added first; without ceremony if something went wrong."""
        if kind is not None:
            for process in self._processes:
                process.kill()
        try:
            for process in reversed(self._processes):
                await process.end()
        finally:
            for process in self._processes:
                process.kill()


def tail(log: Path) -> str:
    """Return the end of a log file; empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
