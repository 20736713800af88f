"""``fairway conformance``: prints what `fairway.conformance` found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairway.cli._console import PlainConsole
from fairway.conformance.replay import replay
from fairway.conformance.report import FileReport, GroupReport, as_json, outcome_of

_SHOWN_PER_GROUP: Final = 20
"""Differences of one group that are printed; ``--json`` has them all."""


def command(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH...", help="Known-answer files, or directories with *.json files in them."),
    ],
    *,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Replay known answers of other implementations against this one.

    Exit code 0 if every answer matches, 1 if some do not, 2 if a file cannot be read or has a group that is not known.

    Example: [bold]fairway conformance tests/vectors/leopard.json[/bold]
    """
    reports = replay(paths)
    if machine:
        typer.echo(json.dumps(as_json(reports), indent=2))
    else:
        console = PlainConsole(highlight=False)
        for report in reports:
            _print_file(console, report)
        groups = [group for report in reports for group in report.groups]
        passed, differing = sum(group.passed for group in groups), sum(len(group.failures) for group in groups)
        _print_line(console, f"{passed} matched, {differing} differ; files: {len(reports)}", "bold")
    raise typer.Exit(int(outcome_of(reports)))


def _print_file(console: Console, report: FileReport) -> None:
    _print_line(console, f"{report.path} ({report.kind or 'not replayed'})", "bold")
    if report.groups:
        table = Table()
        table.add_column("group")
        table.add_column("matches", justify="right")
        table.add_column("")
        for group in report.groups:
            table.add_row(escape(group.name), f"{group.passed}/{group.counted}", _remark(group))
        console.print(table)
    for error in report.errors:
        _print_line(console, f"error: {error}", "red")
    for group in report.groups:
        _print_group(console, group)


def _remark(group: GroupReport) -> str:
    if group.failures:
        return f"[red]{len(group.failures)} differ[/red]"
    if group.departures:
        return f"[yellow]{len(group.departures)} where fairway itself departs[/yellow]"
    return "[green]ok[/green]" if group.checks else "[yellow]nothing to check[/yellow]"


def _print_group(console: Console, group: GroupReport) -> None:
    for check in group.failures[:_SHOWN_PER_GROUP]:
        _print_line(console, f"differs: {group.name} / {check.name}: {check.detail}", "red")
    if len(group.failures) > _SHOWN_PER_GROUP:
        rest = len(group.failures) - _SHOWN_PER_GROUP
        _print_line(console, f"differs: {group.name}: {rest} more, see --json", "red")
    reasons: dict[str, int] = {}
    for check in group.departures:
        if check.differs_on_purpose is not None:
            reasons[check.differs_on_purpose] = reasons.get(check.differs_on_purpose, 0) + 1
    for reason, count in reasons.items():
        _print_line(console, f"departs on purpose: {group.name} ({count}): {reason}", "yellow")


def _print_line(console: Console, text: str, style: str) -> None:
    console.print(text, style=style, markup=False, soft_wrap=True)
