"""Runs of the pipeline that are killed, whole or in part, and end in the very tables of a run that nobody disturbed.

The driver, its Java process or both are killed with SIGKILL at points of their work: in the middle of a job, when the
files of a job are written but not yet noted, when they just were, in the middle of the removal of a
table that only later jobs needed. One run is killed at one point after the other, each time started again, so that it
survives all of them.

FAIRWAY_KILL_POINTS=20 takes so many points, ``pytest --seed N`` others; with more than two, workers are killed in one
more step.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from fairway.errors import PipelineError
from fairway.options import SegmentationConfig
from fairway.pipeline.run import run
from fairway.pipeline.run.jobs import jobs
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.session import WORKER_DAEMON
from fairway.pipeline.tables.files import WORK_TABLES
from fairway.storage.nwaku_archive import NwakuArchive
from grown_runs import assert_same

pytestmark = [
    pytest.mark.spark,
    pytest.mark.full,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc"),
]

SHORT = 2
POINTS = int(os.environ.get("FAIRWAY_KILL_POINTS", str(SHORT)))
SHARD = "/waku/2/rs/1/0"
WAIT_S = 180
# With filters, so that there is a table that only later jobs need.
JOBS = tuple(jobs(RunOptions(blooms=True)))
MOMENTS = ("begun", "written", "named", "dropped")
LONGEST_IN_A_JOB_S = 0.8

# Python tells a hook what the program is about to do with files; with the beginnings of jobs these are the points.
DRIVER = """
import json, os, signal, sys, threading
from contextlib import suppress
from pathlib import Path

moment, job, table, delay_s, victims, out, *words = sys.argv[1:]
place = str(Path(out, "work", table))
attempt = str(Path(out, "work", "attempt.json"))
state = {"named": False, "going": False}

def tree(pid):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found += [int(entry.name), *tree(int(entry.name))]
    return found

def kill():
    state.update(named=False, going=False)  # what this does with files calls the hook again
    below = tree(os.getpid())
    os.write(1, ("killed " + " ".join(map(str, below)) + chr(10)).encode())
    for pid in below if victims == "all" else below[:1] if victims == "java" else []:
        with suppress(ProcessLookupError):  # what Java started may end with it
            os.kill(pid, signal.SIGKILL)
    if victims != "java":
        os.kill(os.getpid(), signal.SIGKILL)

def names_the_job():
    return job in json.loads(Path(out, "work", ".attempt.json.new").read_text()).get("jobs", {})

def hook(event, told):
    if state["named"]:
        kill()
    elif event == "shutil.rmtree" and str(told[0]) == place and moment == "dropped" and os.path.isdir(place):
        state["going"] = True
    elif event == "os.remove" and state["going"]:
        kill()
    elif event == "os.rename" and str(told[1]) == attempt and moment != "dropped" and names_the_job():
        if moment == "written" or (moment == "begun" and victims != "java"):
            kill()
        state["named"] = moment == "named"

sys.addaudithook(hook)
from fairway.cli import main
from fairway.pipeline.run.progress import Steps
begin_step = Steps.begin

def begin(steps, name):
    if moment == "begun" and name == job:
        threading.Timer(float(delay_s), kill).start()
    begin_step(steps, name)

Steps.begin = begin
sys.argv[1:] = ["pipeline", "run", *words]
main()
"""


@dataclass(frozen=True, order=True)
class Point:
    """Where a driver is killed; the order is that in which one run comes to them."""

    number: int
    moment: int
    job: str
    table: str
    delay_s: float
    victims: str

    def __str__(self):
        return f"{MOMENTS[self.moment]} {self.job} {self.table} +{self.delay_s:.2f} s, {self.victims}"


def point(moment, name, rng):
    """Return a point in the job of a name, or where the work table of a name is removed."""
    if moment == "dropped":
        number = max(number for number, job in enumerate(JOBS) if name in job.reads)
    else:
        number = [job.name for job in JOBS].index(name)
    job = JOBS[number]
    delay_s = rng.uniform(0, LONGEST_IN_A_JOB_S) if moment == "begun" else 0.0
    victims = rng.choice(["all", "driver", "java"] if moment == "begun" else ["all", "driver"])
    table = name if moment == "dropped" else job.writes[0]
    return Point(number, MOMENTS.index(moment), job.name, table, delay_s, victims)


def chosen_points(seed):
    """One point of each kind, and others by the seed; at the first one Java dies and the program stays."""
    rng = random.Random(seed)
    names = [job.name for job in JOBS]
    dropped = [name for name in WORK_TABLES if any(name in job.reads for job in JOBS)]
    first = [("begun", names[0]), ("named", names[-2]), ("dropped", dropped[0]), ("written", names[-1])]
    others = [(moment, name) for name in names for moment in MOMENTS[:3]]
    others += [("dropped", name) for name in dropped]
    rest = [pair for pair in others if pair not in first]
    taken = first[:POINTS] + rng.sample(rest, min(len(rest), max(0, POINTS - len(first))))
    points = [point(*pair, rng) for pair in taken]
    return sorted([replace(points[0], victims="java"), *points[1:]])


@pytest.fixture(scope="module")
def made(log, spark, tmp_path_factory):
    """An archive of a few channels, files among what they sent, and what a run that nobody disturbs makes of it."""
    folder = tmp_path_factory.mktemp("killed")
    rng = random.Random(4)
    channels = [log(f"channel-{number}") for number in range(4)]
    for number in range(120):
        rng.choice(channels).message(rng.choice(["alice", "bob", "carol"]), b"said %d" % number)
    for channel in channels:
        channel.file("alice", rng.randbytes(1_000), SegmentationConfig(segment_size_bytes=128))
        channel.message("bob", b"and so on")
    with NwakuArchive(folder / "store.db") as archive:
        for channel in channels:
            for number, (_, waku) in enumerate(channel.sent):
                if number % 17:
                    archive.append(SHARD, waku)
            archive.append(SHARD, channel.wrapped(b"\xff\xff garbage"))
    source = f"a=sqlite:{folder / 'store.db'}"
    summary = run([source], folder / "undisturbed", blooms=True, spark=spark)
    assert summary.balance.adds_up
    return SimpleNamespace(folder=folder, source=source, summary=summary)


def assert_undisturbed(made, out):
    assert_same(out, made.folder / "undisturbed")
    left = {"run.json", "run.json.lock", "tables"}
    assert {child.name for child in out.iterdir()} == left


def start_and_kill(made, out, where):
    """Start the job, which kills itself at a point, and return its exit code and what it wrote; nothing of it stays."""
    words = [MOMENTS[where.moment], where.job, where.table, str(where.delay_s), where.victims, str(out)]
    words += ["--source", made.source, "--out", str(out), "--blooms"]
    ended = subprocess.run([sys.executable, "-c", DRIVER, *words], capture_output=True, timeout=WAIT_S, check=False)
    said = ended.stdout.decode()
    assert "killed " in said, f"it never came to {where}: {said} {ended.stderr.decode()}"
    below = [int(word) for word in said.partition("killed ")[2].splitlines()[0].split()]
    ends_s = time.monotonic() + WAIT_S
    while any(map(is_alive, below)):
        assert time.monotonic() < ends_s, "something of the killed run is still there"
        time.sleep(0.05)
    return ended.returncode, ended.stderr.decode()


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_driver_that_is_killed_again_and_again_ends_in_the_same_tables(made, spark, tmp_path, seed):
    out = tmp_path / "run"
    for where in chosen_points(seed):
        code, said = start_and_kill(made, out, where)
        if where.victims == "java":
            assert code == 2, said
            # A thread of PySpark's may say after it that its connection is gone.
            assert any(line.startswith("fairway: the Java process of Spark ended") for line in said.splitlines()), said
        else:
            assert code == -signal.SIGKILL, where
        assert not (out / "run.json").exists()
        for name, told in json.loads((out / "work" / "attempt.json").read_text())["tables"].items():
            there = out / ("work" if told["work"] else "tables") / name
            named = {part["name"]: part["bytes"] for part in told["parts"]}
            sizes = {file.name: file.stat().st_size for file in there.glob("*.parquet")}
            assert named.items() <= sizes.items(), f"{name} is not whole after {where}"
    summary = run([made.source], out, blooms=True, spark=spark)
    assert summary.balance == made.summary.balance
    assert summary.resumed
    assert json.loads((out / "run.json").read_text())["attempts"] == POINTS + 1
    assert_undisturbed(made, out)


def python_workers():
    """Return the processes that Spark of this process has for Python code, without the one that starts them."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            parents[int(entry.name)] = (int(fields[1]), WORKER_DAEMON.encode() in words)
    daemons = {pid for pid, (parent, named) in parents.items() if named and not parents.get(parent, (0, False))[1]}
    mine = {pid for pid in daemons if os.getpid() in ancestors(pid, parents)}
    return [pid for pid, (parent, named) in parents.items() if named and parent in mine]


def ancestors(pid, parents):
    found = []
    while pid in parents and len(found) < len(parents):
        pid = parents[pid][0]
        found.append(pid)
    return found


@pytest.mark.parametrize("step", [job.name for job in (JOBS if POINTS > SHORT else JOBS[1:2])])
def test_a_killed_worker_costs_a_second_attempt_and_nothing_else(made, spark, tmp_path, step):
    killed, timers = [], []

    def kill_all():
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    def stop_workers(progress):
        if progress.step == step and progress.results is None:
            killed.extend(python_workers())
            for pid in killed:
                os.kill(pid, signal.SIGSTOP)  # so that it is in the middle of its task when it dies
            timers.append(threading.Timer(0.7, kill_all))
            timers[0].start()

    summary = run([made.source], tmp_path / "run", blooms=True, spark=spark, progress=stop_workers)
    timers[0].join(timeout=WAIT_S)
    assert killed
    assert not any(map(is_alive, killed))
    assert summary.balance == made.summary.balance
    assert_undisturbed(made, tmp_path / "run")


def test_workers_that_die_whenever_they_are_used_end_the_run_in_one_sentence(made, spark, tmp_path):
    ended = threading.Event()

    def kill_them_all():
        while not ended.wait(0.02):
            for pid in python_workers():
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_them_all)

    def begin(progress):
        if progress.number == 2 and progress.results is None:
            killer.start()

    try:
        with pytest.raises(PipelineError, match="it continues after the last finished table"):
            run([made.source], tmp_path / "run", blooms=True, spark=spark, progress=begin)
    finally:
        ended.set()
        killer.join(timeout=WAIT_S)
    kept = [name for name in JOBS[0].writes if name not in WORK_TABLES]
    assert run([made.source], tmp_path / "run", blooms=True, spark=spark).resumed == len(kept)
    assert_undisturbed(made, tmp_path / "run")
