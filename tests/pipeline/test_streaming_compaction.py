"""The files of a stream are joined: readers find each row once at any moment, and so does who comes after a kill."""

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
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from fairway.errors import ConfigurationError
from fairway.pipeline.durable import write_json
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.schema import arrow_schema
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA
from fairway.pipeline.streaming import BEGINNING, DeliveryPlace, StreamOptions, deliveries
from fairway.pipeline.streaming.channel_core import EMITTED
from fairway.pipeline.streaming.compaction import compact, join_recorded
from fairway.pipeline.streaming.figures import StreamFigures
from fairway.pipeline.streaming.folder import StreamFolder
from fairway.pipeline.streaming.recorded import RecordedReader

SPOKEN = arrow_schema(EMITTED)
WITHOUT_KIND = SPOKEN.remove(SPOKEN.get_field_index("what"))
ROWS_OF_A_BATCH = 3


@contextmanager
def opened(path):
    folder = StreamFolder.open_for(path, parse_sources(["a=sqlite:none.db"]), StreamOptions(state_partitions=2), None)
    try:
        yield folder
    finally:
        folder.close()


def record(folder, number: int) -> None:
    """Add a micro-batch of recorded rows, whose payloads say which it is."""
    rows = [
        {"message_hash": b"%d/%d" % (number, row), "payload": b"%d" % number, "timestamp_ns": number, "source": "a"}
        for row in range(ROWS_OF_A_BATCH)
    ]

    def write(aside) -> None:
        aside.mkdir()
        pq.write_table(pa.Table.from_pylist(rows, ARROW_SCHEMA), aside / "part-0.parquet")

    folder.recorded.put(number, write)


def emit(folder, number: int, count: int = ROWS_OF_A_BATCH) -> None:
    """Add a micro-batch of deliveries, and a missing message; none at all if ``count`` is 0."""

    def write(aside) -> None:
        for kind, rows in (("delivered", count), ("missing", bool(count))):
            (aside / f"what={kind}").mkdir(parents=True)
            said = [{"channel_id": "team", "lamport": number, "sds_ids": [f"{number}/{row}"]} for row in range(rows)]
            if rows:
                pq.write_table(pa.Table.from_pylist(said, WITHOUT_KIND), aside / f"what={kind}" / "part-0.parquet")

    folder.emitted.put(number, write)


def read(path, after=BEGINNING) -> list[tuple[int, str]]:
    """Return the number of the micro-batch and the id of each delivery."""
    return [(row["batch"], row["sds_ids"][0]) for _, table in deliveries(path, after) for row in table.to_pylist()]


def of_batches(numbers) -> list[tuple[int, str]]:
    return [(number, f"{number}/{row}") for number in numbers for row in range(ROWS_OF_A_BATCH)]


def recorded_now(folder) -> list[bytes]:
    """Return the hashes of the joined rows and of those that are not joined."""
    joined = [one.folder for one in folder.rows.ranges()]
    loose = [folder.recorded.folder(number) for number in folder.recorded.loose()]
    files = [str(file) for place in [*joined, *loose] for file in sorted(place.rglob("*.parquet"))]
    return sorted(ds.dataset(files, schema=ARROW_SCHEMA).to_table()["message_hash"].to_pylist()) if files else []


def hashes(count: int) -> list[bytes]:
    return sorted(b"%d/%d" % (number, row) for number in range(count) for row in range(ROWS_OF_A_BATCH))


def test_many_deliveries_become_few_files_and_none_is_lost_or_repeated(tmp_path):
    with opened(tmp_path / "live") as folder:
        for number in range(120):
            emit(folder, number)
            compact(folder, 10)
        files = list((folder.own / "emitted").rglob("*.parquet"))
        assert read(folder.path) == of_batches(range(120))
        assert len(files) < 70
        # The last ones have folders of their own, for who follows these.
        assert set(folder.emitted.numbers()) >= set(range(110, 120))
        assert len(folder.emitted.numbers()) < 20


@pytest.mark.full
def test_small_folders_are_joined_again_until_they_are_few(tmp_path):
    with opened(tmp_path / "live") as folder:
        for number in range(140):
            emit(folder, number)
            compact(folder, 2)
        assert len(folder.emitted.joined.ranges()) < 64
        assert read(folder.path) == of_batches(range(140))
        assert StreamFigures(folder).delivered == 140 * ROWS_OF_A_BATCH


def test_recorded_rows_go_when_they_are_joined_and_the_cores_had_them(tmp_path):
    with opened(tmp_path / "live") as folder:
        for number in range(10):
            record(folder, number)
        join_recorded(folder)
        assert (folder.rows.through, folder.recorded.numbers()) == (9, list(range(10)))
        write_json(folder.taken, {"batch": 6})
        record(folder, 10)
        join_recorded(folder)
        assert folder.recorded.numbers() == [7, 8, 9, 10]
        assert folder.recorded.is_there(3)
        assert recorded_now(folder) == hashes(11)
        assert StreamFigures(folder).recorded == 11 * ROWS_OF_A_BATCH


def test_who_goes_on_behind_a_place_gets_what_came_after_it(tmp_path):
    with opened(tmp_path / "live") as folder:
        for number in range(7):
            emit(folder, number, count=0 if number == 3 else ROWS_OF_A_BATCH)
        compact(folder, 5)
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


@examples(0.2)
@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=12), many=st.integers(2, 5))
def test_rows_keep_their_order_and_number_however_they_are_joined(tmp_path_factory, sizes, many):
    with opened(tmp_path_factory.mktemp("stream") / "live") as folder:
        expected = []
        for number, size in enumerate(sizes):
            emit(folder, number, size)
            compact(folder, many)
            expected += [(number, f"{number}/{row}") for row in range(size)]
            assert read(folder.path) == expected


def test_a_reader_meanwhile_sees_one_state(tmp_path):
    """What a reader finds is always the deliveries up to some micro-batch, each once."""
    with opened(tmp_path / "live") as folder:
        emit(folder, 0)
        ended = threading.Event()
        faults: list[object] = []

        def follow() -> None:
            try:
                while not ended.is_set() and not faults:
                    found = read(folder.path)
                    if found != of_batches(range(len(found) // ROWS_OF_A_BATCH)):
                        faults.append(found)
            except Exception as error:  # noqa: BLE001 - told to the test
                faults.append(error)

        reader = threading.Thread(target=follow)
        reader.start()
        for number in range(1, 60):
            emit(folder, number)
            compact(folder, 2)
        ended.set()
        reader.join()
        assert faults == []


def test_the_cores_read_each_micro_batch_once_while_folders_go(tmp_path):
    with opened(tmp_path / "live") as folder:
        found, offset = [], {"batch": -1}
        for number in range(12):
            record(folder, number)
            if number % 3:
                continue
            reader = RecordedReader(str(folder.recorded.place), folder.taken, 2)
            while (end := reader.latestOffset(offset, None)) != offset:
                assert end["batch"] - offset["batch"] <= 2
                parts = reader.partitions(offset, end)
                found += [
                    row["message_hash"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()
                ]
                reader.commit(offset)
                offset = end
            join_recorded(folder)
        assert sorted(found) == hashes(10)
        assert folder.recorded.numbers()[0] > 0


KILLED = """
import os, shutil, signal, sys
from itertools import count
from pathlib import Path

sys.path[:0] = sys.argv[2:]
from test_streaming_compaction import hashes, of_batches, opened, read, record, emit, recorded_now
from fairway.pipeline.durable import write_json
from fairway.pipeline.streaming.compaction import compact, join_recorded

from fairway.pipeline.streaming.figures import StreamFigures

place = Path(sys.argv[1])
BATCHES = 8
with opened(place / "made") as folder:
    for number in range(BATCHES):
        record(folder, number)
        emit(folder, number)
        if number in (3, 5):
            join_recorded(folder)
            compact(folder, 2)
    write_json(folder.taken, {"batch": 4})

EVENTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}

def work(folder):
    compact(folder, 2)
    join_recorded(folder)
    from fairway.pipeline.streaming import compaction
    folder.emitted.joined.join_small(compaction.copy_emitted, 2)
    folder.rows.join_small(compaction.copy_rows, 2)

def check(out):
    assert read(out) == of_batches(range(BATCHES)), read(out)
    with opened(out) as folder:
        assert recorded_now(folder) == hashes(BATCHES), recorded_now(folder)
        figures = StreamFigures(folder)
        assert (figures.recorded, figures.delivered) == (BATCHES * 3, BATCHES * 3)

for point in count(1):
    out = place / "killed"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(place / "made", out)
    child = os.fork()
    if not child:
        left = [point]
        with opened(out) as folder:
            def hook(event, told):
                if event in EVENTS:
                    left[0] -= 1
                    if not left[0]:
                        os.kill(os.getpid(), signal.SIGKILL)
            sys.addaudithook(hook)
            work(folder)
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    check(out)
    if status == 0:
        print("points", point)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    if point % 5 == 0:
        with opened(out) as folder:
            work(folder)
        check(out)
"""


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks, to be killed many times at little cost")
def test_killed_at_any_point_nothing_is_lost_or_repeated(tmp_path):
    here = Path(__file__).parent
    words = [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path), str(here), str(here.parent / "support")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 30
