"""``fairway demo``: a group talks over a node that loses a third of all deliveries, and one participant is killed.

Each participant is a ``fairway participant`` process with a store. The demo sends them commands and reads their events.
It counts lost messages, second deliveries, and messages delivered before one that their sender had seen.
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
from collections.abc import Callable, Sequence
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

_NAMES: Final = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
_DEFAULT_FILE_BYTES: Final = 1_000_000
_MAX_FILE_BYTES: Final = 20_000_000
_GIVE_UP_S: Final = 240.0
_ENDING_S: Final = 5.0
_LINE_BYTES: Final = 16_777_216
_AWAY_S: Final = 1.5
_STEP_S: Final = 0.1
_OPTIONS: Final = {
    "retry_interval_ms": 3_000,
    "sync_min_interval_ms": 1_000,
    "segmentation": {"max_message_size_bytes": _MAX_FILE_BYTES},
}
_FEW_ROWS: Final = {
    # For a hundred rows, compiling the steps takes longer than running them.
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
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep stores, archive, logs, files and report here; a new folder."),
    ] = None,
) -> None:
    """Send texts and a file between processes over a node that loses a third of all deliveries.

    Half-way through the file the demo kills a receiver and restarts it. All participants get all messages once, in
    order, and acknowledge them. Then Spark rebuilds the same messages from the node's archive, and writes a report for
    a browser. Exit code 1 if a message was lost, came twice or differs.

    Examples: [bold]fairway demo[/bold]

    [bold]fairway demo holiday.jpg --participants 5 --loss 0.5 --keep demo-run[/bold]
    """
    if spark and find_spec("pyspark") is None:
        raise MissingExtraError("spark", "the Spark job (left out with --no-spark)", "pyspark")
    if keep is not None and keep.exists():
        raise ConfigurationError(f"{keep} exists; give --keep the path of a new folder")
    folder = keep if keep is not None else Path(tempfile.mkdtemp(prefix="fairway-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if file is None:
        file = folder / "sea.raw"
        file.write_bytes(random.Random(seed).randbytes(_DEFAULT_FILE_BYTES))  # noqa: S311 - content, no secret
    elif not file.is_file() or not 1 <= file.stat().st_size <= _MAX_FILE_BYTES:
        raise ConfigurationError(f"{file} must be a file of 1 to {_MAX_FILE_BYTES:,} bytes; choose another one")
    console = PlainConsole(highlight=False)
    demo = Demo(file, folder, _NAMES[:participants], console)
    asyncio.run(demo.run(loss, seed))
    succeeded = demo.print_result()
    if spark:
        succeeded = _rebuild(folder, demo.received(), console) and succeeded
    console.print(f"stores, archive and logs: {folder}", markup=False, soft_wrap=True)
    raise typer.Exit(0 if succeeded else 1)


@dataclass(slots=True)
class _Message:
    """One message of the script and its known results."""

    due_s: float
    sender: str
    title: str
    content: bytes
    past: frozenset[str] = frozenset()
    """Keys of the messages that its sender had sent or received before it."""
    sent_s: float = 0.0
    received_by: set[str] = field(default_factory=set)
    delivered_to: Sequence[str] = ()
    after_s: float = 0.0
    """Time from its sending to the last acknowledgement."""

    @property
    def message_id(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def key(self) -> str:
        """Sender and message id; also the request id of the send."""
        return f"{self.sender} {self.message_id}"


class Demo:
    """One run of the script, and its counts."""

    def __init__(self, file: Path, folder: Path, names: tuple[str, ...], console: Console) -> None:
        first, second, last = names[0], names[1], names[-1]
        script = [
            (0.0, first, "Look at the sea tonight!", None),
            # After a delay: participants first query the store, which would give them the whole file.
            (1.6, first, file.name, file.read_bytes()),
            (2.4, second, "It is still coming, wait.", None),
            (5.0, first, "ok", None),
            (5.2, last, "ok", None),
            (7.0, last, "What a picture.", None),
        ]
        messages = [_Message(due_s, who, title, content or title.encode()) for due_s, who, title, content in script]
        self._file = messages[1]
        self.messages = {message.key: message for message in messages}
        self._faults: list[str] = []
        """Second deliveries and deliveries out of order, a sentence each."""
        self._path, self._folder, self._names, self._console = file, folder, names, console
        self._processes: dict[str, _Process] = {}
        self._known: dict[str, set[str]] = {name: set() for name in names}
        self._half_sent = asyncio.Event()
        self._address = ""
        self._started_s = time.monotonic()
        self._elapsed_s = 0.0

    async def run(self, loss: float, seed: int) -> None:
        """Play the script. Raises `FairwayError` if a process ends by itself or refuses a command."""
        archive = f"sqlite:{self._folder / 'archive.sqlite'}"
        losing = ["--loss", str(loss), "--seed", str(seed)]
        try:
            async with asyncio.timeout(_GIVE_UP_S), asyncio.TaskGroup() as tasks:
                await self._start("node", ["--json", "--until-stdin-closes", "--archive", archive, *losing], tasks)
                for name in self._names:
                    place = ["--node", self._address, "--channel", "demo", "--sender", name]
                    paths = ["--store", str(self._folder / f"{name}.db"), "--save", str(self._folder / name)]
                    await self._start(name, [*place, *paths, "--options", json.dumps(_OPTIONS)], tasks)
                self._started_s = time.monotonic()
                self._say(f"a node that loses {loss:.0%} and {len(self._names)} participants are up")
                await asyncio.gather(self._kill(self._names[-1], tasks), *map(self._send, self.messages.values()))
                while any(map(self._lacking, self.messages.values())):  # noqa: ASYNC110 - other processes change it
                    await asyncio.sleep(_STEP_S)
                self._elapsed_s = time.monotonic() - self._started_s
                await asyncio.sleep(1)  # a second delivery would arrive now
                for process in self._processes.values():
                    process.reading.cancel()
        except* FairwayError as group:
            raise group.exceptions[0] from None
        except* TimeoutError:
            self._elapsed_s = _GIVE_UP_S
        finally:
            await asyncio.gather(*(process.end(_ENDING_S) for process in self._processes.values()))

    async def _start(self, name: str, options: list[str], tasks: asyncio.TaskGroup) -> None:
        words = ["node" if name == "node" else "participant", *options]
        process = _Process(name, words, self._folder / f"{name}.log", lambda line: self._note(name, line))
        self._processes[name] = process
        await process.start(tasks)

    async def _send(self, message: _Message) -> None:
        await asyncio.sleep(message.due_s)
        message.past = frozenset(self._known[message.sender])
        message.sent_s = time.monotonic()
        content = {"file": str(self._path.resolve())} if message is self._file else {"text": message.title}
        others = [name for name in self._names if name != message.sender]
        while not message.delivered_to:
            # A repeated request id repeats no send; a process killed before it accepted gets the command again.
            self._processes[message.sender].tell(command="send", request_id=message.key, by=others, **content)
            await asyncio.sleep(_AWAY_S)

    async def _kill(self, victim: str, tasks: asyncio.TaskGroup) -> None:
        await self._half_sent.wait()
        await self._processes[victim].end(0)
        self._say(f"{victim} was killed (SIGKILL) while {self._file.title} was on its way")
        await asyncio.sleep(_AWAY_S)
        await self._processes[victim].start(tasks)
        self._say(f"{victim} is back, on the same store")

    def _note(self, name: str, line: dict[str, Any]) -> None:
        match line:
            case {"multiaddrs": [address, *_]}:
                self._address = address
            case {"type": "MessageSent", "request_id": self._file.key, "chunk_info": chunk} if (
                2 * chunk["chunk_index"] >= chunk["total_chunks"] - 1
            ):
                self._half_sent.set()
            case {"type": "MessageReceived", "sender_id": sender, "message_id": message_id}:
                self._received(name, self.messages[f"{sender} {message_id}"], redelivered=line["redelivered"])
            case {"event": "accepted", "request_id": key}:
                self._known[name].add(key)
            case {"type": "MessageDelivered", "request_id": key, "delivered_to": names}:
                message = self.messages[key]
                message.delivered_to, message.after_s = names, time.monotonic() - message.sent_s
                self._say(f"{message.sender} knows that {', '.join(names)} got {message.title!r}")
            case {"event": "error", "detail": detail} | {"type": "DeliveryError", "detail": detail}:
                raise FairwayError(f"{name} could not go on: {detail}")

    def _received(self, name: str, message: _Message, *, redelivered: bool) -> None:
        if name in message.received_by:
            # A killed process gets an unfinished message again, marked as redelivered.
            if not redelivered:
                self._faults.append(f"{name} got {message.title!r} of {message.sender} twice")
            return
        for key in message.past - self._known[name]:
            if self.messages[key].sender != name:
                self._faults.append(f"{name} got {message.title!r} before {self.messages[key].title!r}")
        self._known[name].add(message.key)
        message.received_by.add(name)
        self._say(f"{name} has {message.title!r} of {message.sender}")

    def _say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._started_s:6.1f} s  {text}", markup=False, soft_wrap=True)

    def _lacking(self, message: _Message) -> set[str]:
        return set(self._names) - message.received_by - {message.sender}

    def received(self) -> list[tuple[str, str]]:
        """Return sender and message id of every message that any participant received, sorted."""
        return sorted((message.sender, message.message_id) for message in self.messages.values() if message.received_by)

    def print_result(self) -> bool:
        """Print a table of the messages and all faults; return whether there were none."""
        table = Table(title="What was sent", title_justify="left")
        for heading in ("from", "what", "bytes", "received by", "acknowledged by", "after"):
            table.add_column(heading, justify="right" if heading in {"bytes", "after"} else "left")
        for message in self.messages.values():
            names = (", ".join(sorted(message.received_by)), ", ".join(sorted(message.delivered_to)))
            size = f"{len(message.content):,}"
            table.add_row(message.sender, escape(message.title), size, *names, f"{message.after_s:.1f} s")
        self._console.print(table)
        lost = sum(len(self._lacking(message)) for message in self.messages.values())
        unacknowledged = sum(not message.delivered_to for message in self.messages.values())
        copies = [self._folder / name / self._file.message_id for name in self._names[1:]]
        same = sum(path.is_file() and path.read_bytes() == self._file.content for path in copies)
        succeeded = not (lost or unacknowledged or self._faults) and same == len(copies)
        self._console.print(
            f"{lost} lost, {len(self._faults)} twice or out of order, {unacknowledged} unacknowledged in "
            f"{self._elapsed_s:.1f} s; {same} of {len(copies)} saved copies equal the file",
            style="green" if succeeded else "red",
            soft_wrap=True,
        )
        for fault in self._faults:
            self._console.print(fault, style="red", markup=False)
        return succeeded


class _Process:
    """A fairway command that prints JSON lines and reads commands as JSON lines."""

    reading: asyncio.Task[None]

    def __init__(self, name: str, words: list[str], log: Path, note: Callable[[dict[str, Any]], None]) -> None:
        self._name, self._words, self._log, self._note = name, words, log, note
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Start the process, and wait for its first line."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                # -P prevents modules of the working directory from replacing installed ones.
                *(sys.executable, "-P", "-m", "fairway", *self._words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LINE_BYTES,
                # An interrupt at the terminal is for the demo alone, which then ends its processes.
                start_new_session=True,
            )
        started = asyncio.Event()
        assert self._process.stdout is not None
        self.reading = tasks.create_task(self._read(self._process.stdout, started))
        await started.wait()

    def tell(self, **command: Any) -> None:
        if self._process is not None and self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(json.dumps(command).encode() + b"\n")

    async def end(self, within_s: float) -> None:
        """Close its standard input, and kill it if it has not ended in time."""
        process = self._process
        if process is None or process.stdin is None:
            return
        self.reading.cancel()
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), within_s)
        if process.returncode is None:
            process.kill()
            await process.wait()

    async def _read(self, lines: asyncio.StreamReader, started: asyncio.Event) -> None:
        async for line in lines:
            self._note(json.loads(line))
            started.set()
        raise FairwayError(f"the process of {self._name} ended by itself; its log is {self._log}")


def _rebuild(folder: Path, received: list[tuple[str, str]], console: Console) -> bool:
    """Run the pipeline over the node's archive; return whether it finds the messages that participants received."""
    from fairway.pipeline.report.html import write_html_report  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.report.terminal import short_report  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.run import run  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.run.reading import RunTables  # noqa: PLC0415 - needs the [spark] extra
    from fairway.pipeline.session import session_or_own  # noqa: PLC0415 - needs the [spark] extra

    place, page = folder / "run", folder / "report.html"
    console.print("\nThe same from the archive alone: fairway pipeline run")
    with session_or_own(None, "fairway demo", little_java=True, settings=_FEW_ROWS) as spark:
        run([f"archive=sqlite:{folder / 'archive.sqlite'}"], place, profile=Profile.WAKU, spark=spark)
    tables = RunTables(place)
    write_html_report(place, page)
    console.print(short_report(tables))
    agrees = received == sorted(
        (row["sender_id"], row["message_id"]) for row in tables.all("delivered", ["sender_id", "message_id"])
    )
    verdict = "Spark delivers exactly the messages that the participants got" if agrees else "Spark delivers others"
    console.print(f"\n[{'green' if agrees else 'red'}]{verdict}[/]")
    console.print(f"the report, for a browser: {page.absolute().as_uri()}", markup=False, soft_wrap=True)
    console.print(f"its tables, as Delta tables: {place / 'tables'}", markup=False, soft_wrap=True)
    return agrees
