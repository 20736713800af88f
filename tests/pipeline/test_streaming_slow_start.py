"""A stream on a machine that is too busy to start Python as fast as Spark wants it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

from fairway.storage.nwaku_archive import NwakuArchive

pytestmark = [pytest.mark.spark, pytest.mark.full]

PATIENCE_S = 600
SLOW_PYTHON = """#!/bin/sh
# The first process of a source of a stream is late: Spark waits ten seconds for it.
case "$*" in *streaming_source*) mkdir "{late}" 2>/dev/null && sleep 15 ;; esac
exec "{python}" "$@"
"""


def test_it_begins_again_by_itself(log, tmp_path):
    channel = log("team")
    for number in range(12):
        channel.message("alice", b"message %d" % number)
    with NwakuArchive(tmp_path / "a.db") as archive:
        for _, message in channel.sent:
            archive.append("/waku/2/rs/1/0", message)
    python, late = tmp_path / "python", tmp_path / "late"
    python.write_text(SLOW_PYTHON.format(late=late, python=sys.executable))
    python.chmod(0o755)
    command = [sys.executable, "-m", "fairway", "pipeline", "stream", f"sqlite:{tmp_path}/a.db", "--once", "--json"]
    ran = subprocess.run(
        [*command, "--out", str(tmp_path / "live")],
        env=os.environ | {"PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    assert late.exists(), "no process was late"
    assert json.loads(ran.stdout.splitlines()[-1])["delivered"] == 12
