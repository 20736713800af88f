"""No message id ever proves two signals: over crashes at every statement, torn writes, kills and second processes."""

from __future__ import annotations

import shutil
import signal as signals
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairway.errors import (
    ConfigurationError,
    RlnError,
    RlnErrorKind,
    StorageError,
    StoreCorruptError,
    StoreVersionError,
)
from fairway.rln.field import element
from fairway.rln.message_ids import APPLICATION_ID, MessageIds
from fairway.storage.sqlite_connection import GuardedConnection
from patience import PATIENCE_S

MEMBER, OTHER = element(1), element(2)
LIMIT = 5


class PowerLossError(BaseException):
    """The machine stops."""


class Disk:
    """The files of a counter, and the statement at which the power fails next.

    At a commit, any part of what it writes may have reached the disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lives = folder, 0
        self.fails_in: int | None = None
        """How many statements still work; None: all of them."""
        self.kept = 1.0
        """Of the bytes that the failing commit writes, the share that reaches the disk."""
        disk = self

        class Failing(GuardedConnection):
            def execute(self, statement, *values):
                if disk.fails_in is None or not statement.startswith(("BEGIN", "SELECT", "INSERT", "DELETE", "COMMIT")):
                    return super().execute(statement, *values)
                if disk.fails_in > 0:
                    disk.fails_in -= 1
                    return super().execute(statement, *values)
                before = disk.log.stat().st_size if disk.log.exists() else 0
                if statement == "COMMIT":
                    super().execute(statement)
                disk.lose_power(before)
                raise PowerLossError

        self.factory = Failing

    @property
    def path(self) -> Path:
        return self._folder / f"{self._lives}.db"

    @property
    def log(self) -> Path:
        return self._folder / f"{self._lives}.db-wal"

    def lose_power(self, synced: int) -> None:
        """Let the next life begin with what is on the disk, the log torn behind its first ``synced`` bytes."""
        path, log = self.path, self.log
        self._lives += 1
        self.fails_in = None
        shutil.copyfile(path, self.path)
        if log.exists():
            data = log.read_bytes()
            self.log.write_bytes(data[: synced + int((len(data) - synced) * self.kept)])


class Machine:
    """A program that signs, over crashes, and all signals that anybody has seen of it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.disk = Disk(folder)
        MessageIds.create(self.disk.path, first_epoch=0).close()
        self.ids = MessageIds(self.disk.path, factory=self.disk.factory)
        self.signed: dict[tuple[bytes, int, int], bytes] = {}
        self.tried: dict[tuple[bytes, int], set[bytes]] = {}
        self.crashes = 0

    def sign(self, commitment: bytes, epoch: int, signal: bytes) -> int | None:
        """Sign; return the id, None if there is none or the power failed."""
        self.tried.setdefault((commitment, epoch), set()).add(signal)
        try:
            message_id = self.ids.reserve(commitment, epoch, LIMIT, signal)
        except PowerLossError:
            self.crashes += 1
            self.ids.close()
            self.ids = MessageIds(self.disk.path, factory=self.disk.factory)
            return None
        except RlnError:
            # Never more ids than signals that were tried: a crash in between costs nothing when it is tried again.
            assert len(self.tried[commitment, epoch]) > LIMIT
            return None
        assert 0 <= message_id < LIMIT
        assert self.signed.setdefault((commitment, epoch, message_id), signal) == signal
        return message_id


STEPS = st.tuples(
    st.sampled_from([MEMBER, OTHER]),
    st.integers(0, 2),
    st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"g"]),
    st.none() | st.integers(0, 8),
    st.floats(0, 1),
)


@given(st.lists(STEPS, max_size=25))
def test_no_id_signs_two_signals_wherever_the_power_fails(tmp_path_factory, steps):
    machine = Machine(tmp_path_factory.mktemp("machine"))
    for commitment, epoch, signal, fails_in, kept in steps:
        machine.disk.fails_in, machine.disk.kept = fails_in, kept
        machine.sign(commitment, epoch, signal)
    machine.ids.close()


def test_a_torn_commit_returns_the_same_id_again_or_no_id(tmp_path):
    for tenth in range(11):
        machine = Machine(tmp_path / str(tenth))
        commits_at = 7  # after begin, three look-ups, two entries and the forgetting of old ones
        machine.disk.fails_in, machine.disk.kept = commits_at, tenth / 10
        assert machine.sign(MEMBER, 1, b"a") is None
        assert machine.crashes == 1
        used = machine.ids.used(MEMBER, 1)
        assert used == (1 if tenth == 10 else 0)
        assert machine.sign(MEMBER, 1, b"b") == used
        assert machine.sign(MEMBER, 1, b"a") == 1 - used
        machine.ids.close()


@pytest.fixture
def ids(tmp_path):
    with MessageIds.create(tmp_path / "ids.db", first_epoch=0) as ids:
        yield ids


def test_ids_count_from_zero_in_each_epoch_and_for_each_membership(ids):
    found = [
        ids.reserve(*each, LIMIT, b"%d" % at) for at, each in enumerate([(MEMBER, 1)] * 3 + [(MEMBER, 2), (OTHER, 1)])
    ]
    assert found == [0, 1, 2, 0, 0]
    assert [ids.used(MEMBER, 1), ids.used(MEMBER, 2), ids.used(OTHER, 1), ids.used(OTHER, 2)] == [3, 1, 1, 0]


def test_the_identical_signal_keeps_its_id_in_its_epoch(ids):
    assert [ids.reserve(MEMBER, 1, LIMIT, signal) for signal in (b"a", b"b", b"a", b"b")] == [0, 1, 0, 1]
    assert ids.reserve(MEMBER, 2, LIMIT, b"b") == 0
    assert ids.used(MEMBER, 1) == 2


def test_when_all_ids_are_used_the_identical_signal_still_has_its_own(ids):
    for number in range(LIMIT):
        ids.reserve(MEMBER, 1, LIMIT, b"%d" % number)
    with pytest.raises(RlnError) as told:
        ids.reserve(MEMBER, 1, LIMIT, b"more")
    assert told.value.kind is RlnErrorKind.BUDGET_EXHAUSTED
    assert ids.reserve(MEMBER, 1, LIMIT, b"0") == 0
    assert ids.reserve(MEMBER, 1, LIMIT + 1, b"more") == LIMIT


def test_an_epoch_after_a_clock_change_continues_its_count(ids):
    assert ids.reserve(MEMBER, 5, LIMIT, b"a") == 0
    assert ids.reserve(MEMBER, 10**6, LIMIT, b"b") == 0
    assert ids.reserve(MEMBER, 5, LIMIT, b"c") == 1
    assert ids.reserve(MEMBER, 5, LIMIT, b"a") == 2  # forgotten meanwhile, so it gets another one


def test_a_new_file_for_an_old_membership_begins_with_a_later_epoch(tmp_path):
    with MessageIds.create(tmp_path / "ids.db", first_epoch=8) as ids:
        with pytest.raises(RlnError, match="from epoch 8 on") as told:
            ids.reserve(MEMBER, 7, LIMIT, b"a")
        assert told.value.kind is RlnErrorKind.NOT_READY
        assert ids.reserve(MEMBER, 8, LIMIT, b"a") == 0


def test_a_file_is_made_once_and_only_on_purpose(tmp_path):
    path = tmp_path / "ids.db"
    with pytest.raises(StorageError, match="starts with the next epoch"):
        MessageIds(path)
    with MessageIds.create(path, first_epoch=0) as ids:
        ids.reserve(MEMBER, 1, LIMIT, b"a")
    with pytest.raises(ConfigurationError, match="exists"):
        MessageIds.create(path, first_epoch=0)
    with MessageIds(path) as ids:
        assert ids.used(MEMBER, 1) == 1
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", [b"", b"x" * 4_096, b"short"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    (tmp_path / "ids.db").write_bytes(damage)
    with pytest.raises(StoreCorruptError, match="counting then starts with"):
        MessageIds(tmp_path / "ids.db")


@given(st.data())
def test_no_id_of_a_damaged_file_signs_another_signal(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "ids.db"
    used: dict[tuple[int, int], bytes] = {}
    with MessageIds.create(path, first_epoch=0) as ids:
        for number in range(data.draw(st.integers(1, 8))):
            epoch, signal = number % 2, b"%d" % number
            used[epoch, ids.reserve(MEMBER, epoch, LIMIT, signal)] = signal
    content = bytearray(path.read_bytes())
    # Where there is something: most of a page is empty.
    places = [at for at, byte in enumerate(content) if byte]
    at = data.draw(st.sampled_from(places))
    garbage = data.draw(st.binary(min_size=1, max_size=8))
    content[at : at + len(garbage)] = garbage
    path.write_bytes(content)
    try:
        with MessageIds(path) as ids:
            for epoch in (0, 1):
                for signal in [*used.values(), b"new", b"newer"]:
                    message_id = ids.reserve(MEMBER, epoch, 10**6, signal)
                    assert used.setdefault((epoch, message_id), signal) == signal
    except (StorageError, RlnError):
        return


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE counter SET used = 1",
        "UPDATE counter SET used = 0",
        "UPDATE counter SET used = -1",
        "UPDATE counter SET used = 5",
        "UPDATE counter SET used = 'x'",
        "DELETE FROM counter",
        "UPDATE counter SET epoch = 7",
        "UPDATE signal SET message_id = 1",
        "UPDATE signal SET message_id = message_id + 1",
        "UPDATE signal SET epoch = 7 WHERE message_id = 2",
        "DELETE FROM signal WHERE message_id = 1",
        "DELETE FROM signal WHERE message_id = 2",
        "DELETE FROM first",
        "UPDATE first SET epoch = 'x'",
    ],
)
def test_a_count_that_contradicts_its_signals_returns_no_id(tmp_path, ids, damage):
    for signal in (b"a", b"b", b"c"):
        ids.reserve(MEMBER, 1, LIMIT, signal)
    ids.close()
    with closing(sqlite3.connect(tmp_path / "ids.db")) as connection:
        connection.execute(damage)
        connection.commit()
    with (
        MessageIds(tmp_path / "ids.db") as again,
        pytest.raises(StoreCorruptError, match="starts with the next epoch"),
    ):
        again.reserve(MEMBER, 1, LIMIT, b"d")


@pytest.mark.parametrize(
    ("application", "version", "error"), [(1, 1, StoreCorruptError), (APPLICATION_ID, 2, StoreVersionError)]
)
def test_a_file_of_another_program_or_a_newer_version_is_refused(tmp_path, application, version, error):
    connection = sqlite3.connect(tmp_path / "ids.db")
    connection.execute("CREATE TABLE t (a)")
    connection.execute(f"PRAGMA application_id = {application}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with pytest.raises(error):
        MessageIds(tmp_path / "ids.db")


# Reads its own files all the time, as a backup does: that releases the POSIX locks of the process.
RESERVING = """
import itertools, sys, threading
from pathlib import Path
from fairway.rln.message_ids import MessageIds

def read_files():
    while True:
        for file in Path(sys.argv[1]).parent.iterdir():
            file.read_bytes()

threading.Thread(target=read_files, daemon=True).start()
with MessageIds(sys.argv[1]) as ids:
    for number in itertools.islice(itertools.count(), int(sys.argv[3])):
        signal = f"{sys.argv[2]}-{number}"
        print(ids.reserve(bytes(32), 1, 10**6, signal.encode()), signal, flush=True)
"""


def reserving(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RESERVING, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_that_read_their_files_never_get_the_same_id(tmp_path, ids):
    both = [reserving(tmp_path / "ids.db", name, 200) for name in ("one", "two")]
    found = []
    for process in both:
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, err) == (0, "")
        found += [int(line.split()[0]) for line in out.splitlines()]
    assert sorted(found) == list(range(400))
    assert ids.used(bytes(32), 1) == 400


def test_no_id_of_a_killed_process_is_given_again(tmp_path, ids):
    seen: dict[int, str] = {}
    for life in range(3):
        process = reserving(tmp_path / "ids.db", str(life), 10**6)
        lines = [process.stdout.readline() for _ in range(5 + 3 * life)]
        process.send_signal(signals.SIGKILL)
        rest, _ = process.communicate(timeout=PATIENCE_S)
        for line in [*lines, *rest.splitlines(keepends=True)]:
            if line.endswith("\n"):
                number, signal = line.split()
                assert seen.setdefault(int(number), signal) == signal
    assert len(seen) >= 24
