"""What a replay says of files that are not as they should be, and how its reports read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.conformance.cases import Case, MalformedCaseError, refused, same, shown
from tests.conformance.replay import replay, replay_document, replay_file
from tests.conformance.report import Check, GroupReport, ReplayOutcome, outcome_of

from fairway.errors import DecodeError

RIGHT = {"s": "", "u64": "11160318154034397263", "i64": "-7286425919675154353"}
WRONG = {**RIGHT, "u64": "1"}


def test_a_file_without_a_known_group_is_not_replayed():
    report = replay_document({"about": "nothing", "weather": []}, "weather.json")
    assert report.kind is None
    assert report.outcome is ReplayOutcome.UNREADABLE
    assert "about, weather" in report.errors[0]


def test_an_unknown_group_beside_known_ones_is_an_error_that_names_it():
    report = replay_document({"about": "hashes", "hash64": [RIGHT], "hash128": []}, "hashes.json")
    assert report.errors == ("unknown group 'hash128' in a file of the nim-sds format",)
    assert [group.name for group in report.groups] == ["hash64"]
    assert report.outcome is ReplayOutcome.UNREADABLE


def test_a_note_on_a_known_group_is_prose_and_one_on_an_unknown_group_is_not():
    assert replay_document({"hash64": [RIGHT], "hash64_note": "text"}, "x").errors == ()
    assert replay_document({"hash64": [RIGHT], "weather_note": "text"}, "x").errors != ()


@pytest.mark.parametrize("name", ["bloom_positions_m0_k3", "bloom_positions_m10_k", "bloom_positions"])
def test_a_group_name_with_parameters_must_be_complete(name: str):
    assert replay_document({"hash64": [RIGHT], name: []}, "x").errors != ()


def test_parameters_in_a_group_name_are_used():
    group = [{"id": "hello", "bits": [0, 0, 0]}]
    assert replay_document({"bloom_positions_m1_k3": group}, "x").outcome is ReplayOutcome.MATCHES
    assert replay_document({"bloom_positions_m1_k2": group}, "x").outcome is ReplayOutcome.MISMATCH


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'"text"', b"\xff\xfe", b"[" * 100_000])
def test_a_file_that_is_no_json_object_is_an_error_of_its_report(tmp_path: Path, content: bytes):
    path = tmp_path / "spoilt.json"
    path.write_bytes(content)
    assert replay_file(path).outcome is ReplayOutcome.UNREADABLE


def test_a_path_that_does_not_exist_is_an_error_of_its_report(tmp_path: Path):
    assert "No such file" in replay_file(tmp_path / "none.json").errors[0]


def test_a_directory_stands_for_the_json_files_in_it(tmp_path: Path):
    (tmp_path / "b.json").write_text(json.dumps({"hash64": [WRONG]}))
    (tmp_path / "a.json").write_text(json.dumps({"hash64": [RIGHT]}))
    (tmp_path / "c.txt").write_text("no known answers")
    reports = replay([tmp_path])
    assert [Path(report.path).name for report in reports] == ["a.json", "b.json"]
    assert [report.outcome for report in reports] == [ReplayOutcome.MATCHES, ReplayOutcome.MISMATCH]
    assert outcome_of(reports) is ReplayOutcome.MISMATCH


def test_a_directory_without_json_files_is_an_error(tmp_path: Path):
    assert outcome_of(replay([tmp_path])) is ReplayOutcome.UNREADABLE


def test_a_replay_of_nothing_matches_nothing():
    assert outcome_of([]) is ReplayOutcome.UNREADABLE


def test_a_departure_counts_only_if_the_record_was_reproduced():
    group = GroupReport(
        name="group",
        checks=(
            Check("plain", ok=True),
            Check("reproduced", ok=True, differs_on_purpose="reason"),
            Check("not reproduced", ok=False, differs_on_purpose="reason"),
            Check("wrong", ok=False, detail="1 expected, got 2"),
        ),
    )
    assert (group.passed, group.counted) == (2, 3)
    assert [check.name for check in group.failures] == ["wrong"]
    assert [check.name for check in group.departures] == ["reproduced", "not reproduced"]


def test_a_difference_between_long_bytes_is_shown_where_it_begins():
    check = same("bytes", bytes(100), bytes(40) + b"\x01" + bytes(60))
    assert not check.ok
    assert check.detail.startswith("100 bytes expected, got 101; from byte 40 on 0000")


def test_long_values_are_cut():
    assert shown(bytes(1_000)).endswith("... (1000 bytes)")
    assert len(shown("x" * 1_000)) < 120


def test_an_action_that_should_be_refused_but_is_not_is_a_failure():
    def accept() -> int:
        return 7

    def refuse() -> None:
        raise DecodeError("no")

    assert refused("claim", accept).detail == "an error expected, got 7"
    assert refused("claim", refuse).ok


@pytest.mark.parametrize(
    ("read", "value"),
    [
        ("text", 1),
        ("integer", "x"),
        ("integer", True),
        ("integer", 1.5),
        ("number", "x"),
        ("number", False),
        ("flag", 0),
        ("octets", "0"),
        ("octets", 0),
        ("items", "ab"),
        ("texts", [1]),
        ("integers", ["x"]),
        ("octet_strings", ["0g"]),
        ("child", []),
        ("children", [1]),
    ],
)
def test_a_field_of_another_type_is_malformed(read: str, value: object):
    with pytest.raises(MalformedCaseError):
        getattr(Case({"field": value}), read)("field")


def test_fields_that_nobody_read_are_known_also_in_nested_objects():
    case = Case({"a": 1, "b": {"c": 1, "d": [{"e": 1}]}, "f": None})
    assert case.unread() == ["a", "b", "f"]
    nested = case.child("b")
    (deepest,) = nested.children("d")
    assert case.maybe_text("f") is None
    assert case.unread() == ["a", "b.c", "b.d[0].e"]
    assert (case.integer("a"), nested.integer("c"), deepest.integer("e")) == (1, 1, 1)
    assert case.unread() == []
