"""``fairway demo`` as a person, and as a program, runs it: real processes, in real time."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time

import pytest

from fairway.apps.demonstration_processes import fairway_command
from fairway.cli import main
from fairway.storage.nwaku_archive import NwakuArchive
from patience import PATIENCE_S


def demo(*arguments, **options):
    command = fairway_command("demo", *map(str, arguments))
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options)


@pytest.mark.full
def test_a_file_and_texts_reach_everybody_once_although_a_receiver_is_killed(tmp_path):
    content = bytes(range(256)) * 1_200
    file, kept = tmp_path / "holiday.jpg", tmp_path / "kept"
    file.write_bytes(content)
    ran = demo(file, "--participants", 2, "--json", "--no-spark", "--keep", kept, "--archive", tmp_path / "a.sqlite")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["succeeded"], told["spark_agrees"]) == (True, None)
    assert set(told["verdict"].values()) == {0}
    assert told["killing"]["name"] == "bob"
    assert told["killing"]["back_at_ms"] > told["killing"]["killed_at_ms"]
    by_size = {message["size_bytes"]: message for message in told["messages"]}
    assert by_size[len(content)]["received_by"] == by_size[len(content)]["delivered_to"] == ["bob"]
    assert [message["sender"] for message in told["messages"] if message["title"] == "ok"] == ["alice", "bob"]
    sha256 = hashlib.sha256(content).hexdigest()
    assert told["saved"] == {"bob": sha256}
    assert (kept / "bob" / sha256).read_bytes() == content
    assert {"alice.db", "bob.db", "node.log", "alice.log", "bob.log"} <= {path.name for path in kept.iterdir()}
    with NwakuArchive(tmp_path / "a.sqlite") as archive:
        assert archive.count() == told["network"]["published"]
    # What happened was told to whoever watches, beside the object for programs.
    for milestone in ("2 processes are up", "bob was killed (SIGKILL)", "bob is back", "What was sent", "nothing lost"):
        assert milestone in ran.stderr


def children_of(pid):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return {int(child) for child, parent in map(str.split, listed.splitlines()) if int(parent) == pid}


def running(pids):
    listed = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    return {int(pid) for pid, state in map(str.split, listed.splitlines()) if not state.startswith("Z")} & pids


@pytest.mark.full
def test_an_interrupt_ends_every_process(tmp_path):
    with subprocess.Popen(
        fairway_command("demo", "--no-spark", "--participants", "2", "--keep", str(tmp_path / "kept")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            for line in started.stdout:
                if "processes are up" in line:
                    break
            children = children_of(started.pid)
            assert len(children) == 3
            started.send_signal(signal.SIGINT)
            assert started.wait(PATIENCE_S) == 130
        finally:
            started.kill()
    end_s = time.monotonic() + PATIENCE_S
    while running(children) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert running(children) == set()


@pytest.mark.full
def test_a_child_that_dies_is_told_with_the_end_of_its_log(tmp_path):
    ran = demo("--no-spark", "--archive", tmp_path / "no" / "such" / "folder" / "a.sqlite")
    assert ran.returncode != 0
    assert "the process of node ended with exit code" in ran.stderr
    assert "the log of node ends:" in ran.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--participants", "9"), "2 to 8 participants, not 9"),
        (("--loss", "1"), "0 <= loss < 1"),
        (("no-such-file",), "no-such-file cannot be read"),
        (("--archive", "."), ". is there already; give --archive a path that is new"),
        (("--keep", "."), "give --keep a folder that is not there yet"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(tmp_path, monkeypatch, capsys, arguments, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fairway", "demo", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    printed = capsys.readouterr()
    assert (leaving.value.code, printed.out) == (2, "")
    assert text in " ".join(printed.err.split())
