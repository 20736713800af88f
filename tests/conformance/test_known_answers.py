"""The known-answer files of this repository, replayed; and spoilt in every place, to see that it is noticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.formats import FORMATS
from tests.conformance.replay import replay_document, replay_file
from tests.conformance.report import ReplayOutcome

VECTORS = Path(__file__).parents[1] / "vectors" / "conformance"
FILES = sorted(path.name for path in VECTORS.glob("*.json"))
# The files that define the formats; the others have further cases of them.
SPOILT_FILES = ("js_waku.json", "leopard.json", "nim_sds.json", "segmentation.json")
LONGEST_SPOILT = 20_000
CASES_SPOILT = 6

# Whatever stands in these fields, the same answers follow: prose, and inputs that do not enter into them.
WITHOUT_EFFECT = {
    ("waku_message_hash", "message", "version"),
    ("waku_message_hash", "message", "ephemeral"),
    ("repair", "tResp", "cfg", "tMin"),
    ("repair", "inGroup", "numResponseGroups"),
    ("repair", "inGroup", "participant"),
    ("repair", "inGroup", "senderId"),
    ("repair", "inGroup", "messageId"),
    ("repair", "groups", "numParticipants"),
    ("sharding", "contentTopic"),
    ("lamport_increment", "before"),
    ("history_order", "locale"),
    ("upstream_wire_vectors", "fields", "parity_count"),
    ("undecodable",),
    ("vectors", "recoverable", "lost_parity"),
    ("segmentation", "segment_size_bytes"),
    ("bloom_errors", "result"),
    # Bytes that nothing but decoding them again says anything about.
    ("sds_decode_only", "hex"),
    ("lightpush", "v2", "encoded_hex"),
    ("store", "responses", "encoded_hex"),
}
# Groups that are tables of smaller groups, each of which may be left out, and claims that may be left out.
PROSE = {"name", "note", "about", "source", "framing", "same_in_message_hash_pkg", "via_PushRpc_same"}


@cache
def document(name: str) -> dict[str, Any]:
    return json.loads((VECTORS / name).read_bytes())


def groups() -> list[tuple[str, str]]:
    """Every group of every format."""
    found = []
    for name in SPOILT_FILES:
        kind = next(one for one in FORMATS if any(one.checker(key) for key in document(name)))
        found += [(name, key) for key in document(name) if kind.checker(key)]
    return found


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from fields_of(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from fields_of(item, (*path, index))
    elif not isinstance(value, str) or len(value) < LONGEST_SPOILT:
        yield path


def spoilt(value: Any) -> Any:
    if value is None:
        return "00"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if value.isdecimal():
        return str(int(value) + 1)
    if value and set(value) <= set("0123456789abcdef"):
        return value[:-1] + ("0" if value[-1] != "0" else "1")
    return value + "x"


def with_value(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(content)
    place = changed
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return changed


def failures(key: str, content: Any) -> list[str]:
    report = replay_document({key: content}, "spoilt.json")
    assert report.errors == ()
    return [f"{check.name}: {check.detail}" for check in report.groups[0].failures]


@pytest.mark.parametrize("name", FILES)
def test_every_answer_matches(name: str):
    report = replay_file(VECTORS / name)
    assert [check for group in report.groups for check in group.failures] == []
    assert report.errors == ()
    assert report.outcome is ReplayOutcome.MATCHES
    assert [group.name for group in report.groups if not group.checks] == []


@pytest.mark.parametrize(("name", "key"), groups())
def test_a_wrong_value_in_any_field_is_noticed(name: str, key: str):
    content = document(name)[key]
    noticed: dict[tuple[str, ...], int] = {}
    # In a single case a wrong value may happen to give the same answer, so several get their chance.
    for case in content[:CASES_SPOILT] if isinstance(content, list) else [content]:
        whole = [case] if isinstance(content, list) else case
        for path in fields_of(whole):
            kind = (key, *(step for step in path if isinstance(step, str)))
            tries = noticed.setdefault(kind, 0)
            if kind in WITHOUT_EFFECT or PROSE & set(kind) or not 0 >= tries > -CASES_SPOILT:
                continue
            value = whole
            for step in path:
                value = value[step]
            noticed[kind] = 1 if failures(key, with_value(whole, path, spoilt(value))) else tries - 1
    assert [kind for kind, tries in noticed.items() if tries < 0] == []
