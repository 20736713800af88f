"""The registry of outgoing tables is what the documentation lists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from fairway.pipeline.outgoing.outgoing_messages import REASONS
from fairway.pipeline.outgoing.tables import OUTGOING_TABLES
from fairway.pipeline.schema import types_of

TEXT = (Path(__file__).parents[2] / "docs" / "outgoing.md").read_text(encoding="utf-8")


def test_the_documentation_lists_every_outgoing_table_as_it_is():
    for table in OUTGOING_TABLES:
        keys = ", ".join(f"`{key}`" for key in table.keys) or "none"
        assert f"### `{table.name}`\n\n{table.meaning[0].upper()}{table.meaning[1:]}.\n\nKey: {keys}." in TEXT
        head = f" Files: {table.layout}.\n\n| column | type | what it is |\n|---|---|---|\n"
        columns = types_of(table.schema).items()
        rows = "".join(rf"\| `{name}` \| {re.escape(kind)} \| \S.* \|\n" for name, kind in columns)
        assert re.search(rf"{re.escape(head)}{rows}(?!\|)", TEXT), f"{table.name} should be:\n{head}{rows}"
    assert re.findall(r"^### `(\w+)`$", TEXT, re.MULTILINE) == [table.name for table in OUTGOING_TABLES]


def test_the_documentation_lists_every_reason_for_which_a_payload_is_refused():
    paragraph = TEXT.split("## What cannot be sent")[1].split("\n## ")[0]
    assert set(REASONS) <= set(re.findall(r"`([a-z-]+)`", paragraph))


def test_keys_are_columns():
    for table in OUTGOING_TABLES:
        assert set(table.keys) <= set(table.columns)
