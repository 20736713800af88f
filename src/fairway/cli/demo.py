"""``fairway demo``: shows the main features; run by `fairway.apps.demonstration`."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live

from fairway.apps import demonstration_report
from fairway.apps.demonstration import Demonstration, Said
from fairway.apps.demonstration_display import progress_view, said_line, summary
from fairway.apps.demonstration_picture import make_picture
from fairway.apps.demonstration_processes import ProcessDiedError
from fairway.apps.demonstration_result import DemonstrationPlan, DemonstrationResult
from fairway.cli._console import PlainConsole
from fairway.errors import ConfigurationError

_FRAMES_PER_SECOND: Final = 10
_PICTURE: Final = "sea.png"


def command(
    file: Annotated[Path | None, typer.Argument(help="The file to send; by default a picture of about 1 MiB.")] = None,
    *,
    loss: Annotated[float, typer.Option(help="Share of deliveries that the network loses, 0 to 1.")] = 0.3,
    participants: Annotated[int, typer.Option(help="Number of participants, 2 to 8.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the network's faults and of the picture.")] = 1,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Keep what was broadcast here, as a nwaku store would (SQLite); a new file."),
    ] = None,
    spark: Annotated[bool, typer.Option(help="Run a Spark job over the archive at the end.")] = True,
    kill: Annotated[bool, typer.Option(help="Kill a participant half-way, and start it again.")] = True,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep stores, archive, logs, received files and the report here; a new folder."
        ),
    ] = None,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Send texts and a file between processes over a network that loses a third of everything.

    Half-way through the file one receiver is killed and started again. All participants get all messages once, in
    order, and acknowledge them; then Spark rebuilds the same messages from an archive of the network, and writes a
    report for a browser. Exit code 1 if a message was lost, came twice or differs.

    Examples: [bold]fairway demo[/bold]

    [bold]fairway demo holiday.jpg --participants 5 --loss 0.5 --keep demo-run[/bold]
    """
    console = PlainConsole(highlight=False, stderr=machine)
    if archive is not None and archive.exists():
        raise ConfigurationError(f"{archive} is there already; give --archive a path that is new")
    if spark:
        demonstration_report.require_spark()
    with _run_folder(keep) as folder:
        plan = DemonstrationPlan(
            file=file if file is not None else _picture(folder, seed),
            title=file.name if file is not None else _PICTURE,
            loss=loss,
            participants=participants,
            seed=seed,
            kill=kill,
        )
        path = archive if archive is not None else folder / "archive.sqlite"
        result = _watch(plan, folder, path, console)
        console.print(summary(result, plan.title))
        rebuilt = _analyse(path, folder if keep is not None else None, console) if spark else None
        agrees = None if rebuilt is None else _compare(rebuilt, result, console)
        if keep is not None:
            console.print(f"stores, logs and received files are kept in {keep}", markup=False)
    if machine:
        told = {**asdict(result), "succeeded": result.succeeded, "spark_agrees": agrees}
        told["report"] = None if rebuilt is None else str(rebuilt.page)
        typer.echo(json.dumps(told))
    raise typer.Exit(0 if result.succeeded and agrees is not False else 1)


@contextmanager
def _run_folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder for all files of this run."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="fairway-demo-") as folder:
            yield Path(folder)
        return
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(
            f"{keep} cannot be made ({error.strerror}); give --keep a folder that is not there yet"
        ) from error
    yield keep


def _picture(folder: Path, seed: int) -> Path:
    path = folder / _PICTURE
    path.write_bytes(make_picture(seed))
    return path


def _watch(plan: DemonstrationPlan, folder: Path, archive: Path, console: Console) -> DemonstrationResult:
    """Run the demonstration, shown live on a terminal and as lines elsewhere."""
    is_live = console.is_terminal

    def say(said: Said) -> None:
        if not is_live:
            console.print(said_line(said), markup=False)

    demonstration = Demonstration(plan, folder, archive=archive, say=say)
    try:
        if not is_live:
            return asyncio.run(demonstration.run())
        with Live(
            get_renderable=lambda: progress_view(demonstration, height=console.height),
            console=console,
            refresh_per_second=_FRAMES_PER_SECOND,
            transient=True,
        ):
            return asyncio.run(demonstration.run())
    except ProcessDiedError as error:
        console.print(f"the log of {error.name} ends:\n{error.log_tail}", markup=False, style="red")
        raise


def _analyse(archive: Path, keep: Path | None, console: Console) -> demonstration_report.Rebuilt:
    """Let Spark read the archive and leave its report in a folder, a temporary one if none is kept."""
    folder = keep if keep is not None else Path(tempfile.mkdtemp(prefix="fairway-demo-report-"))
    told = "Spark reads the archive (the first start takes some seconds)"
    if not console.is_terminal:
        return demonstration_report.rebuild(archive, folder, lambda _: None)
    with console.status(told) as status:
        return demonstration_report.rebuild(
            archive, folder, lambda step: status.update(f"Spark reads the archive: {step}")
        )


def _compare(rebuilt: demonstration_report.Rebuilt, result: DemonstrationResult, console: Console) -> bool:
    """Show the report's summary, and say whether Spark found what the participants found."""
    console.print()
    console.print("[bold]The same, from the archive alone[/] (fairway pipeline run: no participant was asked)")
    console.print(rebuilt.summary)
    got = sorted(
        (message.sender, message.message_id, message.size_bytes) for message in result.messages if message.received_by
    )
    agrees = got == list(rebuilt.delivered)
    console.print()
    console.print(
        "[green]Spark delivers the very messages that the participants got[/green]"
        if agrees
        else "[red]Spark and the participants disagree about what was delivered[/red]"
    )
    console.print(f"the report, for a browser: {rebuilt.page.absolute().as_uri()}", markup=False, soft_wrap=True)
    console.print(f"its tables, as Parquet: {rebuilt.run / 'tables'}", markup=False, soft_wrap=True)
    return agrees
