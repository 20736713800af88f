"""``python -m benchmarks``: measures fairway, and in the same run its peers, and prints the table of all figures."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from benchmarks import (
    end_to_end,
    leopard,
    libp2p,
    live,
    memory,
    network,
    pipeline_decoding,
    sds,
    wire,
)
from benchmarks.figures import Figure
from benchmarks.session import Benchmark, Session
from rich.console import Console
from rich.markup import escape
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

PARTS: Final = (live, network, end_to_end, libp2p, sds, memory, wire, leopard, pipeline_decoding)
"""The files with the rows of the table, in order."""
_CHECKOUT: Final = Path(__file__).resolve().parents[1]
_WIDTH_OF_A_FILE: Final = 160
"""Columns of the table without a terminal."""


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
    ] = _CHECKOUT / "build",
) -> None:
    """Measure fairway, and other implementations beside it in the same run.

    js-waku needs Node.js with npm, and py-libp2p a C compiler with the headers of GMP. The first run installs them.

    All figures take about half an hour, most of it for js-waku.

    Example: python -m benchmarks --quick "sds decode" reed
    """
    selected = _select(names or [])
    if not selected:
        raise typer.BadParameter(f"no figure's name contains {' or '.join(map(repr, names or []))}")
    session = Session(build.resolve(), quick=quick)
    rows: dict[str, Figure] = {}
    try:
        _measure(selected, session, rows)
    finally:  # an interrupted run shows what it has
        machine = _machine(session)
        if as_json:
            figures = [{"name": name, **asdict(each), "ratio": each.ratio} for name, each in rows.items()]
            print(json.dumps({"machine": machine, "quick": quick, "figures": figures}, indent=2))
        else:
            _print_table(rows, machine, quick=quick)


def _select(words: Sequence[str]) -> list[Benchmark]:
    """Return the benchmarks whose names contain one of the words, in any case; all of them for no words."""
    everything = chain.from_iterable(part.benchmarks() for part in PARTS)
    return [one for one in everything if not words or any(word.lower() in one.name.lower() for word in words)]


def _machine(session: Session) -> dict[str, Any]:
    """Describe the machine."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes / 2**30),
        "python": platform.python_version(),
        "node": session.node_version,
        "load": round(os.getloadavg()[0], 1),
    }


def _measure(selected: Sequence[Benchmark], session: Session, rows: dict[str, Figure]) -> None:
    """Measure one benchmark after another, and put the figures into ``rows``."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(selected))
        for benchmark in selected:
            progress.update(task, description=escape(benchmark.name))
            rows[benchmark.name] = benchmark.measure(session)
            progress.advance(task)


def _print_table(rows: dict[str, Figure], machine: dict[str, Any], *, quick: bool) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    table = Table("figure", "unit")
    table.add_column("fairway", justify="right", no_wrap=True)
    table.add_column("peer", justify="right")
    table.add_column("whose")
    table.add_column("ratio", justify="right", no_wrap=True)
    for name, figure in rows.items():
        table.add_row(
            escape(name),
            escape(figure.unit),
            _number(figure.ours),
            "-" if figure.peer is None else _number(figure.peer),
            escape(": ".join(filter(None, (figure.peer_name, figure.remark)))),
            "-" if figure.ratio is None else f"{figure.ratio:.2f}",
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


def main() -> None:
    """Run the command, and exit with its code."""
    typer.run(command)


if __name__ == "__main__":
    main()
