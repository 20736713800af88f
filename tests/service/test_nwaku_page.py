"""``docs/nwaku.md`` says of each call and number of nwaku whether it is here; this keeps it true."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fairway.service.rest import openapi

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "nwaku.md").read_text(encoding="utf-8")
VECTORS = ROOT / "tests" / "vectors" / "nwaku_rest"
CALLS = json.loads((VECTORS / "calls.json").read_text(encoding="utf-8"))
NUMBERS = json.loads((VECTORS / "metrics.json").read_text(encoding="utf-8"))
SERVED = {call.route for call in openapi.CALLS}


def table(head):
    """Return the cells of each row of the table with a head."""
    rows = PAGE.partition(f"| {head} |\n")[2].partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_lists_every_call_of_nwaku_and_of_this_node():
    said = {call.strip("`"): (of, here) for call, of, here, _ in table("call | of | here | remark")}
    of = dict.fromkeys(SERVED, "fairway") | {call: maker for maker in ("go-waku", "nwaku") for call in CALLS[maker]}
    assert said == {call: (maker, "yes" if call in SERVED else "no") for call, maker in of.items()}


def test_a_call_that_is_not_here_has_a_reason():
    assert all(remark for _, _, here, remark in table("call | of | here | remark") if here == "no")


def test_the_page_names_the_numbers_of_nwakus_dashboards():
    said = {name.strip("`"): re.findall(r"`(\w+)`", labels) for name, labels in table("number | labels")}
    assert {name: said[name] for name in NUMBERS["served"]} == NUMBERS["served"]
    assert set(said) == {*NUMBERS["served"], *NUMBERS["served_with_rln"]}
    missing = {", ".join(re.findall(r"`([^`]+)`", names)): why for names, why in table("number | why")}
    assert missing == NUMBERS["missing"]
