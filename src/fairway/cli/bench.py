"""``fairway bench``: prints what the folder ``benchmarks`` of a source checkout measures, beside its peers."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from fairway.cli._console import PlainConsole
from fairway.errors import ConfigurationError

CHECKOUT: Final = Path(__file__).resolve().parents[3]
_WIDTH_OF_A_FILE: Final = 160
"""Columns of the table where no terminal says how many there are."""


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Measure only figures whose names contain one of these."),
    ] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Measure for less time, and leave slow peers out.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    build: Annotated[
        Path,
        typer.Option(
            "--build", metavar="DIRECTORY", help="Where peers are installed.", show_default="build in the checkout"
        ),
    ] = CHECKOUT / "build",
) -> None:
    """Measure fairway, and other implementations beside it in the same run.

    js-waku is measured where Node.js with npm is, py-libp2p where a C compiler with the headers of GMP is; both are
    installed on first use.

    Everything takes about half an hour, most of it js-waku's.

    Example: [bold]fairway bench --quick "sds decode" reed[/bold]
    """
    benchmarks = _benchmarks_of_the_checkout()
    selected = benchmarks.select(names or [])
    if not selected:
        raise ConfigurationError(f"no figure's name contains {' or '.join(map(repr, names or []))}")
    session = benchmarks.Session(build.resolve(), quick=quick)
    rows: list[Any] = []
    try:
        _measure(benchmarks, selected, session, rows)
    finally:  # an interrupted run shows what it has
        machine = benchmarks.machine(session)
        if as_json:
            report = {"machine": machine, "quick": quick, "figures": benchmarks.as_json(rows)}
            typer.echo(json.dumps(report, indent=2))
        else:
            _print_table(rows, machine, quick=quick)


def _benchmarks_of_the_checkout() -> ModuleType:
    """Import the benchmarks, which lie beside the package and are not installed with it."""
    if not (CHECKOUT / "benchmarks" / "run.py").is_file():
        raise ConfigurationError(
            "the benchmarks are not part of an installed fairway: clone its repository and run 'make bench' there"
        )
    if str(CHECKOUT) not in sys.path:
        sys.path.insert(0, str(CHECKOUT))
    return import_module("benchmarks.run")


def _measure(benchmarks: ModuleType, selected: Sequence[Any], session: Any, rows: list[Any]) -> None:
    console = PlainConsole(stderr=True)
    columns = (SpinnerColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(selected[0].name), total=len(selected))
        for following, row in zip([*selected[1:], None], benchmarks.run(selected, session), strict=True):
            rows.append(row)
            progress.update(task, advance=1, description=escape(following.name) if following else "")


def _print_table(rows: Sequence[Any], machine: dict[str, Any], *, quick: bool) -> None:
    console = PlainConsole(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    table = Table("figure", "unit")
    table.add_column("fairway", justify="right", no_wrap=True)
    table.add_column("peer", justify="right")
    table.add_column("whose")
    table.add_column("ratio", justify="right", no_wrap=True)
    for row in rows:
        figure = row.figure
        measured = figure.peer is not None
        table.add_row(
            escape(figure.name),
            escape(figure.unit),
            _number(figure.ours),
            _number(figure.peer) if measured else "-",
            escape(": ".join(filter(None, (figure.peer_name, row.remark)))),
            f"{figure.ratio:.2f}" if measured else "-",
        )
    console.print(table)
    node = f", Node.js {machine['node']}" if machine["node"] else ""
    console.print(
        f"{machine['date']}, {machine['system']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"Python {machine['python']}{node}, load {machine['load']}{', --quick' if quick else ''}",
        markup=False,
        soft_wrap=True,
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
