"""``fairway demo``: people talk over a node that loses a third of everything, and one of them is killed half-way.

Each participant is a ``fairway participant`` process with a store; the demo gives commands and reads what they print.
It trusts none of them: it counts by itself what was lost, came twice, or came before something its author had received.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fairway.cli._console import PlainConsole
from fairway.errors import ConfigurationError, FairwayError, MissingExtraError
from fairway.options import Profile
from fairway.units import counted

_NAMES: Final = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
_DEFAULT_FILE_BYTES: Final = 1_000_000
_MAX_FILE_BYTES: Final = 20_000_000
_START_TIMEOUT_S: Final = 60.0
_GIVE_UP_S: Final = 240.0
_ENDING_S: Final = 5.0
_LINE_BYTES: Final = 16_777_216
_LOG_TAIL: Final = 4_000
_AWAY_S: Final = 1.5
_SETTLING_S: Final = 1.0
"""Time after the last delivery in which a second delivery would be seen."""
_STEP_S: Final = 0.1
_HALF: Final = 5
"""Segments of the file that the killed participant holds: half of those of the default file."""
# Shorter than the defaults, so that a person can watch.
_OPTIONS: Final = {
    "sync_min_interval_ms": 1_000,
    "retry_interval_ms": 3_000,
    "max_retry_attempts": 100,
    "retrieve_frequency_ms": 2_500,
    "sweep_in_buf_interval_ms": 500,
    "max_store_queries_per_minute": 600,
    "segmentation": {"max_message_size_bytes": _MAX_FILE_BYTES},
    "sds": {"repair": {"t_min_ms": 2_000, "t_max_ms": 8_000}},
}
_FEW_ROWS: Final = {
    # What Spark would compile for each step takes longer than a hundred rows do without it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


def command(
    file: Annotated[Path | None, typer.Argument(help="The file to send; by default 1 MB of noise.")] = None,
    *,
    loss: Annotated[float, typer.Option(min=0, max=0.95, help="Share of deliveries that the node loses.")] = 0.3,
    participants: Annotated[int, typer.Option(min=2, max=len(_NAMES), help="Number of participants.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the node's losses.")] = 1,
    spark: Annotated[bool, typer.Option(help="Run a Spark job over the node's archive at the end.")] = True,
    kill: Annotated[bool, typer.Option(help="Kill a participant half-way, and start it again.")] = True,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep stores, archive, logs, files and report here; a new folder."),
    ] = None,
    machine: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Send texts and a file between processes over a node that loses a third of everything.

    Half-way through the file one receiver is killed and started again. All participants get all messages once, in
    order, and acknowledge them. Then Spark rebuilds the same messages from the node's archive, and writes a report for
    a browser. Exit code 1 if a message was lost, came twice or differs.

    Examples: [bold]fairway demo[/bold]

    [bold]fairway demo holiday.jpg --participants 5 --loss 0.5 --keep demo-run[/bold]
    """
    if spark:
        _require_spark()
    if keep is not None and keep.exists():
        raise ConfigurationError(f"{keep} exists; give --keep the path of a new folder")
    folder = keep if keep is not None else Path(tempfile.mkdtemp(prefix="fairway-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if file is None:
        file = folder / "sea.raw"
        file.write_bytes(random.Random(seed).randbytes(_DEFAULT_FILE_BYTES))  # noqa: S311 - content, no secret
    elif not file.is_file() or not 1 <= file.stat().st_size <= _MAX_FILE_BYTES:
        raise ConfigurationError(f"{file} must be a file of 1 to {_MAX_FILE_BYTES:,} bytes; choose another one")
    console = PlainConsole(highlight=False, stderr=machine)
    demo = Demo(file, folder, _NAMES[:participants], kill=kill, console=console)
    asyncio.run(demo.run(loss, seed))
    told = demo.told()
    console.print(demo.summary())
    if spark:
        told["spark_agrees"] = _rebuild(folder, demo.received(), console)
    console.print(f"stores, archive and logs: {folder}", markup=False, soft_wrap=True)
    if machine:
        typer.echo(json.dumps(told))
    raise typer.Exit(0 if told["succeeded"] and told.get("spark_agrees") is not False else 1)


@dataclass(slots=True)
class _Message:
    """One message of the story and what is known of it."""

    due_s: float
    sender: str
    title: str
    content: bytes
    is_file: bool = False
    past: frozenset[str] = frozenset()
    """Keys of the messages that its sender had sent or received before it."""
    sent_s: float | None = None
    received_by: set[str] = field(default_factory=set)
    delivered_to: tuple[str, ...] = ()
    outcome: str = ""

    @property
    def message_id(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def key(self) -> str:
        """Sender and message id, which name a message of the story."""
        return f"{self.sender} {self.message_id}"


class Demo:
    """One run of the story, and its books."""

    def __init__(self, file: Path, folder: Path, names: tuple[str, ...], *, kill: bool, console: Console) -> None:
        first, second, last = names[0], names[1], names[-1]
        story = [
            _Message(0, first, "Look at the sea tonight!", b"Look at the sea tonight!"),
            # Not at once: participants begin by asking the store for everything, and would get the file at one stroke.
            _Message(1.6, first, file.name, file.read_bytes(), is_file=True),
            _Message(2.4, second, "It is still coming, wait.", b"It is still coming, wait."),
            _Message(5.0, first, "ok", b"ok"),
            _Message(5.2, last, "ok", b"ok"),
            _Message(7.0, last, "What a picture.", b"What a picture."),
        ]
        self.messages = {message.key: message for message in story}
        self.faults: list[str] = []
        """What was delivered twice or out of order, a sentence each."""
        self._file_path, self._folder, self._names, self._console = file, folder, names, console
        self._file = story[1]
        self._victim = last if kill else None
        self._processes: dict[str, _Process] = {}
        self._ready = {name: asyncio.Event() for name in (*names, "node")}
        self._held = 0
        self._known: dict[str, set[str]] = {name: set() for name in names}
        self._address = ""
        self._started_s = self._ended_s = 0.0

    async def run(self, loss: float, seed: int) -> None:
        """Tell the story. Raises `FairwayError` if a process ends by itself or refuses a command."""
        options = self._folder / "options.json"
        options.write_text(json.dumps(_OPTIONS))
        archive = f"sqlite:{self._folder / 'archive.sqlite'}"
        node = ["node", "--json", "--until-stdin-closes", "--archive", archive]
        async with contextlib.AsyncExitStack() as processes:
            await self._start("node", [*node, "--loss", str(loss), "--seed", str(seed)], processes)
            for name in self._names:
                words = ["participant", "--node", self._address, "--channel", "demo", "--sender", name]
                paths = ["--store", str(self._folder / f"{name}.db"), "--save", str(self._folder / name)]
                await self._start(name, [*words, *paths, "--options", str(options)], processes)
            self._say(f"a node that loses {loss:.0%} and {len(self._names)} participants are up")
            self._started_s = time.monotonic()
            try:
                async with asyncio.timeout(_GIVE_UP_S), asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._watch())
                    for message in self.messages.values():
                        tasks.create_task(self._send(message))
                    if self._victim is not None:
                        tasks.create_task(self._kill(self._victim))
            except* FairwayError as group:
                raise group.exceptions[0] from None
            except* TimeoutError:
                self._say(f"gave up after {_GIVE_UP_S:.0f} s")
            self._ended_s = time.monotonic()
            await asyncio.sleep(_SETTLING_S)

    async def _start(self, name: str, words: list[str], processes: contextlib.AsyncExitStack) -> None:
        process = _Process(name, words, self._folder / f"{name}.log", lambda line: self._hear(name, line))
        self._processes[name] = process
        processes.push_async_callback(process.end)
        await self._up(name)

    async def _up(self, name: str) -> None:
        self._ready[name].clear()
        await self._processes[name].start()
        try:
            await asyncio.wait_for(self._ready[name].wait(), _START_TIMEOUT_S)
        except TimeoutError as error:
            raise FairwayError(f"{name} did not start:\n{self._processes[name].log_tail()}") from error

    async def _watch(self) -> None:
        """Wait until every message was received and acknowledged by all; ask how far the file has come."""
        while any(not message.outcome or self._lacking(message) for message in self.messages.values()):
            for name, process in self._processes.items():
                process.check()
                if name == self._victim and self._ready[name].is_set():
                    process.tell(command="statistics")
            await asyncio.sleep(_STEP_S)

    async def _send(self, message: _Message) -> None:
        await asyncio.sleep(message.due_s)
        await self._ready[message.sender].wait()
        message.past = frozenset(self._known[message.sender])
        message.sent_s = time.monotonic()
        content = {"file": str(self._file_path.resolve())} if message.is_file else {"text": message.title}
        others = [name for name in self._names if name != message.sender]
        while not message.outcome:
            # Its process may be killed before it accepts; with one request id it is one send.
            if self._ready[message.sender].is_set():
                self._processes[message.sender].tell(command="send", request_id=message.key, by=others, **content)
            await asyncio.sleep(_AWAY_S * 2)

    async def _kill(self, victim: str) -> None:
        while self._held < _HALF and victim not in self._file.received_by:  # noqa: ASYNC110 - a process changes it
            await asyncio.sleep(_STEP_S)
        self._ready[victim].clear()
        await self._processes[victim].kill()
        self._say(f"{victim} was killed (SIGKILL), holding {counted(self._held, 'segment')} of {self._file.title}")
        await asyncio.sleep(_AWAY_S)
        await self._up(victim)
        self._say(f"{victim} is back, on the same store")

    def _hear(self, name: str, line: dict[str, Any]) -> None:
        match line:
            case {"event": "error", "detail": detail}:
                raise FairwayError(f"{name} refused a command: {detail}")
            case {"event": "statistics", "protocol": {"reassembly": {"open_segments": held}}}:
                self._held = max(self._held, held)
            case {"multiaddrs": [address, *_]}:
                self._address = address
                self._ready[name].set()
            case {"event": "ready"}:
                self._ready[name].set()
            case {"type": "MessageReceived", "sender_id": sender, "message_id": message_id}:
                self._received(name, self.messages[f"{sender} {message_id}"], redelivered=line["redelivered"])
            case {"type": "MessageDelivered", "request_id": key, "delivered_to": names}:
                self._conclude(self.messages[key], tuple(names))
            case {"event": "accepted", "request_id": key, "outcome": outcome}:
                self._known[name].add(key)
                if outcome is not None and "delivered_to" in outcome:
                    self._conclude(self.messages[key], tuple(outcome["delivered_to"]))
            case {"type": "DeliveryError", "request_id": key, "detail": detail}:
                self.messages[key].outcome = detail

    def _received(self, name: str, message: _Message, *, redelivered: bool) -> None:
        if name in message.received_by:
            # A process that was killed before it finished a message gets it again, and says so.
            if not redelivered:
                self.faults.append(f"{name} got {message.title!r} of {message.sender} twice")
            return
        for key in message.past - self._known[name]:
            if self.messages[key].sender != name:
                self.faults.append(f"{name} got {message.title!r} before {self.messages[key].title!r}")
        self._known[name].add(message.key)
        message.received_by.add(name)
        self._say(f"{name} has {message.title!r} of {message.sender}")

    def _conclude(self, message: _Message, names: tuple[str, ...]) -> None:
        if message.outcome:
            return
        after_s = time.monotonic() - (message.sent_s or 0)
        message.delivered_to, message.outcome = names, f"{after_s:.1f} s"
        self._say(f"{message.sender} knows that {', '.join(names)} got {message.title!r}")

    def _say(self, text: str) -> None:
        after_s = time.monotonic() - self._started_s if self._started_s else 0
        self._console.print(f"{after_s:6.1f} s  {text}", markup=False, soft_wrap=True)

    def _lacking(self, message: _Message) -> set[str]:
        return set(self._names) - message.received_by - {message.sender}

    def received(self) -> list[tuple[str, str]]:
        """Return sender and message id of every message that somebody received, sorted."""
        return sorted((message.sender, message.message_id) for message in self.messages.values() if message.received_by)

    def told(self) -> dict[str, Any]:
        """Return what happened, as plain values."""
        messages = list(self.messages.values())
        copies = [self._folder / name / self._file.message_id for name in self._names if name != self._file.sender]
        same = [path.is_file() and path.read_bytes() == self._file.content for path in copies]
        lost = sum(len(self._lacking(message)) for message in messages)
        unacknowledged = sum(not message.delivered_to for message in messages)
        return {
            "lost": lost,
            "unacknowledged": unacknowledged,
            "faults": self.faults,
            "copies": len(same),
            "same_copies": sum(same),
            "elapsed_ms": round((self._ended_s - self._started_s) * 1000),
            "succeeded": not (lost or unacknowledged or self.faults) and all(same),
            "messages": [
                {
                    "sender": message.sender,
                    "title": message.title,
                    "size_bytes": len(message.content),
                    "received_by": sorted(message.received_by),
                    "delivered_to": sorted(message.delivered_to),
                }
                for message in messages
            ],
        }

    def summary(self) -> Table:
        """Return a table of the messages, with the verdict below it."""
        told = self.told()
        table = Table(title="What was sent", title_justify="left", caption_justify="left")
        for heading in ("from", "what", "bytes", "received by", "acknowledged by", "after"):
            table.add_column(heading, justify="right" if heading in {"bytes", "after"} else "left")
        for message in self.messages.values():
            names = (", ".join(sorted(message.received_by)), ", ".join(sorted(message.delivered_to)))
            size = f"{len(message.content):,}"
            table.add_row(message.sender, escape(message.title), size, *names, escape(message.outcome))
        colour = "green" if told["succeeded"] else "red"
        table.caption = (
            f"[{colour}]{told['lost']} lost, {len(self.faults)} twice or out of order, "
            f"{told['unacknowledged']} unacknowledged[/] in {told['elapsed_ms'] / 1000:.1f} s; "
            f"{told['same_copies']} of {counted(told['copies'], 'saved copy', 'saved copies')} of the file the same"
        ) + "".join(f"\n[red]{escape(fault)}[/]" for fault in self.faults)
        return table


class _Process:
    """A fairway command that prints JSON lines and reads commands as JSON lines."""

    def __init__(self, name: str, words: list[str], log: Path, hear: Callable[[dict[str, Any]], None]) -> None:
        self._name, self._words, self._log, self._hear = name, words, log, hear
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                # -P keeps modules of the working directory from taking the place of installed ones.
                *(sys.executable, "-P", "-m", "fairway", *self._words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE_BYTES,
                # An interrupt at the terminal is for the demo alone, which then ends its processes.
                start_new_session=True,
            )
        self._reading = asyncio.create_task(self._read(self._process))

    def tell(self, **command: Any) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    def check(self) -> None:
        """Raise what went wrong with what it printed."""
        if self._reading is not None and self._reading.done():
            self._reading.result()

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-_LOG_TAIL:]

    async def kill(self) -> None:
        await self._end(within_s=0)

    async def end(self) -> None:
        await self._end(within_s=_ENDING_S)

    async def _end(self, within_s: float) -> None:
        if self._process is None or self._reading is None:
            return
        self._reading.cancel()
        if self._process.stdin is not None:
            self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), within_s)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self._hear(json.loads(line))
        raise FairwayError(f"the process of {self._name} ended by itself:\n{self.log_tail()}")


def _require_spark() -> None:
    if find_spec("pyspark") is None:
        raise MissingExtraError("spark", "the Spark job (left out with --no-spark)", "pyspark")


def _rebuild(folder: Path, received: list[tuple[str, str]], console: Console) -> bool:
    """Run the pipeline over the node's archive; return whether it finds the messages that participants received."""
    from fairway.pipeline.report.html import write_html_report  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.report.terminal import short_report  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.run import run  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.run.reading import RunTables  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.session import session_or_own  # noqa: PLC0415 - needs the [spark] extra

    place, page = folder / "run", folder / "report.html"
    console.print("\nThe same from the archive alone: fairway pipeline run")
    with session_or_own(None, "fairway demo", little_java=True, config=_FEW_ROWS) as spark:
        run([f"archive=sqlite:{folder / 'archive.sqlite'}"], place, profile=Profile.WAKU, spark=spark)
    tables = RunTables(place)
    write_html_report(place, page)
    console.print(short_report(tables))
    agrees = received == sorted(
        (row["sender_id"], row["message_id"]) for row in tables.all("delivered", ["sender_id", "message_id"])
    )
    said = "Spark delivers the very messages that the participants got" if agrees else "Spark delivers other messages"
    console.print(f"\n[{'green' if agrees else 'red'}]{said}[/]")
    console.print(f"the report, for a browser: {page.absolute().as_uri()}", markup=False, soft_wrap=True)
    console.print(f"its tables, as Parquet: {place / 'tables'}", markup=False, soft_wrap=True)
    return agrees
