"""Many worlds for people: a line for each, and what came of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

from fairway.simulation.campaign import CampaignTally
from fairway.simulation.figures import Figures
from fairway.simulation.known_costs import COSTS, TourCosts
from fairway.simulation.plan import SimulationPlan, replay_command
from fairway.simulation.render import duration, fault, furps_table, size, table_of
from fairway.simulation.workers import WorldOutcome
from fairway.units import HOUR_MS

_SHOWN: Final = 20
"""Broken worlds that are printed; ``--json`` has them all."""
_WIDTHS: Final = (10, 6, 6, 8, 9, 9, 10, 9, 8)
_HEADS: Final = ("seed", "people", "loss", "profile", "lasted", "messages", "bytes each", "95 % in", "CPU")


def print_heads(console: Console) -> None:
    """Print what the columns of `print_world` are."""
    _line(console, _columns(_HEADS), "bold")


def print_world(console: Console, outcome: WorldOutcome) -> None:
    """Print the figures of a world as a line."""
    plan, report = outcome.plan, outcome.report
    cells = [str(plan.seed), str(plan.participants), f"{plan.loss:.0%}", plan.profile.value]
    if report is None:
        cells += ["-"] * 4
    else:
        each = report.bytes_per_delivery
        cells += [
            duration(report.virtual_ms),
            f"{report.sent:,}",
            "-" if each is None else size(each),
            duration(report.delivery.p95_ms),
        ]
    told = "ok" if outcome.ok else f"broke: {outcome.violations[0][0]}"
    _line(console, f"{_columns([*cells, f'{outcome.cpu_s:.1f} s'])}  {told}", "" if outcome.ok else "red")


def print_end(console: Console, tally: CampaignTally, seconds: float, *, interrupted: bool) -> None:
    """Print what came of all worlds."""
    speed = tally.virtual_ms / 1_000 / seconds
    noun = "world" if tally.worlds == 1 else "worlds"
    text = (
        f"{tally.worlds:,} {noun}, {tally.virtual_ms / HOUR_MS:,.1f} virtual hours in {duration(int(seconds * 1_000))}"
    )
    text = f"{text}, {speed:,.0f} x as fast as real time"
    if interrupted:
        text += ", interrupted"
    _line(console, text, "bold")
    print_figures(console, tally.figures)
    if not tally.broken:
        _line(console, "every invariant held in all of them", "green" if tally.worlds else "")
    _print_costs(console, tally.tour)
    if not tally.broken:
        return
    _line(console, f"{len(tally.broken):,} broke", "bold red")
    for outcome in sorted(tally.broken, key=lambda outcome: outcome.plan.seed)[:_SHOWN]:
        _print_broken(console, outcome)
    if len(tally.broken) > _SHOWN:
        _line(console, f"... and {len(tally.broken) - _SHOWN} more, see --json", "red")


def print_figures(console: Console, figures: Mapping[int, Figures]) -> None:
    """Print by class of loss what worlds were, and how soon messages came in them."""
    if not figures:
        return
    heads = ("loss", "worlds", "broken", "hours", "sent", "delivered", "lost once", "bytes each")
    table = table_of("Worlds, by loss", heads, left=(), is_narrow=True)
    together = sum(figures.values(), Figures())
    for loss, of in [*figures.items(), (None, together)]:
        each = of.bytes_per_delivery
        if loss is None:
            table.add_section()
        table.add_row(
            "all" if loss is None else f"{loss} %",
            f"{of.worlds:,}",
            fault(of.broken),
            f"{of.virtual_ms / HOUR_MS:,.1f}",
            f"{of.messages:,}",
            f"{of.deliveries:,}",
            f"{of.losses:,}",
            "-" if each is None else size(each),
        )
    console.print(table, "", furps_table(figures), sep="\n")


def print_shrunk(console: Console, shrunk: WorldOutcome) -> None:
    """Print the smallest plan that breaks, with the command that runs it."""
    _line(console, f"the smallest world found that breaks so: {_title(shrunk.plan)}", "bold")
    _print_broken(console, shrunk)


def _print_costs(console: Console, tour: TourCosts) -> None:
    """Print what is unusual in what a tour costs, if all its worlds were run."""
    if not tour.is_whole:
        return
    unusual = tour.unusual()
    if not unusual:
        _line(console, COSTS, "green")
        return
    table = table_of("Violated: " + COSTS, ("figure", "times what is known", "at most by chance"))
    for each in unusual[:_SHOWN]:
        table.add_row(each.figure, f"{each.factor:.2f}", f"{1 / each.leeway:.2f} to {each.leeway:.2f}")
    console.print("", table)
    if len(unusual) > _SHOWN:
        _line(console, f"... and {len(unusual) - _SHOWN} more, see --json", "red")
    _line(console, "if that is meant, `make tour-costs` makes it what is known", "bold")


def _print_broken(console: Console, outcome: WorldOutcome) -> None:
    invariant, sentence = outcome.violations[0]
    more = f" (and {len(outcome.violations) - 1} more)" if len(outcome.violations) > 1 else ""
    _line(console, f"violated: {invariant}: {sentence}{more}", "red")
    _line(console, f"run it again: {replay_command(outcome.plan)}", "bold")


def _title(plan: SimulationPlan) -> str:
    return f"{plan.participants} participants, {duration(plan.duration_ms)}, {plan.loss:.0%} loss"


def _columns(cells: list[str] | tuple[str, ...]) -> str:
    return " ".join(cell.rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))


def _line(console: Console, text: str, style: str) -> None:
    console.print(Text(text, style=style), soft_wrap=True)
