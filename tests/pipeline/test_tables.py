"""The registry of tables is what the documentation lists, and what a run writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from fairway.errors import ConfigurationError
from fairway.pipeline.run.jobs import jobs
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.schema import types_of
from fairway.pipeline.tables import TABLES, table_named
from fairway.pipeline.tables.files import WORK_TABLES

DOCUMENT = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_documentation_lists_every_table_as_it_is():
    text = DOCUMENT.read_text(encoding="utf-8")
    for table in TABLES:
        keys = ", ".join(f"`{key}`" for key in table.keys)
        assert f"## {table.name}\n\n{table.meaning[0].upper()}{table.meaning[1:]}." in text, table.name
        head = f"\n\nKey: {keys}. Files: {table.layout}.\n\n| column | type | what it is |\n|---|---|---|\n"
        columns = types_of(table.schema).items()
        rows = "".join(rf"\| `{name}` \| {re.escape(kind)} \| \S.* \|\n" for name, kind in columns)
        assert re.search(rf"{re.escape(head)}{rows}(?!\|)", text), f"{table.name} should be:\n{head}{rows}"
    assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == [table.name for table in TABLES]


def test_keys_are_columns_and_names_are_unique():
    assert len({table.name for table in TABLES}) == len(TABLES)
    for table in TABLES:
        assert table.keys
        assert set(table.keys) <= set(table.columns)
        assert len(set(table.columns)) == len(table.columns)


@pytest.mark.parametrize("blooms", [False, True])
def test_a_run_writes_every_table_and_reads_only_what_is_there(blooms):
    there: set[str] = set()
    for job in jobs(RunOptions(blooms=blooms)):
        assert there.issuperset(job.reads)
        assert there.isdisjoint(job.writes)
        there.update(job.writes)
    assert there - WORK_TABLES.keys() == {table.name for table in TABLES}
    assert ("bloom_evidence" in there) is blooms


def test_a_table_that_is_none_is_refused_with_the_names_there_are():
    with pytest.raises(ConfigurationError, match="waku_messages"):
        table_named("messages")
