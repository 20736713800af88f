"""A child process of a benchmark. It ends with its parent, and each wait for it is bounded.

The child ends when its standard input ends (``--until-stdin-closes`` of the command line,
`fairway.cli._until_stopped` elsewhere). It prints lines of JSON. Linux only.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_START_S: Final = 120.0
_END_S: Final = 60.0
_WORKLOAD_S: Final = 1_800


class Process:
    """What a running process has used."""

    def __init__(self, pid: int) -> None:
        self.pid: Final = pid

    def cpu_s(self) -> float:
        """Return the seconds of CPU that it took so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mib(self) -> float:
        """Return the memory that it holds."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Child(Process):
    """A running child, made by `child`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process.pid)
        self._process = process

    async def says(self, wanted: str, within_s: float = _START_S) -> Any:
        """Return what its next line holds; ``wanted`` names that in the error.

        Raises `TimeoutError` if no line comes in time, and `EOFError` if the child ends instead.
        """
        assert self._process.stdout is not None
        async with at_most(within_s, wanted):
            line = await self._process.stdout.readline()
        if not line:
            raise EOFError(f"waited for {wanted}, but the process ended with code {await self._process.wait()}")
        return json.loads(line)


@asynccontextmanager
async def child(*words: str) -> AsyncIterator[Child]:
    """Run ``python -m WORDS...``; at the end of the block it is told to end, and killed if it does not."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *words), cwd=_ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    try:
        yield Child(process)
    finally:
        process.stdin.close()
        try:
            async with at_most(_END_S, f"the end of {' '.join(words)}"):
                await process.wait()
        except BaseException:
            process.kill()
            await process.wait()
            raise


@asynccontextmanager
async def at_most(seconds: float, wanted: str) -> AsyncIterator[None]:
    """Bound the waits of a block. Raises `TimeoutError`, which says what was waited for."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise TimeoutError(f"waited {seconds:.0f} s for {wanted}") from error


def workload(module: str, name: str, **parameters: object) -> Any:
    """Return what ``python -m MODULE NAME JSON`` measured, in a process of its own."""
    command = [sys.executable, "-m", module, name, json.dumps(parameters)]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, timeout=_WORKLOAD_S, check=True)
    return json.loads(done.stdout)
