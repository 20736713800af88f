"""What a demonstration can be asked to show, and when it counts as a success."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairway.apps.demonstration_bookkeeping import DemonstrationFaults
from fairway.apps.demonstration_result import MAX_FILE_BYTES, DemonstrationPlan, DemonstrationResult
from fairway.errors import ConfigurationError

GOOD = DemonstrationFaults(lost=0, twice=0, out_of_order=0, unacknowledged=0, ended_twice=0)
RESULT = DemonstrationResult(
    channel_id="demo",
    participants=("alice", "bob", "carol"),
    messages=(),
    elapsed_ms=1,
    verdict=GOOD,
    faults=(),
    file_sha256="ab",
    saved={"bob": "ab", "carol": "ab"},
    segments=1,
    recovered_by_parity=(),
    killing=None,
    network={},
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("a note")
    return path


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"participants": 1}, "2 to 8 participants, not 1"),
        ({"participants": 9}, "2 to 8 participants, not 9"),
        ({"loss": 1.0}, r"0 <= loss < 1, not 1\.0"),
        ({"loss": -0.1}, "0 <= loss < 1"),
        ({"loss": float("nan")}, "0 <= loss < 1, not nan"),
    ],
)
def test_a_demo_that_cannot_work_is_refused_with_what_would(file, options, text):
    with pytest.raises(ConfigurationError, match=text):
        DemonstrationPlan(file=file, title="note", **options)


def test_a_file_that_cannot_be_sent_is_refused(tmp_path):
    empty, large = tmp_path / "empty", tmp_path / "large"
    empty.touch()
    with large.open("wb") as opened:
        opened.truncate(MAX_FILE_BYTES + 1)
    for path, text in (
        (empty, "the file has 0 bytes"),
        (large, f"the file has {MAX_FILE_BYTES + 1} bytes"),
        (tmp_path / "none", "cannot be read"),
        (tmp_path, "is not a file"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            DemonstrationPlan(file=path, title="x")


def test_the_last_participant_is_the_one_that_is_killed(file):
    plan = DemonstrationPlan(file=file, title="note", participants=4)
    assert (plan.names, plan.victim) == (("alice", "bob", "carol", "dave"), "dave")
    assert replace(plan, kill=False).victim is None


def test_it_succeeds_only_if_nothing_went_wrong_and_every_copy_is_the_same():
    assert (RESULT.succeeded, RESULT.copies_with_same_hash) == (True, 2)
    for fault in ("lost", "twice", "out_of_order", "unacknowledged", "ended_twice"):
        assert not replace(RESULT, verdict=replace(GOOD, **{fault: 1})).succeeded
    for saved in ("cd", None):
        assert not replace(RESULT, saved={"bob": "ab", "carol": saved}).succeeded
