"""Processes that are spoken to in JSON lines, killed, started again, and always ended."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from fairway.apps import demonstration_processes
from fairway.apps.demonstration_processes import (
    ParticipantProcess,
    ProcessDiedError,
    ProcessGroup,
    fairway_command,
    tail,
)
from patience import PATIENCE_S

ECHO = """
import os, sys
print('{"up": %d}' % os.getpid(), flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""


def script(source):
    return (sys.executable, "-c", source)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Recorder(list):
    """The lines of a process."""

    def __init__(self):
        super().__init__()
        self.grown = asyncio.Event()

    def append(self, line):
        super().append(line)
        self.grown.set()

    async def until(self, count):
        async with asyncio.timeout(PATIENCE_S):
            while len(self) < count:
                self.grown = asyncio.Event()
                await self.grown.wait()


@pytest.fixture
def lines():
    return Recorder()


@pytest.fixture
def make(tmp_path, lines):
    return lambda source, name="child": ParticipantProcess(name, script(source), tmp_path / f"{name}.log", lines.append)


def test_commands_go_in_and_lines_come_out_in_order(make, lines):
    async def talk():
        async with ProcessGroup() as group:
            process = group.add(make(ECHO))
            await process.start()
            for number in range(3):
                process.tell(command="count", number=number)
            await lines.until(4)
            assert process.pid == lines[0]["up"]
            return process

    process = asyncio.run(talk())
    assert [line["number"] for line in lines[1:]] == [0, 1, 2]
    assert (process.is_running, process.pid) == (False, None)


def test_a_killed_process_starts_again_and_everything_it_had_said_was_heard(make, lines):
    async def talk():
        async with ProcessGroup() as group:
            process = group.add(make("import sys, time\nfor i in range(500): print('{\"i\": %d}' % i)\n" + ECHO))
            await process.start()
            await lines.until(501)
            process.kill()
            assert await process.gone() == -9
            process.check()
            process.tell(command="lost")
            await process.start()
            await lines.until(1_002)
            assert process.lives == 2

    asyncio.run(talk())
    assert len({line["up"] for line in lines if "up" in line}) == 2


def test_half_a_line_and_lines_that_are_no_objects_are_passed_over(make, lines):
    async def talk():
        async with ProcessGroup() as group:
            process = group.add(make("print('no json'); print('[1]'); print('{\"a\": 1}'); print('{\"b\"', end='')"))
            await process.start()
            await process.gone()
            with pytest.raises(ProcessDiedError):
                process.check()

    asyncio.run(talk())
    assert lines == [{"a": 1}]


def test_a_process_that_ends_unasked_is_told_with_the_end_of_its_log(make):
    async def talk():
        async with ProcessGroup() as group:
            process = group.add(make("import sys; print('why\\nit died', file=sys.stderr); sys.exit(3)"))
            await process.start()
            await process.gone()
            group.check()

    with pytest.raises(
        ProcessDiedError, match="process of child ended with exit code 3; its log ends: it died"
    ) as told:
        asyncio.run(talk())
    assert told.value.log_tail == "why\nit died\n"


def test_what_a_listener_raises_is_not_swallowed(tmp_path):
    def fail(_line):
        raise ZeroDivisionError

    async def talk():
        async with ProcessGroup() as group:
            process = group.add(ParticipantProcess("child", script("print('{}')"), tmp_path / "log", fail))
            await process.start()
            await asyncio.sleep(0)
            while True:
                group.check()
                await asyncio.sleep(0.01)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(talk(), PATIENCE_S))


@pytest.mark.parametrize("stubborn", [False, True], ids=["asked", "forced"])
def test_whatever_goes_wrong_every_process_has_ended_afterwards(make, lines, stubborn, monkeypatch):
    monkeypatch.setattr(demonstration_processes, "GRACE_S", 0.2)
    ignore = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    wait = "import os\nprint('{\"up\": %d}' % os.getpid(), flush=True)\ntime.sleep(600)"

    async def talk(fault):
        async with ProcessGroup() as group:
            for name in ("one", "two"):
                await group.add(make((ignore + wait) if stubborn else ECHO, name)).start()
            await lines.until(2)
            if fault is not None:
                raise fault

    for fault in (None, ValueError("fault"), asyncio.CancelledError()):
        lines.clear()
        if fault is None:
            asyncio.run(talk(fault))
        else:
            with pytest.raises(type(fault)):
                asyncio.run(talk(fault))
        assert [is_alive(line["up"]) for line in lines] == [False, False]


def test_a_group_that_never_started_anything_ends_too(make):
    async def talk():
        async with ProcessGroup() as group:
            process = group.add(make(ECHO))
            process.kill()
            process.tell(command="nobody")
            process.check()
            assert await process.gone() is None

    asyncio.run(talk())


def test_only_the_end_of_a_long_log_is_shown(tmp_path):
    log = tmp_path / "log"
    assert tail(log) == ""
    log.write_text("x" * 10_000 + "end")
    assert (len(tail(log)), tail(log)[-4:]) == (4_000, "xend")


def test_a_fairway_command_runs_with_this_interpreter_wherever_it_is_called(tmp_path, lines, monkeypatch):
    # A module of the working directory must not take the place of an installed one.
    (tmp_path / "typer.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)

    async def talk():
        async with ProcessGroup() as group:
            process = group.add(
                ParticipantProcess("child", fairway_command("--version"), tmp_path / "log", lines.append)
            )
            await process.start()
            return await process.gone()

    assert asyncio.run(talk()) == 0
    assert tail(tmp_path / "log") == ""
