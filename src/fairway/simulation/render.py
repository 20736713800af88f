"""A `SimulationReport` for people: tables for the terminal, with rich, made to fit 100 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fairway.options import Delivery
from fairway.simulation.figures import S_MS, Figures, loss_class
from fairway.simulation.plan import replay_command
from fairway.simulation.report import DurationFigures, SimulationReport
from fairway.simulation.script import Deed
from fairway.units import HOUR_MS

_SHOWN: Final = 20
"""Violations that are printed; ``--json`` has them all."""
_KIB: Final = 1_024
_OF_FURPS: Final = ("count", "50 %", "90 %", "99 %", "in S", "in 3 S", "in 6 S")
_NARROW: Final = 7
"""Width of the columns of a table that is to fit 80 columns."""
_MINUTE_MS: Final = 60_000
_WIDTH_OF_A_FILE: Final = 100
"""Columns where no terminal says how many there are."""


def print_report(report: SimulationReport, console: Console | None = None) -> None:
    """Print a report, to standard output unless told otherwise."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH_OF_A_FILE
    console.print(render_report(report))
    for number, violation in enumerate(report.violations):
        if number == _SHOWN:
            _line(console, f"... and {len(report.violations) - _SHOWN} more, see --json", "red")
            break
        when = "at the end" if violation.at_ms is None else f"after {duration(violation.at_ms)}"
        _line(console, f"violated: {violation.invariant.value}: {violation.sentence}, {when}", "red")
    _line(console, f"trace {report.trace_hash}", "dim")
    _line(console, f"run it again: {replay_command(report.plan)}", "bold" if report.violations else "dim")


def render_report(report: SimulationReport) -> RenderableType:
    """Return the tables of a report as something that rich prints."""
    furps = furps_table({loss_class(report.plan.loss): Figures.of(report)})
    tables = (_outcome(report), _durations(report), furps, _traffic(report))
    return Group(
        _headline(report),
        *(Padding(table, (1, 0, 0, 0)) for table in tables),
        "",
        _verdict(report),
    )


def _headline(report: SimulationReport) -> Text:
    plan = report.plan
    words = [
        f"{plan.participants} participants",
        f"{duration(plan.duration_ms)}, quiet {duration(report.settled_ms)} later"
        if report.quiet
        else f"{duration(plan.duration_ms)}, never quiet",
        f"{plan.loss:.0%} loss",
        f"{plan.profile.value} profile",
        f"seed {plan.seed}",
    ]
    if plan.delivery is Delivery.ARRIVAL:
        words.insert(-1, "delivery on arrival")
    return Text(" · ".join(words), style="bold")


def _outcome(report: SimulationReport) -> Table:
    """Show what the channel did beside what was done to it."""
    offered = report.network_deliveries + report.network_lost
    deeds = report.deeds
    crashes = deeds.get(Deed.CRASH.value, 0)
    channel: list[tuple[str, str]] = [
        ("messages sent", f"{report.sent:,}"),
        ("deliveries owed", f"{report.deliveries_owed:,}"),
        ("delivered", f"{report.delivered:,}"),
        ("lost", fault(report.lost)),
        ("duplicates", fault(report.duplicates)),
        ("order violations", fault(report.order_violations)),
        ("sends that ended as delivered", f"{report.reported_delivered:,}"),
        ("sends that ended undelivered", f"{report.reported_failed:,}"),
        ("false acknowledgements", f"{report.false_claims:,} of {report.claims:,}"),
        ("ephemeral messages", f"{report.ephemeral_sent:,}"),
        ("received by", f"{_ratio(report.ephemeral_received, report.ephemeral_sent)} each"),
    ]
    world: list[tuple[str, str]] = [
        ("deliveries tried, with copies", f"{offered:,}"),
        ("of them swallowed", f"{_share(report.network_lost, offered)}"),
        ("crashes and restarts", f"{crashes:,}"),
        ("absences", f"{deeds.get(Deed.CUT_OFF.value, 0):,}"),
        ("partitions", f"{deeds.get(Deed.SEVER.value, 0):,}"),
        ("joined later", f"{deeds.get(Deed.JOIN.value, 0):,}"),
        ("left for good", f"{deeds.get(Deed.LEAVE.value, 0):,}"),
        ("most parked messages", f"{report.peaks.parked:,}"),
        ("most missing messages", f"{report.peaks.missing:,}"),
        ("most incomplete segment sets", f"{report.peaks.open_sets:,}"),
    ]
    table = table_of("What happened", ("the channel", "", "the world", ""), left=(0, 2))
    for mine, theirs in zip_longest(channel, world, fillvalue=("", "")):
        table.add_row(*mine, *theirs)
    return table


def _durations(report: SimulationReport) -> Table:
    table = table_of("How long it took", ("from a send to", "count", "p50", "p95", "p99", "longest"))
    for title, times in (
        ("its first acknowledgement", report.first_acknowledgement),
        ("its delivery to one participant", report.delivery),
        ("its delivery to everybody", report.reached_all),
        ("its acknowledgement by all, where asked", report.full_acknowledgement),
        ("(from a loss) having it after all", report.mending),
    ):
        table.add_row(title, f"{times.count:,}", *_times(times))
    return table


def furps_table(figures: Mapping[int, Figures]) -> Table:
    """Show by class of loss how soon messages came, and what of that the FURPS of SDS ask for."""
    table = table_of("How soon, where S = 5 s", ("loss", " a message", *_OF_FURPS), left=(1,), is_narrow=True)
    for loss, of in figures.items():
        rows = (
            ("at a recipient", of.first, of.first.count),
            ("sender knows it", of.known, of.known.count),
            ("loss is noticed", of.noticed, of.losses),
            ("at everybody's", of.last, of.last.count),
        )
        for number, (title, durations, count) in enumerate(rows):
            table.add_row(
                "" if number else f"{loss} %",
                f" {title}",
                f"{count:,}",
                *(duration(durations.percentile(percent)) for percent in (50, 90, 99)),
                *(_share(durations.within(times * S_MS), count) for times in (1, 3, 6)),
            )
        table.add_section()
    table.caption = "the FURPS of SDS ask for: known in S, 90 % noticed in 3 S, everywhere in 6 S"
    table.caption_justify = "left"
    return table


def _traffic(report: SimulationReport) -> Table:
    """Show bytes by purpose and part, and how much of it was the application's."""
    heads = ("purpose", "messages", "bytes", "share", "content", "citations", "bloom filter", "ids")
    table = table_of("What was transmitted", heads)
    total = report.transmitted_bytes
    for traffic in report.traffic:
        table.add_row(
            traffic.purpose.value,
            f"{traffic.transmissions:,}",
            size(traffic.total_bytes),
            _share(traffic.total_bytes, total),
            size(traffic.content_bytes),
            size(traffic.history_bytes),
            size(traffic.bloom_bytes),
            size(traffic.rest_bytes),
        )
    table.add_section()
    names = ("content_bytes", "history_bytes", "bloom_bytes", "rest_bytes")
    parts = [sum(getattr(each, name) for each in report.traffic) for name in names]
    table.add_row("together", f"{report.transmissions:,}", size(total), "", *map(size, parts))
    for title, count in (("per message sent", report.sent), ("per delivery", report.delivered)):
        per_one = [size(part // count) if count else "-" for part in (total, *parts)]
        table.add_row(title, _ratio(report.transmissions, count), per_one[0], "", *per_one[1:])
    idle = report.idle_bytes_per_hour
    table.caption = (
        f"payloads make {size(report.payload_bytes)}, {_share(report.payload_bytes, total)} of what was transmitted"
    )
    if idle is not None:
        table.caption += f"\nan idle channel costs {size(idle)} an hour for each participant"
    table.caption_justify = "left"
    return table


def _verdict(report: SimulationReport) -> Text:
    if report.ok:
        return Text("every invariant held: nothing lost, nothing twice, nothing out of order", style="green")
    noun = "violation" if len(report.violations) == 1 else "violations"
    return Text(f"{len(report.violations)} {noun}", style="bold red")


def table_of(title: str, heads: Iterable[str], left: tuple[int, ...] = (0,), *, is_narrow: bool = False) -> Table:
    """Return an empty table whose columns stand right, but for some."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)
    if is_narrow:
        table.pad_edge, table.padding = False, 0
    for index, head in enumerate(heads):
        width = _NARROW if is_narrow and index else None
        table.add_column(head, justify="left" if index in left else "right", no_wrap=True, min_width=width)
    return table


def _times(times: DurationFigures) -> list[str]:
    return [duration(ms) for ms in (times.p50_ms, times.p95_ms, times.p99_ms, times.max_ms)]


def duration(duration_ms: int | None) -> str:
    """Return a duration in the unit that suits it."""
    if duration_ms is None:
        return "-"
    if duration_ms < _MINUTE_MS:
        return f"{duration_ms / 1_000:.1f} s"
    if duration_ms < HOUR_MS:
        return f"{duration_ms / _MINUTE_MS:.1f} min"
    return f"{duration_ms / HOUR_MS:.2f}".rstrip("0").rstrip(".") + " h"


def size(size_bytes: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    if size_bytes < _KIB:
        return f"{size_bytes} B"
    return f"{size_bytes / _KIB:,.1f} KiB" if size_bytes < _KIB**2 else f"{size_bytes / _KIB**2:,.1f} MiB"


def _share(part: int, whole: int) -> str:
    if not whole:
        return "-"
    return f"{part / whole:.2%}" if part * 100 < whole else f"{part / whole:.1%}"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.1f}" if whole else "-"


def fault(count: int) -> str:
    """Return a number that should be 0."""
    return f"[bold red]{count:,}[/]" if count else "[green]0[/]"


def _line(console: Console, text: str, style: str) -> None:
    console.print(text, style=style, markup=False, soft_wrap=True)
