"""``python -m tests.conformance PATH...``: replays known-answer files and prints what differs.

Exit status 0 if every answer matches, 1 if some do not, 2 if a file cannot be read or has an unknown group.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Final

from tests.conformance.replay import replay
from tests.conformance.report import GroupReport, outcome_of

SHOWN_PER_GROUP: Final = 20
"""Differences printed for one group."""


def main(paths: list[str]) -> int:
    """Replay files, or the ``*.json`` files of directories; return the exit status."""
    if not paths:
        print("usage: python -m tests.conformance PATH...", file=sys.stderr)
        return 2
    reports = replay(Path(path) for path in paths)
    for report in reports:
        print(f"{report.path} ({report.kind or 'not replayed'})")
        for error in report.errors:
            print(f"  error: {error}")
        for group in report.groups:
            print_group(group)
    groups = [group for report in reports for group in report.groups]
    passed, differing = sum(group.passed for group in groups), sum(len(group.failures) for group in groups)
    print(f"{passed} matched, {differing} differ; files: {len(reports)}")
    return int(outcome_of(reports))


def print_group(group: GroupReport) -> None:
    """Print a line for a group, then its differences and its departures on purpose."""
    print(f"  {group.name}: {group.passed}/{group.counted}" + ("" if group.checks else " nothing to check"))
    for check in group.failures[:SHOWN_PER_GROUP]:
        print(f"    differs: {check.name}: {check.detail}")
    if len(group.failures) > SHOWN_PER_GROUP:
        print(f"    differs: {len(group.failures) - SHOWN_PER_GROUP} more")
    for reason, count in Counter(check.differs_on_purpose for check in group.departures).items():
        print(f"    departs on purpose ({count}): {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
