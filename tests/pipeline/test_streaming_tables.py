"""The tables of a stream: each micro-batch is there once, whatever is repeated, killed or compacted meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ConfigurationError
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.streaming import BEGINNING, DeliveryPlace, StreamOptions, deliveries
from fairway.pipeline.streaming.figures import StreamFigures
from fairway.pipeline.streaming.folder import StreamFolder
from fairway.pipeline.streaming.recorded import RecordedReader

ROWS_OF_A_BATCH = 3
SHARD = "/waku/2/rs/1/0"


@contextmanager
def opened(path):
    folder = StreamFolder.open_for(path, parse_sources(["a=sqlite:none.db"]), StreamOptions(state_partitions=2), None)
    try:
        yield folder
    finally:
        folder.close()


def put(table, rows: list[dict], number: int) -> None:
    """Append rows as the micro-batch of this number."""

    def write(place: Path) -> None:
        place.mkdir()
        numbered = [row | {"batch": number} for row in rows]
        pq.write_table(pa.Table.from_pylist(numbered, arrow_schema(table.schema)), place / "part-00000.parquet")

    table.put(number, write)


def record(folder, number: int) -> None:
    """Add a micro-batch of recorded rows, whose payloads say which it is."""
    rows = [
        {"message_hash": b"%d/%d" % (number, row), "payload": b"%d" % number, "timestamp_ns": number, "source": "a"}
        for row in range(ROWS_OF_A_BATCH)
    ]
    put(folder.recorded, rows, number)


def emit(folder, number: int, count: int = ROWS_OF_A_BATCH) -> None:
    """Add a micro-batch of deliveries, and a missing message; none at all if ``count`` is 0."""
    said = [
        {"what": kind, "channel_id": "team", "lamport": number, "sds_ids": [f"{number}/{row}"]}
        for kind, rows in (("delivered", count), ("missing", min(count, 1)))
        for row in range(rows)
    ]
    put(folder.emitted, said, number)


def read(path, after=BEGINNING) -> list[tuple[int, str]]:
    """Return the number of the micro-batch and the id of each delivery."""
    return [(row["batch"], row["sds_ids"][0]) for _, table in deliveries(path, after) for row in table.to_pylist()]


def of_batches(numbers) -> list[tuple[int, str]]:
    return [(number, f"{number}/{row}") for number in numbers for row in range(ROWS_OF_A_BATCH)]


def recorded_now(folder) -> list[bytes]:
    return sorted(folder.recorded.rows(-1, 1_000)["message_hash"].to_pylist())


def hashes(count: int) -> list[bytes]:
    return sorted(b"%d/%d" % (number, row) for number in range(count) for row in range(ROWS_OF_A_BATCH))


def test_many_micro_batches_become_few_files_and_none_is_lost_or_repeated(tmp_path):
    with opened(tmp_path / "live") as folder:
        for number in range(60):
            emit(folder, number)
            folder.compact(10)
        assert read(folder.path) == of_batches(range(60))
        assert len(list(folder.emitted.place.local.glob("*.parquet"))) < 30
        figures = StreamFigures(folder)
        assert (figures.delivered, figures.missing) == (60 * ROWS_OF_A_BATCH, 60)


def test_a_micro_batch_that_is_repeated_is_written_once(tmp_path):
    with opened(tmp_path / "live") as folder:
        for number in (0, 1, 1):
            record(folder, number)
            emit(folder, number)
        folder.compact(2)
        record(folder, 1)
        emit(folder, -1)
        emit(folder, -1)
        assert recorded_now(folder) == hashes(2)
        assert read(folder.path) == of_batches([0, 1, -1])


def test_who_goes_on_behind_a_place_gets_what_came_after_it(tmp_path):
    with opened(tmp_path / "live") as folder:
        for number in range(7):
            emit(folder, number, count=0 if number == 3 else ROWS_OF_A_BATCH)
        folder.compact(5)
        for number in (7, 8):
            emit(folder, number)
        emit(folder, -1)
        places = [place for place, _ in deliveries(folder.path)]
        assert places[-1] == DeliveryPlace(batch=8, settled=-1)
        for place in places:
            rest = [number for number in range(9) if number != 3 and number > place.batch]
            settled = [] if place.settled else [-1]
            assert read(folder.path, place) == of_batches([*rest, *settled])
        assert read(folder.path, places[-1]) == []


def test_a_folder_that_holds_no_stream_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="holds no stream"):
        next(deliveries(tmp_path))


@examples(0.1)
@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=12), many=st.integers(2, 5))
def test_rows_keep_their_order_and_number_however_they_are_compacted(tmp_path_factory, sizes, many):
    with opened(tmp_path_factory.mktemp("stream") / "live") as folder:
        expected = []
        for number, size in enumerate(sizes):
            emit(folder, number, size)
            folder.compact(many)
            expected += [(number, f"{number}/{row}") for row in range(size)]
            assert sorted(read(folder.path)) == sorted(expected)


def test_a_reader_meanwhile_sees_one_state(tmp_path):
    """What a reader finds is always the deliveries up to some micro-batch, each once."""
    with opened(tmp_path / "live") as folder:
        emit(folder, 0)
        ended = threading.Event()
        faults: list[object] = []

        def follow() -> None:
            try:
                while not ended.is_set() and not faults:
                    found = sorted(read(folder.path))
                    if found != sorted(of_batches(range(len(found) // ROWS_OF_A_BATCH))):
                        faults.append(found)
            except Exception as error:  # noqa: BLE001 - told to the test
                faults.append(error)

        reader = threading.Thread(target=follow)
        reader.start()
        for number in range(1, 30):
            emit(folder, number)
            folder.compact(4)
        ended.set()
        reader.join()
        assert faults == []


def test_the_cores_read_each_micro_batch_once_while_files_are_joined(tmp_path):
    with opened(tmp_path / "live") as folder:
        found, offset = [], {"batch": -1}
        for number in range(12):
            record(folder, number)
            if number % 3:
                continue
            reader = RecordedReader(folder.recorded.place.local, 2)
            while (end := reader.latestOffset(offset, None)) != offset:
                assert end["batch"] > offset["batch"]
                parts = reader.partitions(offset, end)
                found += [
                    row["message_hash"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()
                ]
                reader.commit(offset)
                offset = end
            folder.compact(5)
        assert sorted(found) == hashes(10)


KILLED = """
import os, shutil, signal, sys, traceback
from itertools import count
from pathlib import Path

sys.path[:0] = sys.argv[2:]
from test_streaming_tables import hashes, of_batches, opened, read, record, emit, recorded_now
from fairway.pipeline.streaming.figures import StreamFigures

place = Path(sys.argv[1])
BATCHES = 4
EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}

def made():
    with opened(place / "made") as folder:
        for number in range(BATCHES):
            record(folder, number)
            emit(folder, number)

def work(point=0):
    left = [point]
    def hook(event, told):
        if event in EVENTS:
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
    with opened(place / "killed") as folder:
        sys.addaudithook(hook)
        record(folder, BATCHES)
        emit(folder, BATCHES)
        folder.compact(2)

def check():
    with opened(place / "killed") as folder:
        said, rows = read(folder.path), recorded_now(folder)
        assert sorted(said) in [sorted(of_batches(range(count))) for count in (BATCHES, BATCHES + 1)], said
        assert rows in [hashes(count) for count in (BATCHES, BATCHES + 1)], rows
        figures = StreamFigures(folder)
        assert (figures.recorded, figures.delivered) == (len(rows), len(said))

def apart(act, *told):  # delta-rs does not work in a process that was forked from one which used it
    child = os.fork()
    if not child:
        try:
            act(*told)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]

assert apart(made) == 0
for point in count(1):
    shutil.rmtree(place / "killed", ignore_errors=True)
    shutil.copytree(place / "made", place / "killed")
    status = apart(work, point)
    for act in (check, work, check):
        assert apart(act) == 0, point
    if status == 0:
        print("points", point)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, to be killed many times at little cost")
def test_killed_at_any_point_nothing_is_lost_or_repeated(tmp_path):
    here = Path(__file__).parent
    words = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path), str(here), str(here.parent / "support")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 8
