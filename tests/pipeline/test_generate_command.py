"""``fairway pipeline generate``: an archive to try things on."""

from __future__ import annotations

import json
import re
import shlex
from itertools import pairwise

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from fairway.cli import pipeline
from fairway.errors import ConfigurationError
from fairway.pipeline import session
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.sources import open_source


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
