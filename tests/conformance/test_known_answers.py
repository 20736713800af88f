"""The known-answer files of this repository, replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conformance.replay import replay_file
from tests.conformance.report import ReplayOutcome

VECTORS = Path(__file__).parents[1] / "vectors" / "conformance"


@pytest.mark.parametrize("name", sorted(path.name for path in VECTORS.glob("*.json")))
def test_every_answer_matches(name: str) -> None:
    report = replay_file(VECTORS / name)
    assert [check for group in report.groups for check in group.failures] == []
    assert report.errors == ()
    assert report.outcome is ReplayOutcome.MATCHES
    assert [group.name for group in report.groups if not group.checks] == []
