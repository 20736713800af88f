"""Growths that are killed where they write, and end in the tables of one that nobody disturbed.

The program is killed with SIGKILL before or after a file of a table is written, a table is committed, ``run.json`` is
put, or files are deleted, on a disk and in a bucket. Readers find the run before until ``run.json`` is there. Each time
the same command is started again, until one ends.

FAIRWAY_KILL_POINTS=20 takes so many points, ``pytest --seed N`` others.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("pyspark")

from fairway.pipeline.location import Location
from fairway.pipeline.run import RunTables
from grown_runs import OPTIONS, PLAN, assert_same, empty_run, generated, grown, write

SHORT = 5
POINTS = int(os.environ.get("FAIRWAY_KILL_POINTS", str(SHORT)))
WAIT_S = 180

# Takes every growth, however large, and kills itself at a call of what writes: the number of the call, before or after.
DRIVER = """
import os, signal, sys
from math import inf
from fairway.cli import main
from fairway.pipeline.location import Location
from fairway.pipeline.run import folder
from fairway.pipeline.run.growth.growing import grow
from fairway.pipeline.tables.files import TableFiles

kind, number, moment, *words = sys.argv[1:]
grow.__kwdefaults__["most_grown"] = inf
left = int(number)

def deadly(owner, name):
    real = getattr(owner, name)
    def called(first, *arguments, **named):
        global left
        counts = name != "put" or first.name == "run.json"
        left -= counts
        if counts and not left and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(first, *arguments, **named)
        if counts and not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, called)

deadly(*{"file": (TableFiles, "write"), "commit": (folder, "commit"), "run": (Location, "put"),
         "vacuum": (folder, "vacuum")}[kind])
sys.argv[1:] = ["pipeline", "run", *words]
main()
"""
EVERY_POINT = [
    *(("file", number, moment) for number in range(1, 13) for moment in ("before", "after")),
    *(("commit", number, moment) for number in range(1, 16) for moment in ("before", "after")),
    ("run", 1, "before"),
    ("run", 1, "after"),
    ("vacuum", 1, "before"),
    ("vacuum", 7, "after"),
]


def chosen_points(seed):
    """Return one point of each kind and others by the seed, in an order in which one growth comes to all of them."""
    first = [("file", 9, "after"), ("commit", 3, "before"), ("run", 1, "before"), ("run", 1, "after")]
    others = [point for point in EVERY_POINT if point not in first]
    rest = random.Random(seed).sample(others, min(len(others), max(0, POINTS - len(first))))
    return sorted([*first[:POINTS], *rest], key=EVERY_POINT.index)


@pytest.fixture(scope="module")
def archive():
    rows = generated(replace(PLAN, messages=250, seed=8))
    return rows.slice(0, rows.num_rows - 60), rows.slice(rows.num_rows - 60)


@pytest.fixture(params=["disk", "bucket"])
def out(request, tmp_path):
    return str(tmp_path / "run") if request.param == "disk" else request.getfixturevalue("bucket").uri("run")


@pytest.mark.full
def test_a_growth_that_is_killed_again_and_again_ends_in_the_same_tables(archive, out, tmp_path, seed):
    first, rest = archive
    source = f"parquet:{tmp_path / 'source'}"
    for folder in (out, tmp_path / "undisturbed"):
        empty_run(folder, tmp_path / "source")
    write(tmp_path / "source", "part-0.parquet", first)
    for folder in (out, tmp_path / "undisturbed"):
        grown(folder, [source])
    write(tmp_path / "source", "part-1.parquet", rest)
    place = Location.of(out, "--out")
    before = (place / "run.json").read()
    held = RunTables(out).rows("waku_messages")
    words = ["--json", "--source", source, "--out", out, "--rate-limit", str(OPTIONS.rate_limit)]
    words += ["--parity-rate", str(OPTIONS.parity_rate)]
    killed = 0
    for kind, number, moment in chosen_points(seed):
        is_written = (kind, moment) == ("run", "after") or kind == "vacuum"
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, kind, str(number), moment, *words],
            capture_output=True,
            timeout=WAIT_S,
            check=False,
        )
        killed += done.returncode == -signal.SIGKILL
        assert done.returncode == -signal.SIGKILL or (killed and not done.returncode), done.stderr.decode()
        assert ((place / "run.json").read() == before) is not is_written, (kind, number, moment)
        if not is_written:
            assert RunTables(out).rows("waku_messages") == len(RunTables(out).all("waku_messages", ["copies"])) == held
    assert killed == POINTS
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER, "file", "0", "before", *words], capture_output=True, timeout=WAIT_S, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stdout)["mode"] == "unchanged"
    assert grown(tmp_path / "undisturbed", [source]).mode == "grown"
    assert_same(out, tmp_path / "undisturbed")
