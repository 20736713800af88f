"""The main job as separate processes: a network that loses a third of everything, and people who talk over it.

Texts and a file are sent; half-way through the file one of its receivers is killed with SIGKILL and started again on
its store. The demonstration itself takes no part: it gives commands, listens to what the processes print, and keeps
the books. Every process has ended when `Demonstration.run` returns or raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairway.apps.demonstration_bookkeeping import Bookkeeping, DemonstrationMessage, Happening
from fairway.apps.demonstration_processes import ParticipantProcess, ProcessGroup, fairway_command
from fairway.apps.demonstration_result import (
    MAX_FILE_BYTES,
    DemonstrationPlan,
    DemonstrationResult,
    Killing,
    SentMessage,
)
from fairway.errors import FairwayError

GIVE_UP_MS: Final = 240_000
"""After so long the demonstration ends with whatever has come."""
_START_TIMEOUT_S: Final = 60.0
_STEP_S: Final = 0.05
_ASK_EVERY_STEPS: Final = 2
_AWAY_MS: Final = 1_500
_SETTLING_MS: Final = 1_000
"""How long it goes on listening for anything that comes once too often."""
_NODE: Final = "node"

# Shorter than the defaults, so that a person can watch.
OPTIONS: Final[Mapping[str, Any]] = {
    "sync_min_interval_ms": 1_000,
    "retry_interval_ms": 3_000,
    "max_retry_attempts": 100,
    "retrieve_frequency_ms": 2_500,
    "sweep_in_buf_interval_ms": 500,
    "max_store_queries_per_minute": 600,
    "segmentation": {"max_message_size_bytes": MAX_FILE_BYTES},
    "sds": {"repair": {"t_min_ms": 2_000, "t_max_ms": 8_000}},
}


class Said(NamedTuple):
    """Something worth telling, and when it happened, in milliseconds since the beginning."""

    at_ms: int
    text: str


class _Line(NamedTuple):
    """One message of a participant in the story."""

    after_ms: int
    sender: str
    title: str
    file: Path | None


class Demonstration:
    """One run; what it knows so far can be read at any time."""

    def __init__(
        self, plan: DemonstrationPlan, folder: Path, *, archive: Path, say: Callable[[Said], None] | None = None
    ) -> None:
        """Prepare; stores, logs and received files go into ``folder``. ``say`` is called with what happens."""
        self.plan = plan
        self.channel_id = f"demo-{uuid.uuid4().hex[:12]}"
        self.books = Bookkeeping(plan.names)
        self.said: list[Said] = []
        self.held: dict[str, int] = dict.fromkeys(plan.names[1:], 0)
        """Segments of the file that each receiver holds while it is incomplete, when it was last asked."""
        self.present: set[str] = set()
        """Participants that are up."""
        self.network: Mapping[str, int] = {}
        self.killing: Killing | None = None
        self._say = say
        self._folder = folder
        self._archive = archive
        self._sha256 = hashlib.sha256(plan.file.read_bytes()).hexdigest()
        self._processes: dict[str, ParticipantProcess] = {}
        self._started_s: float | None = None
        self._address: str | None = None
        self._errors: list[str] = []
        self._waiting = self._story()
        self._told: dict[str, _Line] = {}
        self._steps = 0
        self._revival: asyncio.Task[None] | None = None
        self._done_at_ms: int | None = None

    @property
    def elapsed_ms(self) -> int:
        """Milliseconds since the first command; 0 before."""
        return 0 if self._started_s is None else int((time.monotonic() - self._started_s) * 1000)

    @property
    def file_message(self) -> DemonstrationMessage | None:
        """The books about the file, once it is sent."""
        return next((message for message in self.books.messages.values() if message.is_file), None)

    async def run(self) -> DemonstrationResult:
        """Tell the whole story and return what happened.

        Raises `ProcessDiedError` if a process ended by itself, `FairwayError` if one refused its work.
        """
        options = self._folder / "options.json"
        options.write_text(json.dumps(OPTIONS), encoding="utf-8")
        async with ProcessGroup() as group:
            address = await self._start_node(group)
            for name in self.plan.names:
                self._add_participant(group, name, address, options)
            await _all(*(self._start(name) for name in self.plan.names))
            self._tell(f"{len(self.plan.names)} processes are up: {', '.join(self.plan.names)}", at_ms=0)
            self._started_s = time.monotonic()
            try:
                while not self._is_over():
                    group.check()
                    self._go_on()
                    await asyncio.sleep(_STEP_S)
            finally:
                # Nothing may start any more when the group ends what runs.
                await _ended(self._revival)
            for name in self.plan.names:
                self._processes[name].tell(command="stop")
            await asyncio.gather(*(self._processes[name].end() for name in self.plan.names))
            await self._processes[_NODE].end()
        return self._result()

    def _go_on(self) -> None:
        """Take the next step of the story, if it is time for one."""
        if self._errors:
            raise FairwayError(f"a participant refused a command: {self._errors[0]}")
        self._give_commands()
        self._ask()
        if self._revival is None:
            self._kill()
        elif self._revival.done():
            self._revival.result()

    def _story(self) -> list[_Line]:
        first, second, last = self.plan.names[0], self.plan.names[1], self.plan.names[-1]
        return [
            _Line(0, first, "Look at the sea tonight!", None),
            # Not at once: participants begin by asking the store for everything, and would get the file at one stroke.
            _Line(1_600, first, self.plan.title, self.plan.file),
            _Line(2_400, second, "It is still coming, wait.", None),
            _Line(5_000, first, "ok", None),
            _Line(5_200, last, "ok", None),
            _Line(7_000, last, "What a picture.", None),
        ]

    async def _start_node(self, group: ProcessGroup) -> str:
        command = fairway_command(
            *("node", "--json", "--until-stdin-closes"),
            *("--loss", str(self.plan.loss), "--seed", str(self.plan.seed)),
            *("--archive", f"sqlite:{self._archive}"),
        )
        node = ParticipantProcess(_NODE, command, self._folder / f"{_NODE}.log", self._hear_node)
        self._processes[_NODE] = group.add(node)
        await node.start()
        async with _bounded("the Waku node"):
            while self._address is None:
                group.check()
                await asyncio.sleep(_STEP_S)
        self._tell(f"a Waku node is up that loses {self.plan.loss:.0%} of what it should hand on", at_ms=0)
        return self._address

    def _add_participant(self, group: ProcessGroup, name: str, address: str, options: Path) -> None:
        command = fairway_command(
            *("participant", "--node", address, "--channel", self.channel_id, "--sender", name),
            *("--store", str(self._folder / f"{name}.db"), "--save", str(self._folder / name)),
            *("--options", str(options)),
        )
        process = ParticipantProcess(name, command, self._folder / f"{name}.log", lambda line: self._hear(name, line))
        self._processes[name] = group.add(process)

    async def _start(self, name: str) -> None:
        process = self._processes[name]
        await process.start()
        async with _bounded(f"the process of {name}"):
            while name not in self.present:
                process.check()
                await asyncio.sleep(_STEP_S)

    def _hear_node(self, line: Mapping[str, Any]) -> None:
        self._address = next(iter(line.get("multiaddrs", ())), self._address)
        self.network = line.get("statistics", self.network)

    def _hear(self, name: str, line: Mapping[str, Any]) -> None:
        """Take in what a participant printed."""
        match line:
            case {"event": "ready"}:
                self.present.add(name)
            case {"event": "error", "detail": detail}:
                self._errors.append(f"{name}: {detail}")
            case {"event": "statistics", "protocol": {"reassembly": {"open_segments": held}}} if name in self.held:
                self.held[name] = held
            case _:
                life = self._processes[name].lives
                happened = self.books.line(name, line, life=life, at_ms=self.elapsed_ms)
                if happened is not None:
                    self._tell_of(name, *happened)

    def _tell_of(self, name: str, happening: Happening, message: DemonstrationMessage) -> None:
        title = message.title if message.is_file else f'"{message.title}"'
        match happening:
            case Happening.ACCEPTED:
                self._tell(f"{name} sends {title} ({message.size_bytes:,} bytes)")
            case Happening.RECEIVED:
                self._tell(f"{name} has {title} of {message.sender}")
            case Happening.RECEIVED_AGAIN:
                self._tell(f"{name} got {title} of {message.sender} ONCE TOO OFTEN")
            case Happening.DELIVERED:
                self._tell(f"{name} knows that {', '.join(message.delivered_to)} got {title}")
            case Happening.FAILED:
                self._tell(f"{name} gave up on {title}: {message.failed}")

    def _give_commands(self) -> None:
        """Tell those who are up what is due, again if they died before they could accept it."""
        due = [line for line in self._waiting if line.after_ms <= self.elapsed_ms and line.sender in self.present]
        for line in due:
            self._waiting.remove(line)
            content = line.title.encode() if line.file is None else None
            request_id = f"{line.sender}-{len(self.books.messages) + 1}"
            self.books.command(
                line.sender,
                request_id,
                title=line.title,
                sha256=self._sha256 if content is None else hashlib.sha256(content).hexdigest(),
                size_bytes=self.plan.file.stat().st_size if content is None else len(content),
                at_ms=self.elapsed_ms,
                is_file=content is None,
            )
            self._told[request_id] = line
            self._command(request_id)

    def _command(self, request_id: str) -> None:
        line = self._told[request_id]
        content = {"text": line.title} if line.file is None else {"file": str(line.file.resolve())}
        others = list(self.books.others(line.sender))
        self._processes[line.sender].tell(command="send", request_id=request_id, by=others, **content)

    def _ask(self) -> None:
        """Ask receivers how much of the file they hold, while it is on its way."""
        self._steps += 1
        file = self.file_message
        if file is not None and self._steps % _ASK_EVERY_STEPS == 0:
            for name in self.held.keys() & self.present - file.received_at_ms.keys():
                self._processes[name].tell(command="statistics")

    def _kill(self) -> None:
        """Kill the victim if it holds half of the file, and see to it that it comes back a moment later."""
        victim, file = self.plan.victim, self.file_message
        if victim is None or file is None or file.accepted_at_ms is None:
            return
        has_all = victim in file.received_at_ms
        if has_all or 2 * self.held[victim] >= file.total_chunks > 1:
            self._processes[victim].kill()
            self.present.discard(victim)
            held = file.total_chunks if has_all else self.held[victim]
            self.killing = Killing(name=victim, killed_at_ms=self.elapsed_ms, segments_held=held)
            self._tell(f"{victim} was killed (SIGKILL), holding {held} of {file.total_chunks} segments")
            self._revival = asyncio.ensure_future(self._revive(self.killing))

    async def _revive(self, killing: Killing) -> None:
        await asyncio.sleep(_AWAY_MS / 1000)
        await self._start(killing.name)
        self.killing = replace(killing, back_at_ms=self.elapsed_ms)
        self._tell(f"{killing.name} is back, on the same store")
        for request_id, line in self._told.items():
            if line.sender == killing.name and not self.books.messages[request_id].has_ended:
                # Its answer may have gone down with the former life; with the same request id it is the same send.
                self._command(request_id)

    def _is_over(self) -> bool:
        """Return whether all was said, received and acknowledged, and nothing came after that; or time is up."""
        messages = self.books.messages.values()
        is_done = (
            not self._waiting
            and all(message.accepted_at_ms is not None and message.has_ended for message in messages)
            and next(self.books.lacking(), None) is None
            and self.present == set(self.plan.names)
            and (self.plan.victim is None or (self.killing is not None and self.killing.back_at_ms is not None))
        )
        if is_done and self._done_at_ms is None:
            self._done_at_ms = self.elapsed_ms
        is_settled = self._done_at_ms is not None and self.elapsed_ms >= self._done_at_ms + _SETTLING_MS
        return is_settled or self.elapsed_ms >= GIVE_UP_MS

    def _result(self) -> DemonstrationResult:
        file = self.file_message
        killing = self.killing
        if killing is not None and file is not None:
            has_it_at_ms = file.received_at_ms.get(killing.name)
            killing = replace(killing, redelivered=self.books.redelivered, file_at_ms=has_it_at_ms)
        return DemonstrationResult(
            channel_id=self.channel_id,
            participants=self.plan.names,
            messages=tuple(map(_sent, self.books.messages.values())),
            elapsed_ms=self.elapsed_ms if self._done_at_ms is None else self._done_at_ms,
            verdict=self.books.verdict(),
            faults=tuple(self.books.faults),
            file_sha256=self._sha256,
            saved={name: _sha256_of(self._folder / name / self._sha256) for name in self.plan.names[1:]},
            segments=0 if file is None else file.total_chunks,
            recovered_by_parity=() if file is None else tuple(sorted(file.recovered_by)),
            killing=killing,
            network=self.network,
        )

    def _tell(self, text: str, *, at_ms: int | None = None) -> None:
        said = Said(self.elapsed_ms if at_ms is None else at_ms, text)
        self.said.append(said)
        if self._say is not None:
            self._say(said)


@contextlib.asynccontextmanager
async def _bounded(what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            yield
    except TimeoutError as error:
        raise FairwayError(f"{what} was not ready within {_START_TIMEOUT_S:g} s; is the machine overloaded?") from error


async def _all(*works: Coroutine[Any, Any, None]) -> None:
    """Do things at once; if one fails, the others have ended too when its error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            await _ended(task)


async def _ended(task: asyncio.Task[None] | None) -> None:
    """Cancel a task and wait for its end; what it raised is no longer of interest."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _sent(message: DemonstrationMessage) -> SentMessage:
    return SentMessage(
        sender=message.sender,
        title=message.title,
        is_file=message.is_file,
        message_id=message.sha256,
        size_bytes=message.size_bytes,
        sent_at_ms=message.sent_at_ms,
        received_by=tuple(sorted(message.received_at_ms)),
        delivered_to=message.delivered_to,
        delivered_at_ms=message.delivered_at_ms,
        failed=message.failed,
    )


def _sha256_of(path: Path) -> str | None:
    """Return the hash of a file's content, or None if there is no such file."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
