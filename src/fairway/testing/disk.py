"""`SimulatedDisk`: SQLite files under virtual time, with crashes and faults of the disk.

::

    with SimulatedDisk(seed=7) as disk:
        disk.faults = DiskFaults(crash_after=0.01, full=0.001)
        disk.on_crash = lambda name: processes[name].kill()
        channel = await create_reliable_channel(..., store=disk.store("alice"))

A store of this disk is a `SqliteStore` with three differences. A timer delays each commit by the latency of the disk. A
second timer delays the answers of a transaction, which come together. Faults strike the statements that sync: a row of
the journal, the end of a transaction, and the checkpoint.

Synced bytes are on the disk. After a crash during a commit, all or nothing of it is there: SQLite recovers a
half-written commit as if nothing was written.

A crash leaves the files as they are, without the clean-up of closing a database, so that the next opening recovers as
after a real loss of power.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import random
import secrets
import shutil
import sqlite3
import tempfile
import weakref
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from fairway.errors import ConfigurationError, StorageError, StoreLockedError
from fairway.storage.channel_store import Bounds, Stored, Write
from fairway.storage.commit_queue import CommitDriver, Done, LoopDriver
from fairway.storage.sqlite_connection import APPEND, CHECKPOINT, COMMIT, GuardedConnection, connect
from fairway.storage.sqlite_file import OpenFile, SqliteFile
from fairway.storage.sqlite_store import SqliteStore
from fairway.storage.store_lock import StoreLock
from fairway.testing.loop import VirtualLoop

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder made in it is a private one
_OWN: Final = "fairway-simulated-"
"""Beginning of the names of temporary folders."""
_LOCK: Final = ".lock"
"""Suffix of the file of a `StoreLock`."""
_FULL: Final = 2
"""Value of PRAGMA synchronous with which each commit is synced."""
_KEPT: Final = ("", "-wal", "-journal")
"""Suffixes of the files that survive a crash. SQLite creates the shared memory of a log again."""

Image = dict[str, bytes]
"""Content of the disk: suffix of a file name -> bytes."""


class DiskFault(Enum):
    """A fault that can strike when a store syncs."""

    CRASH_BEFORE = "crash_before"
    """Power is lost before the write: the transaction is not on the disk."""
    CRASH_AFTER = "crash_after"
    """Power is lost after the write: the transaction is on the disk, and the store gets no answer."""
    FULL = "full"
    """The disk is full: the transaction fails, and the program continues."""
    SYNC_ERROR = "sync_error"
    """The disk reports an error; the transaction may be on it or not."""


_TIMES: Final = ("latency_ms", "answer_ms")
_IN_FLIGHT: Final = (DiskFault.CRASH_BEFORE, DiskFault.CRASH_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFaults:
    """The share of syncs with each fault, 0 to 1, and the duration of a commit."""

    crash_before: float = 0.0
    crash_after: float = 0.0
    full: float = 0.0
    sync_error: float = 0.0
    latency_ms: tuple[float, float] = (1.0, 10.0)
    """Shortest and longest time from the first queued write to its commit; drawn uniformly."""
    answer_ms: tuple[float, float] = (0.0, 0.0)
    """Shortest and longest time from a commit to its answer; meanwhile the program runs, and may commit again."""

    def __post_init__(self) -> None:
        """Check the shares and the times. Raises `ConfigurationError`."""
        shares = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _TIMES}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ConfigurationError(f"{name} must be a share from 0 to 1, not {share}")
        if sum(shares.values()) > 1:
            raise ConfigurationError(f"the shares of faults must not exceed 1 together, but come to {shares}")
        for name in _TIMES:
            shortest, longest = getattr(self, name)
            if not 0 <= shortest <= longest:
                raise ConfigurationError(f"{name} must be (shortest, longest), not {(shortest, longest)}")

    def draw(self, rng: random.Random) -> DiskFault | None:
        """Draw the fault of a sync; None for none."""
        number = rng.random()
        for fault in DiskFault:
            number -= getattr(self, fault.value)
            if number < 0:
                return fault
        return None


def _no_action(name: str) -> None:
    """Do nothing: the default of `SimulatedDisk.on_crash`."""


class SimulatedDisk:
    """The disks of several machines, each with a name. Close it after use, or use it in a ``with`` block."""

    def __init__(self, seed: int = 0, folder: Path | None = None) -> None:
        """Keep the files in ``folder``; by default in a temporary folder, in memory where that is possible."""
        self.faults = DiskFaults()
        """The shares of faults; can be set at any time."""
        self.on_crash: Callable[[str], None] = _no_action
        """Called with the name of a machine that crashes at a sync, from outside the program on that machine.

        The store is dead by then; `store` returns one for the next run of the program.
        """
        self.happened: Counter[DiskFault] = Counter()
        """Number of faults by kind."""
        self._seed = seed
        self._own: weakref.finalize[..., SimulatedDisk] | None = None
        if folder is None:
            folder, held = _own()
            self._own = weakref.finalize(self, _remove, folder, held)
        self._folder = folder
        self._context = copy_context()
        self._machines: dict[str, _Machine] = {}

    def __repr__(self) -> str:
        return f"<SimulatedDisk {str(self._folder)!r}, {len(self._machines)} machines>"

    def __enter__(self) -> Self:
        """Return the disk."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the disk."""
        self.close()

    def store(self, name: str) -> SqliteStore:
        """Return the store of a machine, for one run of its program."""
        return _SimulatedStore(self._machine(name))

    def strike(self, name: str, fault: DiskFault, *, after: int = 0) -> None:
        """Make a sync of a machine fail with a fault, after ``after`` syncs that succeed; `faults` do not apply to it.

        Opening a store syncs once, creating its file once more, and so does a journal that the last run left. Calls
        queue up.
        """
        self._machine(name).strikes.extend([*[None] * after, fault])

    def power_loss(self, name: str) -> None:
        """Crash a machine now: its stores are dead, and their writes get no answer.

        The seed draws whether a commit under way is on the disk or not. `on_crash` is not called.
        """
        self._machine(name).power_loss()

    def close(self) -> None:
        """Crash all machines, and remove the folder unless it was given."""
        for machine in self._machines.values():
            machine.let_go()
        if self._own is not None:
            self._own()

    def _machine(self, name: str) -> _Machine:
        if name not in self._machines:
            self._machines[name] = _Machine(self, name, self._folder / f"{quote(name, safe='')}.db", self._seed)
        return self._machines[name]

    def later(self, delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function after a delay, in a context that no crash of a program ends."""
        return asyncio.get_running_loop().call_later(delay_s, call, context=self._context)


class _PowerLoss(BaseException):
    """Ends the code of a store at a loss of power. Not an `Exception`, so that the store cannot catch it."""

    def __init__(self, image: Image) -> None:
        super().__init__("the machine lost power")
        self.image = image


class _Machine:
    """The disk of one machine: its faults and its stores."""

    def __init__(self, disk: SimulatedDisk, name: str, path: Path, seed: int) -> None:
        self.disk = disk
        self.name = name
        self.path = path
        self.rng = random.Random(f"disk/{seed}/{name}")  # noqa: S311 - reproducible, not secret
        self.strikes: deque[DiskFault | None] = deque()
        self.files: list[_SimulatedFile] = []
        self.forced: Image | None = None
        """The synced content of the disk, if it differs from the files."""

    def sync(self, statement: str, parameters: Any, carry_out: Callable[..., sqlite3.Cursor]) -> sqlite3.Cursor:
        """Execute a statement that syncs, or fail with a fault."""
        fault = self.strikes.popleft() if self.strikes else self.disk.faults.draw(self.rng)
        if statement != CHECKPOINT and carry_out("PRAGMA synchronous").fetchone()[0] < _FULL:
            # Unsynced bytes are written with the next sync.
            self.forced = self.forced or self.image()
            return carry_out(statement, parameters)
        if fault is None:
            done = carry_out(statement, parameters)
            self.forced = None
            return done
        self.disk.happened[fault] += 1
        if fault is DiskFault.FULL:
            raise _full(statement, carry_out)
        if fault is DiskFault.SYNC_ERROR:
            if self.rng.random() < 0.5:
                carry_out(statement, parameters)
            raise _error("SQLITE_IOERR_FSYNC", "disk I/O error")
        if fault is DiskFault.CRASH_BEFORE:
            raise _PowerLoss(self.forced or self.image())
        carry_out(statement, parameters)
        self.forced = None
        raise _PowerLoss(self.image())

    def image(self) -> Image:
        """Return the content of the files."""
        image = {}
        for end in _KEPT:
            path = self._beside(end)
            if path.exists():
                image[end] = path.read_bytes()
        return image

    def put_back(self, image: Image) -> None:
        """Restore the content of the files."""
        self.forced = None
        for end in _KEPT:
            if end in image:
                self._beside(end).write_bytes(image[end])
            else:
                self._beside(end).unlink(missing_ok=True)

    def power_loss(self) -> None:
        files, self.files = self.files, []
        for file in files:
            file.power_loss()

    def let_go(self) -> None:
        files, self.files = self.files, []
        for file in files:
            file.let_go()

    def _beside(self, end: str) -> Path:
        return self.path.with_name(f"{self.path.name}{end}")


class _Connection(GuardedConnection):
    """Lets the machine apply its faults to statements that sync."""

    machine: _Machine | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if self.machine is not None and sql in {APPEND, COMMIT, CHECKPOINT}:
            return self.machine.sync(sql, parameters, super().execute)
        return super().execute(sql, parameters)


class _SlowDriver(LoopDriver):
    """Commits a queue after the latency of the disk."""

    def __init__(self, file: _SimulatedFile, machine: _Machine) -> None:
        super().__init__(self._after_a_while)
        self._file = file
        self._machine = machine

    def _after_a_while(self, commit: Callable[[], None]) -> asyncio.Handle:
        delay_ms = self._machine.rng.uniform(*self._machine.disk.faults.latency_ms)
        return self._machine.disk.later(delay_ms / 1_000, partial(self._survive, commit))

    def _survive(self, commit: Callable[[], None]) -> None:
        try:
            commit()
        except _PowerLoss as loss:
            self._file.end(loss.image)
            self._machine.disk.on_crash(self._machine.name)


class _SimulatedFile(SqliteFile):
    """The file of a machine, for one run of its program."""

    def __init__(self, machine: _Machine, bounds: Bounds) -> None:
        super().__init__(machine.path, bounds)
        self.is_dead = False
        self._machine = machine
        self._committing: _SlowDriver | None = None
        self._answers: list[Callable[[], None]] = []
        """The answers of one transaction, which come together."""
        self._answers_at_s = 0.0
        """Time of these answers, in seconds of the loop."""

    def open(self, channel_id: str, sender_id: str, content_topic: str, *, adds: bool) -> tuple[OpenFile, int, Stored]:
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            raise ConfigurationError(
                "a simulated disk needs virtual time: run this with fairway.testing.run or virtual_time"
            )
        if self.is_dead:
            raise StorageError(f"{self.path}: its machine lost power; get a new store from the disk")
        try:
            opened = super().open(channel_id, sender_id, content_topic, adds=adds)
        except _PowerLoss as loss:
            self._crash(loss.image)
            raise StorageError(f"{self.path}: the machine lost power while the store was being opened") from None
        # The end of a simulation leaves its stores as they are.
        atexit.unregister(self._end)
        return opened

    def close(self, opened: OpenFile, channel: int) -> None:
        try:
            super().close(opened, channel)
        except _PowerLoss as loss:
            self._crash(loss.image)
        self._tell()

    def power_loss(self) -> None:
        """End this run, during a commit if one is under way."""
        if self._opened is None or self._committing is None:
            self.is_dead = True
            return
        strikes = self._machine.strikes
        kept = tuple(strikes)
        try:
            if self._committing.is_due:
                strikes.clear()
                strikes.append(self._machine.rng.choice(_IN_FLIGHT))
                self._committing.finish()
            image = self._machine.forced or self._machine.image()
        except _PowerLoss as loss:
            image = loss.image
        strikes.clear()
        strikes.extend(kept)
        self.end(image)

    def end(self, image: Image) -> None:
        """End this run, with this content of the disk."""
        self.let_go()
        self._machine.put_back(image)

    def let_go(self) -> None:
        """End this run, and leave the disk as it is."""
        self.is_dead = True
        if self._committing is not None:
            self._committing.cancel()
        self.abandon()

    def connect(self, path: Path) -> GuardedConnection:
        connection = cast("_Connection", connect(path, factory=_Connection))
        connection.machine = self._machine
        return connection

    def driver(self) -> CommitDriver:
        self._committing = _SlowDriver(self, self._machine)
        return self._committing

    def answer(self, done: Done, context: Any, error: StorageError | None) -> None:
        """Give an answer after the time of the disk."""
        if not self._answers:
            now_s = asyncio.get_running_loop().time()
            shortest, longest = self._machine.disk.faults.answer_ms
            # Without a delay nothing is drawn, so that later draws do not change.
            delay_ms = self._machine.rng.uniform(shortest, longest) if longest else 0.0
            self._answers_at_s = max(self._answers_at_s, now_s + delay_ms / 1_000)
            self._machine.disk.later(self._answers_at_s - now_s, self._tell)
        self._answers.append(partial(context.run, done, error))

    def _crash(self, image: Image) -> None:
        """End this run from within its program, which `on_crash` kills in the next turn of the loop."""
        self.end(image)
        self._machine.disk.later(0, partial(self._machine.disk.on_crash, self._machine.name))

    def _tell(self) -> None:
        """Give the answers of the commits since the last call."""
        answers, self._answers = self._answers, []
        if not self.is_dead:
            for answer in answers:
                answer()


class _SimulatedStore(SqliteStore):
    """A store on a machine, for one run of its program."""

    _file: _SimulatedFile

    def __init__(self, machine: _Machine) -> None:
        super().__init__(machine.path)
        self._file = _SimulatedFile(machine, self._file.bounds)
        machine.files.append(self._file)

    def submit(self, write: Write, done: Done, *, hurry: bool = True) -> None:
        # A dead store gives no answers.
        if not self._file.is_dead:
            super().submit(write, partial(self._file.answer, done, copy_context()), hurry=hurry)


def _full(statement: str, carry_out: Callable[..., sqlite3.Cursor]) -> sqlite3.Error:
    """Make a write exceed the room on the disk, which raises SQLite's error; for a checkpoint return that error."""
    if statement != CHECKPOINT:
        (pages,) = carry_out("PRAGMA page_count").fetchone()
        (page_bytes,) = carry_out("PRAGMA page_size").fetchone()
        carry_out(f"PRAGMA max_page_count = {pages}")
        carry_out("CREATE TABLE what_the_disk_has_no_room_for AS SELECT zeroblob(?)", ((pages + 1) * page_bytes,))
    return _error("SQLITE_FULL", "database or disk is full")


def _error(name: str, text: str) -> sqlite3.Error:
    """Return an error as the module sqlite3 raises it."""
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    error.sqlite_errorcode = getattr(sqlite3, name)
    return error


def _memory() -> Path:
    """Return a folder in memory if the machine has one, else the folder of temporary files."""
    return _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def _own() -> tuple[Path, StoreLock]:
    """Make a folder, and remove the folders of killed processes, which hold no lock any more."""
    memory = _memory()
    for lock in memory.glob(f"{_OWN}*{_LOCK}"):
        with suppress(StoreLockedError, OSError):
            left = lock.with_name(lock.name.removesuffix(_LOCK))
            _remove(left, StoreLock(left))
    while True:
        folder = memory / f"{_OWN}{secrets.token_hex(8)}"
        # Another process can hold a new lock for a moment, when it looks for folders to remove.
        with suppress(StoreLockedError):
            held = StoreLock(folder)
            folder.mkdir(mode=0o700)
            return folder, held


def _remove(folder: Path, held: StoreLock) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_name(f"{folder.name}{_LOCK}").unlink(missing_ok=True)
    held.release()
