"""A run that grew in any steps has the tables of a run from nothing over everything, row by row."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa

from examples import examples
from fairway.pipeline.run import RunTables, run
from fairway.pipeline.run.growth.growing import grow
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.tables import TABLES
from grown_runs import OPTIONS, PLAN, assert_same, empty_run, generated, grown, write


@st.composite
def archives(draw):
    """Draw an archive, and the step in which each of its rows comes."""
    plan = replace(
        PLAN,
        messages=draw(st.integers(20, 300)),
        seed=draw(st.integers(1, 10**6)),
        loss=draw(st.sampled_from([0.0, 0.01, 0.1])),
    )
    rows = generated(plan)
    steps = draw(st.integers(2, 5))
    shuffled = draw(st.floats(0, 1))
    rng = random.Random(draw(st.integers(0, 10**6)))
    places = [
        rng.randrange(steps) if rng.random() < shuffled else place * steps // rows.num_rows
        for place in range(rows.num_rows)
    ]
    return rows, [rows.filter(pa.array([place == step for place in places])) for step in range(steps)]


@pytest.mark.full
@given(archives(), st.booleans())
@examples(0.1, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
def test_any_steps_give_the_tables_of_one(tmp_path_factory, archive, other_store):
    rows, steps = archive
    folder = tmp_path_factory.mktemp("steps")
    one, other, further = folder / "one", folder / "steps", folder / "further"
    empty_run(folder / "run", one)
    empty_run(folder / "again", other)
    *first, last = steps
    for number, step in enumerate(first):
        write(other, f"part-{number}.parquet", step)
        assert grown(folder / "again", [f"parquet:{other}"]).new_rows == step.num_rows
    sources = [f"parquet:{other}"]
    if other_store:
        sources.append(f"further=parquet:{further}")
        named = last.set_column(last.schema.get_field_index("source"), "source", pa.repeat("further", last.num_rows))
        rows = pa.concat_tables([*first, named.cast(ARROW_SCHEMA)])
    write(further if other_store else other, "part-last.parquet", last)
    assert grown(folder / "again", sources).mode == "grown"
    write(one, "part-all.parquet", rows)
    grown(folder / "run", [f"parquet:{one}"])
    assert_same(folder / "again", folder / "run")


@pytest.mark.full
@pytest.mark.spark
def test_a_run_that_grew_has_the_tables_of_a_run_over_everything(spark, tmp_path, monkeypatch):
    monkeypatch.setitem(grow.__kwdefaults__, "most_grown", inf)
    rows = generated(replace(PLAN, messages=800, seed=3))
    order = list(range(rows.num_rows))
    random.Random(1).shuffle(order)
    begun = rows.num_rows // 2
    early = sorted(order[: begun + 40])
    source, empty = tmp_path / "source", tmp_path / "empty"
    write(source, "part-0.parquet", rows.take(pa.array(early)))
    given = {"rate_limit": OPTIONS.rate_limit, "parity_rate": OPTIONS.parity_rate, "spark": spark}
    first = run([f"parquet:{source}"], tmp_path / "grown", **given)
    assert (first.mode, first.because) == ("whole", None)
    rest = order[begun + 40 :]
    for number in range(3):
        part = rest[number::3]
        write(source, f"part-{number + 1}.parquet", rows.take(pa.array(part)))
        summary = run([f"parquet:{source}"], tmp_path / "grown", **given)
        assert (summary.mode, summary.new_rows) == ("grown", len(part))
    assert run([f"parquet:{source}"], tmp_path / "grown", **given).mode == "unchanged"
    whole = run([f"parquet:{source}"], tmp_path / "whole", **given)
    assert_same(tmp_path / "grown", tmp_path / "whole")
    assert summary.balance == whole.balance
    for table in TABLES:
        frame = RunTables(tmp_path / "grown").dataframe(spark, table.name)
        assert frame.count() == RunTables(tmp_path / "whole").rows(table.name), table.name
    empty_run(tmp_path / "from_nothing", empty)
    write(empty, "part-1.parquet", rows)
    grown(tmp_path / "from_nothing", [f"parquet:{empty}"])
    assert_same(tmp_path / "from_nothing", tmp_path / "whole")
