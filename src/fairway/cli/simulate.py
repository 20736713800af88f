"""``fairway simulate``: runs one world of `fairway.simulation`, or many, and prints what happened."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairway.cli._console import PlainConsole
from fairway.cli._plan_options import plan_of, with_plan
from fairway.errors import ConfigurationError
from fairway.simulation.archiving import require_new, truth_path, write_archive
from fairway.simulation.campaign import Campaign, CampaignTally, broken_row, row_of, rows_in
from fairway.simulation.figures import Figures, add_up, loss_class
from fairway.simulation.plan import SimulationPlan
from fairway.simulation.random_plans import calm_but, draw_plan
from fairway.simulation.render import duration, print_report
from fairway.simulation.render_campaign import print_end, print_figures, print_heads, print_shrunk, print_world
from fairway.simulation.runner import Run
from fairway.simulation.tour import KINDS, tour_plan
from fairway.simulation.workers import WorldOutcome
from fairway.units import HOUR_MS, MS_PER_S, counted

_MANY: Final = "Many worlds"
_INTERRUPTED: Final = 130
_CAMPAIGN: Final = Campaign(worlds=1)


@with_plan
def command(
    given: dict[str, Any],
    *,
    worlds: Annotated[
        int | None,
        typer.Option(
            help="Run so many worlds with random plans; options of a plan that are given hold for all.",
            show_default=False,
            rich_help_panel=_MANY,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes side by side.", show_default="one per processor", rich_help_panel=_MANY),
    ] = None,
    budget_s: Annotated[
        float | None,
        typer.Option(help="Start no world after so many seconds.", show_default=False, rich_help_panel=_MANY),
    ] = None,
    first_seed: Annotated[
        int, typer.Option(help="The first world's plan is drawn from this seed.", rich_help_panel=_MANY)
    ] = _CAMPAIGN.first_seed,
    calm: Annotated[
        bool,
        typer.Option(
            "--calm", help="Draw only size and talk at random, and no faults but the given ones.", rich_help_panel=_MANY
        ),
    ] = False,
    tour: Annotated[
        bool,
        typer.Option(
            "--tour",
            help="Run a small world for each kind of fault, in place of random ones.",
            rich_help_panel=_MANY,
        ),
    ] = False,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="Continue after a world that breaks, and list all.", rich_help_panel=_MANY),
    ] = False,
    shrink: Annotated[
        bool | None,
        typer.Option(
            help="Look for a smaller plan that breaks like the first broken one.",
            show_default="unless --keep-going",
            rich_help_panel=_MANY,
        ),
    ] = None,
    shrink_s: Annotated[
        float, typer.Option(help="How many seconds to look for it.", rich_help_panel=_MANY)
    ] = _CAMPAIGN.shrink_s,
    world_s: Annotated[
        float,
        typer.Option(
            help="A world that takes more seconds of CPU time counts as broken; one of 80 participants may take twice "
            "as many, and so on.",
            rich_help_panel=_MANY,
        ),
    ] = _CAMPAIGN.world_s,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Append the figures of each world, one JSON object a line.",
            show_default=False,
            rich_help_panel=_MANY,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Skip the seeds in the record.", rich_help_panel=_MANY),
    ] = False,
    tables: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Run nothing: print the figures of all worlds of a record, or of several.",
            show_default=False,
            exists=True,
            dir_okay=False,
            rich_help_panel=_MANY,
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write what a store would hold, as a SQLite archive, and the truth to PATH.truth.json.",
            show_default=False,
        ),
    ] = None,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Run hours of a lossy channel under virtual time, and check that it kept its promises.

    Without options it runs a small world for each kind of fault, within some 80 seconds of CPU time.
    Options of a world alone, such as [bold]--seed[/bold], run that world and print tables of what happened.

    Participants send, join, leave, crash, go offline and are split by partitions, all drawn from the seed.
    Then all come back, with the faults of the network unchanged, until the channel is quiet.

    Checked are: each message delivered, once, in causal order; equal logs; one end of every send;
    no false delivery report; bounded buffers; and that a whole tour costs what it is known to cost.

    [bold]--worlds[/bold] or [bold]--budget-s[/bold] run many worlds, each drawn from a seed of its own, side by side.
    The first world that breaks ends the run, and the smallest plan found that breaks alike is printed.

    [bold]--archive[/bold] keeps what a store would hold of one world, for [bold]fairway[/bold]'s pipeline to read.

    Exit code 0 if all of it holds, 1 if something is violated (the last line runs the same world
    again), 2 for a world that cannot be.

    Example: [bold]fairway simulate --participants 20 --hours 2 --loss 0.5 --seed 7[/bold]

    Example: [bold]fairway simulate --worlds 200[/bold]

    Example: [bold]fairway simulate --budget-s 600 --loss 0.3 --keep-going --record worlds.jsonl[/bold]

    Example: [bold]fairway simulate --tables worlds.jsonl[/bold]
    """
    if tables:
        _tables(tables, machine=machine)
    if worlds is None and budget_s is None and (tour or not (given or archive)):
        tour, worlds = True, len(KINDS)
    if worlds is None and budget_s is None:
        _one(plan_of(given), archive, machine=machine)
    if archive is not None:
        raise ConfigurationError("--archive keeps one world: leave --worlds and --budget-s out")
    if calm and tour:
        raise ConfigurationError("--tour is of troubles, of which --calm has none: leave one of them out")
    if "seed" in given:
        raise ConfigurationError("--seed is of one world: give --first-seed, from which on plans are drawn")
    campaign = Campaign(
        worlds=worlds,
        budget_s=budget_s,
        first_seed=first_seed,
        jobs=len(os.sched_getaffinity(0)) if jobs is None else jobs,
        world_s=world_s,
        shrink_s=shrink_s,
        draw=tour_plan if tour else draw_plan,
        given=calm_but(given) if calm else given,
        done=_seeds_in(record) if resume else frozenset(),
    )
    shrinking = not keep_going if shrink is None else shrink
    _many(campaign, record, keep_going=keep_going, shrinking=shrinking, machine=machine)


def _one(plan: SimulationPlan, archive: Path | None, *, machine: bool) -> None:
    if archive is not None:
        require_new(archive)
    console = PlainConsole(highlight=False, stderr=True)
    began_s = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("virtual time", total=plan.duration_ms)
        run = Run(plan)
        report = run.through(lambda passed_ms, _: progress.update(task, completed=passed_ms))
    archived = 0 if archive is None else write_archive(run, archive)
    if machine:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        print_report(report)
        if archive is not None:
            console.print(
                f"{counted(archived, 'message')} in {archive}, the truth in {truth_path(archive)}", markup=False
            )
        real_s, simulated_ms = time.perf_counter() - began_s, run.world.now_ms - run.start_ms
        faster = simulated_ms / MS_PER_S / real_s
        told = f"{duration(simulated_ms)} with its scenes simulated in {real_s:.1f} s, {faster:,.0f} times as fast"
        console.print(told, style="dim")
    raise typer.Exit(0 if report.ok else 1)


def _seeds_in(record: Path | None) -> frozenset[int]:
    """Return the seeds of the worlds in a record; none if there is no file."""
    if record is None:
        raise ConfigurationError("--resume goes on with a record: give it as --record FILE")
    return frozenset(row["seed"] for row in rows_in(record)) if record.exists() else frozenset()


def _appending(record: Path) -> TextIO:
    try:
        return record.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise ConfigurationError(
            f"the record {record} cannot be written ({error.strerror}); give --record a file in a folder that is there"
        ) from error


def _tables(paths: list[Path], *, machine: bool) -> None:
    """Print the figures of recorded worlds, and end."""
    rows = [row for path in paths for row in rows_in(path)]
    broken = [row for row in rows if not row["ok"]]
    figures = add_up((loss_class(row["loss"]), Figures.of_json(row["figures"])) for row in rows if "figures" in row)
    if machine:
        by_loss = {str(loss): of.as_json() for loss, of in figures.items()}
        typer.echo(json.dumps({"worlds": len(rows), "broken": broken, "figures": by_loss}, indent=2))
    else:
        print_figures(PlainConsole(highlight=False), figures)
        for row in broken:
            typer.echo(f"broke: {row['replay']}")
    raise typer.Exit(int(bool(broken)))


def _many(campaign: Campaign, record: Path | None, *, keep_going: bool, shrinking: bool, machine: bool) -> None:
    out, err = PlainConsole(highlight=False), PlainConsole(highlight=False, stderr=True)
    console = out if out.is_terminal and not machine else err
    columns = (
        BarColumn(),
        MofNCompleteColumn() if campaign.worlds is not None else TextColumn("{task.completed}"),
        TextColumn("worlds, {task.description}"),
        TimeElapsedColumn(),
    )
    tally, shrunk, interrupted = CampaignTally(), None, False
    began_s = time.monotonic()
    with (
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
        _appending(record) if record is not None else nullcontext() as rows,
    ):
        task = progress.add_task("", total=campaign.worlds)
        if not machine:
            print_heads(out)
        try:
            for outcome in _outcomes(campaign, keep_going=keep_going):
                tally.add(outcome)
                if rows is not None:
                    rows.write(json.dumps(row_of(outcome)) + "\n")
                if not machine:
                    print_world(out, outcome)
                progress.update(task, advance=1, description=_so_far(tally, time.monotonic() - began_s))
        except KeyboardInterrupt:
            interrupted = True
        seconds = time.monotonic() - began_s
        if tally.broken and shrinking and not interrupted:
            tries = count(1)
            shrunk = campaign.shrunk(
                tally.broken[0],
                lambda _: progress.update(task, description=f"looking for a smaller one, try {next(tries)}"),
            )
    if machine:
        broken = sorted(tally.broken, key=lambda outcome: outcome.plan.seed)
        answer = {
            "worlds": tally.worlds,
            "broken": [broken_row(each, shrunk if each is tally.broken[0] else None) for each in broken],
            "virtual_hours": round(tally.virtual_ms / HOUR_MS, 3),
            "seconds": round(seconds, 3),
            "interrupted": interrupted,
            "figures": {str(loss): figures.as_json() for loss, figures in sorted(tally.figures.items())},
            "unusual": [asdict(unusual) for unusual in tally.tour.unusual()],
        }
        typer.echo(json.dumps(answer, indent=2))
    else:
        print_end(out, tally, seconds, interrupted=interrupted)
        if shrunk is not None:
            print_shrunk(out, shrunk)
    raise typer.Exit(_INTERRUPTED if interrupted else int(bool(tally.broken or tally.tour.unusual())))


def _outcomes(campaign: Campaign, *, keep_going: bool) -> Iterator[WorldOutcome]:
    """Yield the outcomes of worlds, up to the first that breaks unless ``keep_going``."""
    with closing(campaign.outcomes()) as outcomes:
        for outcome in outcomes:
            yield outcome
            if not (outcome.ok or keep_going):
                return


def _so_far(tally: CampaignTally, seconds: float) -> str:
    speed = tally.virtual_ms / 1_000 / seconds
    broken = f", {len(tally.broken)} broken" if tally.broken else ""
    return f"{tally.virtual_ms / HOUR_MS:,.1f} virtual hours, {speed:,.0f} x real time{broken}"
