"""Replays known-answer files against fairway: finds them, recognises their format, runs every group's checker.

The invariant: nothing in a file is passed over in silence. A file that cannot be read, a format that is not known and
a group that is not known are errors of the report, named, even if everything else matches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.conformance.formats import FORMATS, Format
from tests.conformance.report import FileReport, GroupReport


def replay(paths: Iterable[Path]) -> list[FileReport]:
    """Replay files, and the ``*.json`` files that lie directly in directories, in the order given."""
    return [report for path in paths for report in _replay_path(path)]


def _replay_path(path: Path) -> list[FileReport]:
    if not path.is_dir():
        return [replay_file(path)]
    files = sorted(path.glob("*.json"))
    if not files:
        return [FileReport(path=str(path), kind=None, errors=("no *.json file lies in this directory",))]
    return [replay_file(file) for file in files]


def replay_file(path: Path) -> FileReport:
    """Replay one known-answer file."""
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        return FileReport(path=str(path), kind=None, errors=(f"cannot be read: {error.strerror or error}",))
    except (ValueError, RecursionError) as error:
        return FileReport(path=str(path), kind=None, errors=(f"is not JSON: {error}",))
    return replay_document(document, str(path))


def replay_document(document: object, path: str) -> FileReport:
    """Replay the content of a known-answer file; ``path`` only names it."""
    if not isinstance(document, Mapping):
        return FileReport(path=path, kind=None, errors=("a known-answer file is one JSON object",))
    known = max(FORMATS, key=lambda candidate: _groups_known(candidate, document))
    if _groups_known(known, document) == 0:
        names = ", ".join(str(key) for key in document) or "none"
        return FileReport(path=path, kind=None, errors=(f"no known format has any of these groups: {names}",))
    groups, errors = [], []
    for key, value in document.items():
        if known.is_prose(key):
            continue
        checker = known.checker(key)
        if checker is None:
            errors.append(f"unknown group {key!r} in a file of the {known.name} format")
        else:
            groups.append(GroupReport(name=key, checks=tuple(checker(value))))
    return FileReport(path=path, kind=known.name, groups=tuple(groups), errors=tuple(errors))


def _groups_known(candidate: Format, document: Mapping[str, Any]) -> int:
    return sum(candidate.checker(key) is not None for key in document)
