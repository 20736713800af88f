"""Everything that the specifications name is there, under that name in Python (tests/vectors/specified_names.json)."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from fairway.errors import ConfigurationError
from fairway.events import EVENT_NAMES
from fairway.options import ReliableChannelOptions

TABLE = json.loads((Path(__file__).parents[1] / "vectors" / "specified_names.json").read_text(encoding="utf-8"))


def named(entries):
    return pytest.mark.parametrize("entry", entries, ids=[entry["name"] for entry in entries])


def look_up(dotted):
    """Return what a dotted name means: a module as far as that goes, then attributes."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[cut:], found)
    raise AssertionError(f"{dotted} is not there")


@named(TABLE["functions"])
def test_every_function_is_there_with_its_parameters(entry):
    parameters = inspect.signature(look_up(entry["here"])).parameters
    assert set(entry["parameters"].values()) <= set(parameters)


@named(TABLE["options"])
def test_every_option_is_there_with_its_default(entry):
    found: Any = reduce(getattr, entry["here"].split("."), ReliableChannelOptions())
    wanted = entry.get("ours", entry["default"])
    if wanted is None and "ours" not in entry and not entry["here"].startswith(("causal", "bloom")):
        assert found > 0, "the document leaves the value open, not whether there is a limit"
    else:
        assert found == wanted
    assert ("ours" in entry) == ("why" in entry)


@named(TABLE["logos_options"])
def test_every_option_of_the_later_document_has_its_default_in_its_profile(entry):
    assert reduce(getattr, entry["here"].split("."), ReliableChannelOptions.logos()) == entry["default"]


@named(TABLE["mapping"])
def test_the_other_name_of_an_option_is_understood_in_a_mapping(entry):
    layer, name = entry["name"].split(".")
    options = ReliableChannelOptions.from_mapping({layer: {name: 64_000}})
    assert reduce(getattr, entry["here"].split("."), options) == 64_000
    *path, option = entry["here"].split(".")
    both: dict[str, Any] = {layer: {name: 64_000}}
    (both.setdefault(path[0], {}) if path else both)[option] = 64_000
    with pytest.raises(ConfigurationError, match="are one option"):
        ReliableChannelOptions.from_mapping(both)


def test_a_history_backend_among_the_options_is_refused_with_the_way_to_give_one():
    with pytest.raises(ConfigurationError, match=r"create_reliable_channel\(store=\.\.\.\)"):
        ReliableChannelOptions.from_mapping({"sds": {"history_backend": "memory"}})


PAGE = (Path(__file__).parents[2] / "docs" / "names.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", [kind for kind in TABLE if kind != "about"])
def test_the_page_of_names_has_every_name(kind):
    for entry in TABLE[kind]:
        row = next((line for line in PAGE.splitlines() if line.startswith(f"| `{entry['name']}` |")), "")
        assert entry.get("here", "") in row, entry
        assert entry.get("why", "") in row, entry
        assert row, entry


@named(TABLE["events"])
def test_every_event_is_there_with_its_fields(entry):
    kind = look_up(entry["here"])
    assert kind in EVENT_NAMES
    assert set(entry["fields"].values()) <= {field.name for field in fields(kind)}


@named(TABLE["values"])
def test_every_further_name_is_there(entry):
    assert look_up(entry["here"]) is not None
