"""``fairway pipeline generate``: an archive to try things on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from fairway.cli import pipeline
from fairway.errors import ConfigurationError, PipelineError
from fairway.pipeline import session
from fairway.pipeline.location import Location
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.sources import open_source
from fairway.testing.archives import WRITTEN, GeneratorPlan, write_generated, written_sources
from patience import PATIENCE_S

SMALL = GeneratorPlan(messages=300, channels=3)


@pytest.mark.spark
@pytest.mark.full
def test_it_writes_what_is_asked_for_and_prints_the_sources_of_a_run(spark, tmp_path):
    folder = tmp_path / "big"
    words = ["--messages", "300", "--stores", "2", "--channels", "3", "--corruption", "0.01", "--duplication", "0.02"]
    result = CliRunner().invoke(pipeline.app, ["generate", str(folder), *words])
    assert result.exit_code == 0, result.output
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert (plan["messages"], plan["stores"], plan["channels"]) == (300, 2, 3)
    assert (plan["corruption"], plan["duplication"]) == (0.01, 0.02)
    words = shlex.split(result.stdout)
    assert words[:4] == ["next:", "fairway", "pipeline", "run"]
    sources = parse_sources([word for before, word in pairwise(words) if before == "--source"])
    assert [source.label for source in sources] == ["store-0", "store-1"]
    for source in sources:
        assert open_source(spark, source.uri, label=source.label).count() > 150


@pytest.mark.parametrize(
    ("place", "why"), [("there", "there exists; give a new name"), ("nowhere/new", "there is no folder .*nowhere")]
)
def test_a_folder_that_cannot_be_made_is_refused_before_spark_starts(tmp_path, monkeypatch, place, why):
    def start(*_, **__):
        pytest.fail("Spark was started")

    monkeypatch.setattr(session, "create_session", start)
    (tmp_path / "there").mkdir()
    result = CliRunner().invoke(pipeline.app, ["generate", str(tmp_path / place)])
    assert isinstance(result.exception, ConfigurationError)
    assert re.search(why, str(result.exception))


@pytest.mark.spark
@pytest.mark.full
def test_programs_are_told_the_folder_without_its_keys(spark, bucket):
    result = CliRunner().invoke(pipeline.app, ["generate", bucket.uri("big"), "--messages", "50", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["folder"] == bucket.short("big")
    assert "not-a-secret" not in result.output


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("stops_at", WRITTEN)
def test_what_fails_in_its_midst_leaves_nothing(spark, tmp_path, stops_at):
    begun = []

    def progress(name):
        begun.append(name)
        if name == stops_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_generated(spark, SMALL, tmp_path / "made", progress=progress)
    assert begun == list(WRITTEN[: WRITTEN.index(stops_at) + 1])
    assert list(tmp_path.iterdir()) == []
    write_generated(spark, SMALL, tmp_path / "made")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]


@pytest.mark.spark
@pytest.mark.full
def test_no_task_makes_a_folder_again_that_was_removed_meanwhile(spark, tmp_path):
    def remove(name):
        if name == WRITTEN[-1]:
            (made,) = tmp_path.iterdir()
            shutil.rmtree(made)

    with pytest.raises(PipelineError, match="nothing of it is left"):
        write_generated(spark, SMALL, tmp_path / "made", progress=remove)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_an_archive_elsewhere_is_that_of_a_folder_here_and_failures_leave_nothing(request, spark, tmp_path, kind):
    if kind == "s3":
        place = request.getfixturevalue("bucket").uri("archives/big")
    else:
        place = f"{request.getfixturevalue('hdfs')}/archives/big"

    def stop(name):
        if name == WRITTEN[-1]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_generated(spark, SMALL, place, progress=stop)
    assert Location.of(place, "the archive").children(recursive=True) == []
    write_generated(spark, SMALL, place)
    write_generated(spark, SMALL, tmp_path / "here")
    for there, here in zip(written_sources(SMALL, place), written_sources(SMALL, tmp_path / "here"), strict=True):
        assert hashes(spark, there) == hashes(spark, here) != []
    assert "not-a-secret" not in repr(written_sources(SMALL, place, shown=True))
    with pytest.raises(ConfigurationError, match="exists; give a new name") as told:
        write_generated(spark, SMALL, place)
    assert "not-a-secret" not in str(told.value)


def hashes(spark, source) -> list[bytes]:
    rows = open_source(spark, source.partition("=")[2]).select("message_hash").collect()
    return sorted(bytes(row.message_hash) for row in rows)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_whoever_ends_it_finds_nothing_of_it(tmp_path, number):
    command = "from fairway.cli import main; main()"
    words = ["pipeline", "generate", str(tmp_path / "made"), "--messages", "2000000"]
    with subprocess.Popen([sys.executable, "-c", command, *words], stderr=subprocess.PIPE, text=True) as process:
        ends_s = time.monotonic() + PATIENCE_S
        while not list(tmp_path.glob(".made.*.part/waku_messages/*/*")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < ends_s, "nothing is written"
            time.sleep(0.1)
        process.send_signal(number)
        said = process.stderr.read()
        assert process.wait(PATIENCE_S) == 130, said
    assert "broken off; nothing of it is left" in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
