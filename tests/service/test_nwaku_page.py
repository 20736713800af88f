"""``docs/nwaku.md`` lists the calls and numbers of nwaku that a node lacks."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fairway.service.rest.openapi import CALLS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "nwaku.md").read_text(encoding="utf-8")
VECTORS = ROOT / "tests" / "vectors" / "nwaku_rest"


def table(head):
    """Return the cells of each row of the table with a head."""
    rows = PAGE.partition(f"| {head} |\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_says_which_calls_of_nwaku_are_missing_and_names_no_others():
    calls = json.loads((VECTORS / "calls.json").read_text(encoding="utf-8"))["nwaku"]
    said = {call.strip("`"): difference for call, difference in table("call | difference")}
    assert set(said) <= set(calls)
    missing = {call for call, difference in said.items() if difference.startswith("missing")}
    assert missing == set(calls) - {call.route for call in CALLS}


def test_the_page_names_the_missing_numbers_of_nwakus_dashboards():
    numbers = json.loads((VECTORS / "metrics.json").read_text(encoding="utf-8"))
    missing = {", ".join(re.findall(r"`([^`]+)`", names)): why for names, why in table("number | why")}
    assert missing == numbers["missing"]
