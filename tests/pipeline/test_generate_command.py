"""``fairway pipeline generate``: an archive to try things on."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise

import pytest
from typer.testing import CliRunner

pytest.importorskip("pyspark")

from fairway.cli import pipeline
from fairway.pipeline.run.sources import open_run_source, parse_sources

pytestmark = [pytest.mark.spark, pytest.mark.full]


def test_it_writes_what_is_asked_for_and_prints_the_sources_of_a_run(spark, tmp_path):
    folder = tmp_path / "big"
    words = ["--messages", "300", "--stores", "2", "--channels", "3", "--corruption", "0.01", "--duplication", "0.02"]
    result = CliRunner().invoke(pipeline.app, ["generate", str(folder), *words])
    assert result.exit_code == 0, result.output
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert (plan["messages"], plan["stores"], plan["channels"]) == (300, 2, 3)
    assert (plan["corruption"], plan["duplication"]) == (0.01, 0.02)
    words = shlex.split(result.output)
    assert words[:4] == ["next:", "fairway", "pipeline", "run"]
    sources = parse_sources([word for before, word in pairwise(words) if before == "--source"])
    assert [source.label for source in sources] == ["store-0", "store-1"]
    for source in sources:
        assert open_run_source(spark, source).count() > 150
