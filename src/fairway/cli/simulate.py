"""``fairway simulate``: runs worlds of `fairway.simulation`, and prints their results."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from fairway.cli._console import PlainConsole
from fairway.errors import ConfigurationError
from fairway.options import Profile
from fairway.simulation.campaign import LIMIT_S, run_worlds
from fairway.simulation.plan import Plan, Trouble, replay_command
from fairway.simulation.report import Furps, Report
from fairway.simulation.world import World
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.units import HOUR_MS, MS_PER_S

_WORLDS: Final = 40
_INTERRUPTED: Final = 130
_SHOWN: Final = 10
"""Violations of a world that are printed."""
_PLAN: Final = "The world (values that are not given are drawn from its seed)"
_NAMES: Final = ", ".join(trouble.value for trouble in Trouble)


def command(
    *,
    seed: Annotated[int | None, typer.Option(help="Run the one world of this seed.", show_default=False, min=0)] = None,
    worlds: Annotated[
        int | None, typer.Option(help="Number of worlds.", show_default=f"{_WORLDS}, or as --budget-s allows", min=1)
    ] = None,
    first_seed: Annotated[int, typer.Option(help="Seed of the first of several worlds.", min=0)] = 1,
    budget_s: Annotated[
        float | None, typer.Option(help="Start no world after this many seconds.", show_default=False, min=0)
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes side by side.", show_default="one per processor", min=1)
    ] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Continue after a violation.")] = False,
    world_s: Annotated[
        float, typer.Option(help="A world with more CPU time than this is stopped as hung.", min=1)
    ] = LIMIT_S,
    archive: Annotated[
        Path | None,
        typer.Option(help="Write the messages in the store of one world to a new SQLite archive.", show_default=False),
    ] = None,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    participants: Annotated[
        int | None, typer.Option(help="Participants at the start.", show_default=False, rich_help_panel=_PLAN)
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Time in which they send.", show_default=False, rich_help_panel=_PLAN)
    ] = None,
    loss: Annotated[
        float | None, typer.Option(help="Share of deliveries that are lost.", show_default=False, rich_help_panel=_PLAN)
    ] = None,
    profile: Annotated[
        Profile | None, typer.Option(help="Wire format.", show_default=False, rich_help_panel=_PLAN)
    ] = None,
    messages_per_hour: Annotated[
        float | None,
        typer.Option(help="Messages per participant and hour.", show_default=False, rich_help_panel=_PLAN),
    ] = None,
    store: Annotated[
        bool | None, typer.Option(help="Whether there is a store.", show_default=False, rich_help_panel=_PLAN)
    ] = None,
    troubles: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help=f"The troubles, separated by commas, or none: {_NAMES}.",
            show_default=False,
            rich_help_panel=_PLAN,
        ),
    ] = None,
) -> None:
    """Run lossy channels under virtual time, and check their invariants.

    A world is a group of participants on a faulty network, drawn from a seed. They send, join, leave, crash and lose
    their network; then the faults end, and the channel must become quiet. Each message must reach all participants
    once and in causal order, and no acknowledgement may be false. docs/worlds.md lists all invariants.

    The first violation ends the run. The command prints it, and the command that repeats it.

    Exit code 0 if every invariant held, 1 if not, 2 for an impossible world.

    Example: [bold]fairway simulate[/bold]

    Example: [bold]fairway simulate --seed 7 --participants 20 --loss 0.5[/bold]

    Example: [bold]fairway simulate --budget-s 600 --keep-going --troubles crash,partition[/bold]
    """
    given = {
        "participants": participants,
        "duration_ms": None if hours is None else round(hours * HOUR_MS),
        "loss": loss,
        "profile": profile,
        "messages_per_hour": messages_per_hour,
        "store": store,
        "troubles": None if troubles is None else _troubles(troubles),
    }
    given = {name: value for name, value in given.items() if value is not None}
    if seed is not None:
        if worlds is not None or budget_s is not None:
            raise ConfigurationError("--seed runs one world; for several give --first-seed with --worlds or --budget-s")
        _one(Plan.drawn(seed, **given), archive, machine=machine)
        return
    if archive is not None:
        raise ConfigurationError("--archive holds one world; give its --seed")
    Plan.drawn(first_seed, **given)
    most = worlds if worlds is not None or budget_s is not None else _WORLDS
    plans: Iterator[Plan] = (Plan.drawn(number, **given) for number in islice(count(first_seed), most))
    if budget_s is not None:
        plans = _until(time.monotonic() + budget_s, plans)
    reports = run_worlds(plans, jobs=len(os.sched_getaffinity(0)) if jobs is None else jobs, limit_s=world_s)
    _many(reports, most, keep_going=keep_going, machine=machine)


def _troubles(names: str) -> frozenset[Trouble]:
    known = {trouble.value: trouble for trouble in Trouble}
    given = [] if names == "none" else names.split(",")
    for name in given:
        if name not in known:
            raise ConfigurationError(f"unknown trouble {name!r}; the troubles are {_NAMES}")
    return frozenset(known[name] for name in given)


def _until(end_s: float, plans: Iterable[Plan]) -> Iterator[Plan]:
    for plan in plans:
        if time.monotonic() >= end_s:
            return
        yield plan


def _progress(console: PlainConsole) -> Progress:
    columns = (TextColumn("{task.completed:,.0f}{task.fields[of]} {task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _one(plan: Plan, archive: Path | None, *, machine: bool) -> None:
    if archive is not None and archive.exists():
        raise ConfigurationError(f"{archive} exists; give a new path, because an archive holds one world")
    began_s = time.perf_counter()
    world = World(plan)
    with _progress(PlainConsole(highlight=False, stderr=True)) as progress:
        task = progress.add_task("virtual minutes", of=f" of {plan.duration_ms / 60_000:,.0f}")
        report = world.run(lambda passed_ms: progress.update(task, completed=passed_ms / 60_000))
    if archive is not None:
        with NwakuArchive(archive) as kept:
            for one in world.stored:
                kept.append(one.pubsub_topic, one.message, one.message_hash)
    if machine:
        typer.echo(json.dumps(report.as_json(), indent=2))
    else:
        out = PlainConsole(highlight=False)
        _print_furps(out, [report])
        for what, number in report.happened.items():
            out.print(f"{number:>10,}  {what}", markup=False)
        _print_violations(out, report)
        seconds = time.perf_counter() - began_s
        speed = report.virtual_ms / MS_PER_S / seconds
        out.print(f"{report.virtual_ms / HOUR_MS:.1f} virtual hours in {seconds:.1f} s, {speed:,.0f} x real time")
    raise typer.Exit(int(not report.ok))


def _many(reports: Generator[Report], most: int | None, *, keep_going: bool, machine: bool) -> None:
    out, err = PlainConsole(highlight=False), PlainConsole(highlight=False, stderr=True)
    done: list[Report] = []
    broken: list[Report] = []
    interrupted = False
    began_s = time.monotonic()
    with _progress(err) as progress, closing(reports):
        task = progress.add_task("worlds", of="" if most is None else f" of {most}")
        try:
            for report in reports:
                done.append(report)
                progress.update(task, advance=1, description=_speed(done, began_s))
                if not machine:
                    out.print(_line(report), markup=False)
                    _print_violations(out, report)
                if not report.ok:
                    broken.append(report)
                    if not keep_going:
                        break
        except KeyboardInterrupt:
            interrupted = True
    if machine:
        answer: dict[str, Any] = {
            "worlds": len(done),
            "broken": [report.as_json() for report in broken],
            "virtual_hours": sum(report.virtual_ms for report in done) / HOUR_MS,
            "interrupted": interrupted,
            "furps": Furps.of(done).as_json(),
        }
        typer.echo(json.dumps(answer, indent=2))
    else:
        _print_furps(out, done)
        out.print(f"{len(done)} {_speed(done, began_s)}, {len(broken)} broken")
    raise typer.Exit(_INTERRUPTED if interrupted else int(bool(broken)))


def _speed(done: list[Report], began_s: float) -> str:
    virtual_ms = sum(report.virtual_ms for report in done)
    speed = virtual_ms / MS_PER_S / max(0.001, time.monotonic() - began_s)
    return f"worlds, {virtual_ms / HOUR_MS:,.1f} virtual hours, {speed:,.0f} x real time"


def _line(report: Report) -> str:
    plan = report.plan
    troubles = " ".join(sorted(trouble.value for trouble in plan.troubles))
    return (
        f"seed {plan.seed:>6} {plan.participants:>3} people {plan.loss:>4.0%} {plan.profile.value} "
        f"{report.virtual_ms / HOUR_MS:>5.1f} h {report.sent:>5,} messages {'ok ' if report.ok else 'BROKE'} {troubles}"
    )


def _print_violations(out: PlainConsole, report: Report) -> None:
    for violation in report.violations[:_SHOWN]:
        out.print(f"violated: {violation.invariant.value}: {violation.text}", markup=False, soft_wrap=True)
    if not report.ok:
        out.print(f"run it again: {replay_command(report.plan)}", markup=False, soft_wrap=True)


def _print_furps(out: PlainConsole, reports: list[Report]) -> None:
    furps = Furps.of(reports)
    known = f"{_seconds(furps.known_p50_ms)} {_seconds(furps.known_p90_ms)} {_share(furps.known_within_s)} within 5 s"
    all_have = (
        f"{_seconds(furps.everywhere_p50_ms)} {_seconds(furps.everywhere_p90_ms)} "
        f"{_share(furps.everywhere_within_6s)} within 30 s"
    )
    out.print(f"{furps.messages:,} messages           50 %    90 %", markup=False)
    out.print(f"  the sender knows   {known}", markup=False)
    out.print(f"  everybody has it   {all_have}", markup=False)
    out.print(f"  {furps.bytes_per_message or 0:,} bytes a message", markup=False)


def _seconds(milliseconds: int | None) -> str:
    return "      -" if milliseconds is None else f"{milliseconds / MS_PER_S:>5.1f} s"


def _share(share: float | None) -> str:
    return "     -" if share is None else f"{share:>6.1%}"
