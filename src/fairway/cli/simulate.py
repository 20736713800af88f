"""``fairway simulate``: runs a world of `fairway.simulation` and prints what happened."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fairway.cli._console import PlainConsole
from fairway.options import Delivery, Profile
from fairway.simulation.archiving import require_new, truth_path, write_archive
from fairway.simulation.plan import HOUR_MS, SimulationPlan
from fairway.simulation.render import print_report
from fairway.simulation.runner import Run

_PLAN: Final = SimulationPlan()
_NETWORK: Final = "The network"
_PEOPLE: Final = "What participants do"
_TROUBLE: Final = "What happens to them"
_CHANNEL: Final = "The channel"


def command(
    *,
    participants: Annotated[int, typer.Option(help="How many there are at the beginning.")] = _PLAN.participants,
    hours: Annotated[float, typer.Option(help="How long they talk, in virtual hours.")] = _PLAN.duration_ms / HOUR_MS,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.")] = _PLAN.seed,
    loss: Annotated[
        float, typer.Option(help="Share of deliveries and store answers that get lost.", rich_help_panel=_NETWORK)
    ] = _PLAN.loss,
    duplication: Annotated[
        float, typer.Option(help="Share of deliveries that happen twice.", rich_help_panel=_NETWORK)
    ] = _PLAN.duplication,
    store_gaps: Annotated[
        float, typer.Option(help="Share of messages that the store misses.", rich_help_panel=_NETWORK)
    ] = _PLAN.store_gaps,
    min_delay_ms: Annotated[int, typer.Option(help="Fastest delivery.", rich_help_panel=_NETWORK)] = _PLAN.min_delay_ms,
    max_delay_ms: Annotated[int, typer.Option(help="Slowest delivery.", rich_help_panel=_NETWORK)] = _PLAN.max_delay_ms,
    partitions: Annotated[
        int, typer.Option(help="Times that the channel falls in two.", rich_help_panel=_NETWORK)
    ] = _PLAN.partitions,
    partition_ms: Annotated[
        int, typer.Option(help="How long it stays so.", rich_help_panel=_NETWORK)
    ] = _PLAN.partition_ms,
    messages_per_hour: Annotated[
        float, typer.Option(help="Messages of each participant.", rich_help_panel=_PEOPLE)
    ] = _PLAN.messages_per_hour,
    long_share: Annotated[
        float, typer.Option(help="Share of messages of two to six segments.", rich_help_panel=_PEOPLE)
    ] = _PLAN.long_share,
    ephemeral_share: Annotated[
        float, typer.Option(help="Share of messages that are ephemeral.", rich_help_panel=_PEOPLE)
    ] = _PLAN.ephemeral_share,
    repeat_share: Annotated[
        float, typer.Option(help="Share of messages that only say 'ok'.", rich_help_panel=_PEOPLE)
    ] = _PLAN.repeat_share,
    ask_all_share: Annotated[
        float, typer.Option(help="Share of sends that ask everybody to acknowledge.", rich_help_panel=_PEOPLE)
    ] = _PLAN.ask_all_share,
    joins: Annotated[int, typer.Option(help="How many come later.", rich_help_panel=_PEOPLE)] = _PLAN.joins,
    leaves: Annotated[
        int | None,
        typer.Option(
            help="How many go for good.",
            rich_help_panel=_PEOPLE,
            show_default=f"{_PLAN.leaves}, fewer where fewer than {_PLAN.leaves + 2} take part",
        ),
    ] = None,
    crashes_per_hour: Annotated[
        float, typer.Option(help="Crashes of each participant.", rich_help_panel=_TROUBLE)
    ] = _PLAN.crashes_per_hour,
    absences_per_hour: Annotated[
        float, typer.Option(help="Times that each participant is offline.", rich_help_panel=_TROUBLE)
    ] = _PLAN.absences_per_hour,
    absence_ms: Annotated[
        int, typer.Option(help="Mean length of an absence.", rich_help_panel=_TROUBLE)
    ] = _PLAN.absence_ms,
    profile: Annotated[Profile, typer.Option(help="Which wire is spoken.", rich_help_panel=_CHANNEL)] = _PLAN.profile,
    delivery: Annotated[
        Delivery, typer.Option(help="When messages are handed over.", rich_help_panel=_CHANNEL)
    ] = _PLAN.delivery,
    rate_limit: Annotated[
        int | None, typer.Option(help="Transmissions of each in ten minutes.", rich_help_panel=_CHANNEL)
    ] = _PLAN.rate_limit,
    segment_size_bytes: Annotated[
        int, typer.Option(help="Segment size; small ones simulate fast.", rich_help_panel=_CHANNEL)
    ] = _PLAN.segment_size_bytes,
    parity_rate: Annotated[
        float | None, typer.Option(help="Parity segments per data segment.", rich_help_panel=_CHANNEL)
    ] = _PLAN.parity_rate,
    bloom_capacity: Annotated[
        int, typer.Option(help="Messages a bloom filter is made for.", rich_help_panel=_CHANNEL)
    ] = _PLAN.bloom_capacity,
    lost_timeout_ms: Annotated[
        int, typer.Option(help="How long a message may be missing before it counts as lost.", rich_help_panel=_CHANNEL)
    ] = _PLAN.lost_timeout_ms,
    settle_ms: Annotated[
        int, typer.Option(help="How long the channel may take to come to rest.", rich_help_panel=_CHANNEL)
    ] = _PLAN.settle_ms,
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

    Participants talk, join, leave, crash, go offline and fall apart, all drawn from the seed.
    Then everybody comes back, the network staying as bad as it is, until the channel is quiet.

    Checked are: everything delivered, once, in causal order; equal logs; one end of every send;
    no false delivery report; bounded buffers.

    [bold]--archive[/bold] keeps what a store would hold of it, for [bold]fairway[/bold]'s pipeline to read.

    Exit code 0 if all of it holds, 1 if something is violated (the last line runs the same world
    again), 2 for a world that cannot be.

    Example: [bold]fairway simulate --participants 20 --hours 2 --loss 0.5 --seed 7[/bold]
    """
    plan = SimulationPlan(
        participants=participants,
        duration_ms=_milliseconds(hours),
        loss=loss,
        seed=seed,
        profile=profile,
        delivery=delivery,
        duplication=duplication,
        store_gaps=store_gaps,
        min_delay_ms=min_delay_ms,
        max_delay_ms=max_delay_ms,
        messages_per_hour=messages_per_hour,
        long_share=long_share,
        ephemeral_share=ephemeral_share,
        repeat_share=repeat_share,
        ask_all_share=ask_all_share,
        crashes_per_hour=crashes_per_hour,
        absences_per_hour=absences_per_hour,
        absence_ms=absence_ms,
        joins=joins,
        leaves=min(_PLAN.leaves, max(0, participants - 2)) if leaves is None else leaves,
        partitions=partitions,
        partition_ms=partition_ms,
        rate_limit=rate_limit,
        segment_size_bytes=segment_size_bytes,
        parity_rate=parity_rate,
        bloom_capacity=bloom_capacity,
        lost_timeout_ms=lost_timeout_ms,
        settle_ms=settle_ms,
    )
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
            console.print(f"{archived:,} messages in {archive}, the truth in {truth_path(archive)}", markup=False)
        console.print(f"simulated in {time.perf_counter() - began_s:.1f} s", style="dim")
    raise typer.Exit(0 if report.ok else 1)


def _milliseconds(hours: float) -> int:
    """Return hours as milliseconds; what is no number of hours fails as the plan is made."""
    return round(hours * HOUR_MS) if abs(hours) < HOUR_MS else -1
