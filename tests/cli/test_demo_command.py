"""``fairway demo`` as a person, and as a program, runs it: real processes, in real time."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from fairway.cli import main
from fairway_processes import fairway_command
from patience import PATIENCE_S


def demo(*arguments, **options):
    command = fairway_command("demo", *map(str, arguments))
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)


@pytest.mark.full
def test_a_file_and_texts_reach_all_participants_once_although_one_is_killed(tmp_path):
    file, kept = tmp_path / "holiday.jpg", tmp_path / "kept"
    file.write_bytes(bytes(range(256)) * 4_000)
    ran = demo(file, "--participants", 2, "--no-spark", "--keep", kept)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for milestone in (
        "2 participants are up",
        "bob was killed (SIGKILL) while holiday.jpg was on its way",
        "bob is back, on the same store",
        "bob has 'holiday.jpg' of alice",
        "alice knows that bob got 'holiday.jpg'",
        "bob has 'ok' of alice",
        "alice has 'ok' of bob",
        "0 lost, 0 twice or out of order, 0 unacknowledged",
        "1 of 1 saved copies equal the file",
    ):
        assert milestone in ran.stdout
    stored = kept / "bob" / hashlib.sha256(file.read_bytes()).hexdigest()
    assert stored.read_bytes() == file.read_bytes()


def children_of(pid):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return {int(child) for child, parent in map(str.split, listed.splitlines()) if int(parent) == pid}


def running(pids):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    return {int(pid) for pid, state in map(str.split, listed.splitlines()) if not state.startswith("Z")} & pids


@pytest.fixture
def started(tmp_path):
    """Start a demo; return it when its processes are up, with their ids."""
    command = fairway_command("demo", "--no-spark", "--participants", "2", "--keep", str(tmp_path / "kept"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout:
                if "participants are up" in line:
                    break
            children = children_of(process.pid)
            assert len(children) == 3
            yield process, children
        finally:
            process.kill()
    end_s = time.monotonic() + PATIENCE_S
    while running(children) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert running(children) == set()


@pytest.mark.full
def test_an_interrupt_ends_every_process(started):
    process, _children = started
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130


@pytest.mark.full
def test_a_process_that_dies_ends_the_demo_and_is_named(started):
    process, children = started
    os.kill(min(children), signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 2
    assert re.search("the process of (node|alice|bob) ended by itself", process.stderr.read())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--participants", "9"), "less than or equal to 8"),
        (("--loss", "1"), "less than or equal to 0.95"),
        (("no-such-file",), "no-such-file must be a file of 1 to 20,000,000 bytes"),
        (("--keep", "."), "give --keep the path of a new folder"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(tmp_path, monkeypatch, capsys, arguments, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fairway", "demo", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    printed = capsys.readouterr()
    assert (leaving.value.code, printed.out) == (2, "")
    assert text in " ".join(printed.err.split())
