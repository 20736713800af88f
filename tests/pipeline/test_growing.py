"""A run that grew in any steps has the tables of a run from nothing over everything, row by row."""

from __future__ import annotations

import random
from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.options import Profile
from fairway.pipeline.exchange import notes_of
from fairway.pipeline.generator import GeneratorPlan, rows_mapper
from fairway.pipeline.run import RunOptions, RunTables, run
from fairway.pipeline.run.folder import RunFolder, TableResult
from fairway.pipeline.run.growth.growing import grow
from fairway.pipeline.run.reading import SORTED
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.run.summary import Balance, balance_json
from fairway.pipeline.run.summing import balance_terms
from fairway.pipeline.run.table_files import TableFiles, schema_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.tables import TABLES

PLAN = GeneratorPlan(
    messages=400,
    channels=4,
    largest_share=0.5,
    logos_share=0.3,
    history=3,
    content_bytes=40,
    long_share=0.08,
    segment_size_bytes=256,
    parity_rate=0.5,
    sync_share=0.05,
    ephemeral_share=0.03,
    loss=0.1,
    corruption=0.03,
    retransmission=0.05,
    stores=2,
    store_loss=0.2,
    duplication=0.05,
)
OPTIONS = RunOptions(rate_limit=10, parity_rate=PLAN.parity_rate)


def generated(plan):
    """Return the rows of an archive in the order of their times, forged and repeated ones among them."""
    rows = pa.Table.from_batches(list(rows_mapper(plan)(iter([pa.RecordBatch.from_pydict({"id": [0]})]))))
    rng = random.Random(plan.seed)
    found = rows.to_pylist()
    added = []
    for row in rng.sample(found, len(found) // 20):
        said = said_again(row, rng)
        added.append(
            row | {"payload": said, "message_hash": rng.randbytes(32), "timestamp": row["timestamp"] + late(rng)}
        )
    return pa.Table.from_pylist(found + added, schema=ARROW_SCHEMA).sort_by("timestamp")


def said_again(row, rng):
    """Return the payload of a message once more: the same, or with other content under the same id."""
    codec = Profile.of_marker(row["meta"]).codec
    try:
        message = codec.decode(row["payload"])
    except Exception:  # noqa: BLE001 - it is garbage, and stays so
        return row["payload"]
    if not message.content or rng.random() < 0.5:
        return row["payload"]
    return codec.encode(replace(message, content=b"forged %d" % rng.randrange(3)))


def late(rng):
    return rng.choice([-1, 1]) * rng.randrange(20_000_000_000)


def write(folder, name, rows):
    folder.mkdir(exist_ok=True, parents=True)
    pq.write_table(rows, folder / name)


def empty_run(out, source):
    """Write the tables of a run over a source without rows."""
    write(source, "part-none.parquet", ARROW_SCHEMA.empty_table())
    described = [one.described() for one in parse_sources([f"parquet:{source}"])]
    folder = RunFolder.open_for(out, described, OPTIONS.as_json(), None)
    files = TableFiles(root=str(out))
    for table in TABLES:
        (told,) = notes_of([files.write(table.name, 0, schema_of(table.name).empty_table())["blob"][0].as_py()])
        result = TableResult(name=table.name, rows=0, files=1, bytes=told["bytes"], seconds=0.0, names=(told["file"],))
        folder.finish_job(table.name, [result], {})
    folder.finish_job("statistics", [], balance_terms([]))
    nothing = Balance(rows_in=0, duplicates=0, quarantined=0, retransmissions=0, sync=0, delivered=0, incomplete=0)
    folder.finish({"balance": balance_json(nothing), "seconds": 0.0})
    folder.close()


def grown(out, sources, options=OPTIONS):
    parsed = parse_sources(sources)
    described = [source.described() for source in parsed]
    folder = RunFolder.open_for(out, described, options.as_json(), None, holds_finished=True)
    try:
        return grow(folder, parsed, options, None, most_grown=inf)
    finally:
        folder.close()


def content(tables, name):
    rows = list(map(repr, tables.all(name)))
    return rows if name in SORTED else sorted(rows)


def assert_same(one, other):
    one, other = RunTables(one), RunTables(other)
    for table in TABLES:
        assert content(one, table.name) == content(other, table.name), table.name
        assert one.rows(table.name) == len(one.all(table.name)) == other.rows(table.name), table.name
    assert one.balance == other.balance
    assert one.balance.adds_up


@st.composite
def archives(draw):
    """Draw an archive, and the step in which each of its rows comes."""
    plan = replace(PLAN, messages=draw(st.integers(20, 300)), seed=draw(st.integers(1, 10**6)))
    rows = generated(plan)
    steps = draw(st.integers(2, 5))
    shuffled = draw(st.floats(0, 1))
    rng = random.Random(draw(st.integers(0, 10**6)))
    places = [
        rng.randrange(steps) if rng.random() < shuffled else place * steps // rows.num_rows
        for place in range(rows.num_rows)
    ]
    return rows, [rows.filter(pa.array([place == step for place in places])) for step in range(steps)]


@given(archives(), st.booleans())
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
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
