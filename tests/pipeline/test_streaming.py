"""A stream over stores that grow, in a real Spark: its tables are those of a run, and it delivers everything once.

``pytest --seed`` chooses where a stream is killed, FAIRWAY_KILLS how often; a soak run raises the latter.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from fairway.archives.export import export
from fairway.archives.restore import restore
from fairway.errors import ConfigurationError, StoreQueryError
from fairway.options import Profile, SegmentationConfig
from fairway.pipeline.keys import ChannelKeys
from fairway.pipeline.report.findings import report_of
from fairway.pipeline.run import run
from fairway.pipeline.run.options import RunOptions
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.session import WRITTEN_TIMES, session_or_own
from fairway.pipeline.streaming import StreamOptions, StreamProgress, stream
from fairway.pipeline.streaming.channel_core import EMITTED
from fairway.pipeline.streaming.figures import StreamFigures
from fairway.pipeline.streaming.folder import StreamFolder
from fairway.pipeline.streaming.progress import Phase
from fairway.pipeline.streaming.settling import settle, settled_before
from fairway.pipeline.tables import TABLES, table_named
from fairway.protocol.encryption import AesGcm
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import NIM_SDS, WAKU_SDS
from fairway.wire.segment import LIP_243

pytestmark = pytest.mark.spark

SHARD = "/waku/2/rs/1/0"
KEY = bytes(range(100, 132))
KEY_FILE = {"sealed": {"cipher": "aes-256-gcm", "key": KEY.hex()}}
KEYS = ChannelKeys.from_mapping(KEY_FILE)
SEGMENTS = SegmentationConfig(segment_size_bytes=128, parity_rate=0.5)
STORES = ("a", "b", "empty")
OPTIONS = StreamOptions(once=True, rows_per_batch=90, files_per_batch=1, state_partitions=2)
"""Several micro-batches of each query: one takes 90 rows of each store, or one recorded file."""
SECOND_NS = 1_000_000_000
KILLS = int(os.environ.get("FAIRWAY_KILLS", "1"))
LAST_S = 240
"""How long one attempt may take before the test gives up."""
LINES = 4
"""Lines of progress after one of which an attempt is killed: two micro-batches, the cores, the tables."""


def archives(folder, log):
    """Return the first messages of two stores, and the later ones: shuffled, repeated, late, and damaged."""
    rng = random.Random(11)
    team, sealed, logos = log("team"), log("sealed"), log("logos")
    files = []
    for number in range(12):
        for sender in ("alice", "bob", "carol"):
            team.message(sender, b"%s says %d" % (sender.encode(), number))
        files.append(team.file(rng.choice(["alice", "bob"]), rng.randbytes(rng.randint(300, 600)), SEGMENTS))
        sealed.message("dave", b"secret %d" % number)
    team.message("carol", None)
    for _ in range(2):
        team.file("alice", b"the same file again" * 20, SEGMENTS)
    of_id = {message.message_id: waku for message, waku in team.sent}
    withheld = {files[0][0].message_id, files[1][0].message_id, files[1][1].message_id}
    # Two data segments of the third file never come, and no parity of it: it stays incomplete.
    lost = {one.message_id for one in files[2][:1] + files[2][-2:]} | {team.sent[3][0].message_id}
    first = [waku for one, waku in team.sent if one.message_id not in withheld | lost]
    first += [structs.replace(waku, payload=AesGcm(KEY).encrypt(waku.payload)) for _, waku in sealed.sent]
    first.append(sealed.wrapped(sealed.sent[0][1].payload))  # in clear, though the channel has a key
    for part in Segmenter(SegmentationConfig(), LIP_243).split(b"in the other wire").segments:
        nim = logos.wrapped(NIM_SDS.encode(logos.message("erin", part.content)))
        first.append(structs.replace(nim, meta=Profile.LOGOS.marker))
    times = [waku.timestamp_ns for waku in first]
    rng.shuffle(times)  # the order of senders' clocks has nothing to do with that of SDS
    first = [structs.replace(waku, timestamp_ns=time) for waku, time in zip(first, times, strict=True)]
    first += [structs.replace(waku, timestamp_ns=waku.timestamp_ns + SECOND_NS) for waku in rng.sample(first, 10)]
    first += [team.wrapped(b"\xff\xfe garbage"), team.wrapped(b"")]
    # Somebody says something else under the id of a message that is there.
    victim = team.sent[1][0]
    first.append(team.wrapped(WAKU_SDS.encode(structs.replace(victim, content=b"something else", sender_id="mallory"))))
    end_ns = max(waku.timestamp_ns for waku in first)
    later = [of_id[name] for name in sorted(withheld)] + rng.sample([waku for _, waku in team.sent], 5)
    later = [structs.replace(waku, timestamp_ns=end_ns + (1 + n) * SECOND_NS) for n, waku in enumerate(later)]
    for number in range(5):
        team.message("bob", b"later %d" % number)
        later.append(structs.replace(team.sent[-1][1], timestamp_ns=end_ns + (20 + number) * SECOND_NS))
    # These reach the stores after the stream has read past their time.
    for number in range(5):
        team.message("carol", b"late %d" % number)
        later.append(structs.replace(team.sent[-1][1], timestamp_ns=end_ns - (1 + number) * SECOND_NS))
    return SimpleNamespace(
        first={"a": rng.sample(first, len(first) * 3 // 4), "b": first, "empty": []},
        later={"a": later, "b": rng.sample(later, 6), "empty": []},
        sources=[f"{name}=sqlite:{folder / name}.db" for name in STORES],
        recovered=files[0],
    )


def append(folder, stores):
    for name, messages in stores.items():
        with NwakuArchive(folder / f"{name}.db") as archive:
            for message in messages:
                archive.append(SHARD, message)


@pytest.fixture(scope="module")
def streamed(spark, log, tmp_path_factory):
    """Follow the stores live, be broken off, let them get more, go on, and run the batch over everything."""
    folder = tmp_path_factory.mktemp("stores")
    made = archives(folder, log)
    told: list[StreamProgress] = []
    out, batch = folder / "live", folder / "batch"
    append(folder, made.first)

    # Live, until everything is there; then asked to end, and broken off before the tables.
    stop = threading.Event()
    rows = sum(map(len, made.first.values()))

    def until_the_tables(progress):
        told.append(progress)
        if progress.recorded == rows:
            stop.set()
        if progress.phase is Phase.REFRESHING:
            raise BrokenOffError

    live = replace(OPTIONS, once=False, every_s=0.1)
    with pytest.raises(BrokenOffError):
        stream(made.sources, out, options=live, keys=KEYS, spark=spark, progress=until_the_tables, stop=stop)
    begun = deliveries(out)
    uncommitted = [forget_the_last_commit(out, name) for name in ("deliver", "record")]
    append(folder, made.later)
    ended = stream(reversed(made.sources), out, options=OPTIONS, keys=KEYS, spark=spark, progress=told.append)
    run(made.sources, batch, keys=KEYS, spark=spark)
    return SimpleNamespace(
        made=made, out=out, batch=batch, begun=begun, ended=ended, told=told, uncommitted=uncommitted
    )


def forget_the_last_commit(out, name):
    """Make it as if the process had died after its last micro-batch was in its place, before Spark noted that."""
    commits = out / "stream" / "checkpoints" / name / "commits"
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()
    commits.joinpath(f".{last.name}.crc").unlink(missing_ok=True)
    return name


class BrokenOffError(Exception):
    """Ends a stream at a place that a test chose."""


def rows_of(tables, name):
    return sorted(map(repr, tables.all(name)))


def deliveries(out):
    """Return what was delivered, as anybody reads the table."""
    return (
        DeltaTable(out / "stream" / "emitted")
        .to_pyarrow_dataset()
        .to_table(filter=ds.field("what") == "delivered")
        .to_pylist()
    )


@pytest.mark.full
@pytest.mark.parametrize("name", [table.name for table in TABLES])
def test_each_table_is_that_of_a_run_over_the_same_messages(streamed, name):
    assert rows_of(RunTables(streamed.out), name) == rows_of(RunTables(streamed.batch), name)


@pytest.mark.full
def test_every_row_is_accounted_for(streamed):
    assert streamed.ended.balance.adds_up
    assert streamed.ended.balance == RunTables(streamed.batch).balance
    assert streamed.ended.recorded == streamed.ended.balance.rows_in


@pytest.mark.full
def test_each_message_is_delivered_once_and_none_is_left_out(streamed):
    followed = deliveries(streamed.out)
    carriers = Counter((row["channel_id"], name) for row in followed for name in row["sds_ids"])
    assert max(carriers.values()) == 1
    table = RunTables(streamed.out).all("delivered")
    assert {(row["channel_id"], name) for row in table for name in row["sds_ids"]} >= carriers.keys()
    assert all(any((row["channel_id"], name) in carriers for name in row["sds_ids"]) for row in table)
    assert len(followed) == len(table) == streamed.ended.delivered


@pytest.mark.full
def test_what_was_delivered_is_what_the_table_has(streamed):
    def seen(row):
        return (row["channel_id"], row["message_id"], row["payload"], row["size_bytes"], row["segments"])

    followed, table = Counter(map(seen, deliveries(streamed.out))), RunTables(streamed.out).all("delivered")
    differing = followed - Counter(map(seen, table))
    # Of two messages with one id, the first that came was delivered, and the older one stands in the table.
    assert {row[2] for row in differing} <= {b"something else", b"bob says 0"}
    assert sum(differing.values()) <= 1


@pytest.mark.full
def test_the_cores_delivered_and_not_the_tables(streamed):
    assert streamed.ended.settled == 0
    assert all(row["batch"] >= 0 for row in deliveries(streamed.out))


@pytest.mark.full
def test_late_segments_change_the_row_and_deliver_nothing(streamed):
    names = {one.message_id for one in streamed.made.recovered}
    (row,) = [row for row in RunTables(streamed.out).all("delivered") if names & set(row["sds_ids"])]
    assert not row["recovered"]
    (before,) = [row for row in streamed.begun if names & set(row["sds_ids"])]
    assert before["recovered"]
    assert before["payload"] == row["payload"]


@pytest.mark.full
def test_progress_tells_batches_rows_and_what_is_behind(streamed):
    phases = [told.phase for told in streamed.told]
    assert phases.count(Phase.RECORDED) >= 2
    assert phases.count(Phase.DELIVERED) >= 3
    assert phases.count(Phase.REFRESHED) == 1
    recorded = [told for told in streamed.told if told.phase is Phase.RECORDED]
    # The repeated one is told twice, the second time with the late messages of its time, which it does not record.
    assert sum({told.batch: told.rows for told in reversed(recorded)}.values()) == streamed.ended.recorded
    assert recorded[-1].behind_s == 0
    assert streamed.told[-1].delivered == streamed.ended.delivered
    assert json.loads(json.dumps(streamed.told[0].as_json()))["phase"] == "recorded"


@pytest.mark.full
def test_a_micro_batch_that_is_repeated_after_a_crash_changes_nothing(streamed):
    assert streamed.uncommitted == ["deliver", "record"]
    later = deliveries(streamed.out)
    assert len(streamed.begun) < len(later)
    assert [row for row in streamed.begun if row not in later] == []


@pytest.mark.full
def test_report_export_and_restore_read_the_folder(streamed, tmp_path):
    tables = RunTables(streamed.out)
    assert report_of(tables).archive == "a, b, empty"
    assert export(tables, tmp_path / "out", channel_id="team").messages > 0
    done = restore(tables, tmp_path / "carol.db", channel_id="team", sender_id="carol")
    assert done.delivered > 0


@pytest.mark.full
def test_no_key_is_in_any_file(streamed):
    texts = (KEY, KEY.hex().encode(), KEY.hex().upper().encode())
    files = [file for file in (streamed.out / "stream").rglob("*") if file.is_file()]
    assert files
    assert [file for file in files if any(text in file.read_bytes() for text in texts)] == []


@pytest.mark.full
def test_another_stream_is_refused_and_says_what_to_do(streamed):
    before = (streamed.out / "run.json").read_bytes()
    other_options = replace(OPTIONS, tables=RunOptions(parity_rate=0.25))
    for sources, options, keys, what in (
        (streamed.made.sources[:1], OPTIONS, KEYS, "sources"),
        (streamed.made.sources, other_options, KEYS, "options"),
        (streamed.made.sources, OPTIONS, None, "keys"),
    ):
        with pytest.raises(ConfigurationError, match=rf"another stream: .*{what}.* choose another folder"):
            stream(sources, streamed.out, options=options, keys=keys)
    with pytest.raises(ConfigurationError, match="holds a stream"):
        run(streamed.made.sources, streamed.out)
    assert (streamed.out / "run.json").read_bytes() == before


def test_of_the_options_of_another_stream_those_are_named_that_differ(tmp_path):
    sources = parse_sources(["a=sqlite:a.db"])
    StreamFolder.open_for(tmp_path / "live", sources, StreamOptions(), None).close()
    other = StreamOptions(tables=RunOptions(rate_limit=5))
    told = r'begun with the options \{"rate_limit": null\}, and now they are \{"rate_limit": 5\}\.'
    with pytest.raises(ConfigurationError, match=told):
        StreamFolder.open_for(tmp_path / "live", sources, other, None)


@pytest.mark.full
def test_the_folder_of_a_run_or_of_somebody_is_refused(streamed, tmp_path):
    with pytest.raises(ConfigurationError, match="the tables of a run"):
        stream(streamed.made.sources, streamed.batch)
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"something else \(thesis.txt\)"):
        stream(streamed.made.sources, tmp_path)


def test_what_cannot_be_followed_is_refused(tmp_path):
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as no_node:
        threading.Thread(target=no_node.handle_request, daemon=True).start()
        for sources, kind, what in (
            (["lip76:folder"], ConfigurationError, "has no file"),
            ([f"sqlite:{tmp_path / 'none.db'}"], ConfigurationError, "none.db"),
            ([f"http://127.0.0.1:{no_node.server_port}"], StoreQueryError, "the node answers 404"),
            ([], ConfigurationError, "there is no source, and one is needed"),
        ):
            with pytest.raises(kind, match=what):
                stream(sources, tmp_path / "out")
    assert not Path(tmp_path / "out").exists()


@pytest.mark.full
def test_a_folder_of_files_that_hold_something_else_is_refused(spark, tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    rows = {"message_hash": [b"h"], "content_topic": ["/a/1/b/proto"], "payload": [b"x"], "timestamp_ns": [1.5]}
    pq.write_table(pa.table(rows), folder / "rows.parquet")
    with pytest.raises(ConfigurationError, match="its column timestamp_ns is double"):
        stream([f"a=parquet:{folder}"], tmp_path / "other", spark=spark)
    pq.write_table(pa.table(rows | {"timestamp_ns": [1]}), folder / "rows.parquet")
    with pytest.raises(ConfigurationError, match="does not say which store it is of"):
        stream([f"parquet:{folder}"], tmp_path / "out", spark=spark)


def test_options_that_cannot_be_are_refused():
    for wrong in ({"rows_per_batch": 0}, {"every_s": -1}):
        with pytest.raises(ConfigurationError):
            StreamOptions(**wrong)
    for other in ({"epoch_ms": 0}, {"rate_limit": 0}, {"max_channel_bytes": 0}):
        with pytest.raises(ConfigurationError, match=next(iter(other))):
            RunOptions(**other)


@pytest.mark.full
def test_what_no_core_delivered_is_delivered_from_the_tables_once(spark, tmp_path):
    folder = StreamFolder.open_for(tmp_path / "live", parse_sources(["sqlite:store.db"]), OPTIONS, None)
    schema = table_named("delivered").schema
    named = (("x", ["1", "2"]), ("y", ["3"]))
    rows = [("team", "alice", name, 1, ids, None, 1, 2, False, 3, b"abc") for name, ids in named]
    table = spark.createDataFrame(rows, schema)
    # Of the first, the core knew one segment fewer.
    said = spark.createDataFrame([("delivered", *rows[0][:4], ["2"], *rows[0][5:])], EMITTED)
    folder.emitted.append(said, 0)
    with session_or_own(spark, settings=WRITTEN_TIMES) as own:
        assert (settle(own, folder, table), settle(own, folder, table)) == (1, 0)
    assert Counter(name for row in deliveries(folder.path) for name in row["sds_ids"]) == {"2": 1, "3": 1}
    assert StreamFigures(folder).delivered == 2
    late = spark.createDataFrame(
        [("delivered", *rows[1]), ("delivered", "other", *rows[1][1:]), ("missing", *rows[1])], EMITTED
    )
    left = [(row.what, row.channel_id) for row in settled_before(folder)(late).collect()]
    assert sorted(left) == [("delivered", "other"), ("missing", "team")]
    folder.close()


def attempt(words, out, rng):
    """Start the command and kill it after a line of progress; return its exit code, or None if it was killed.

    With ``rng`` None it is left alone. Half of the kills are of the driver alone, half of its Java process as well.
    """
    command = ["pipeline", "stream", *words, "--out", str(out), "--once", "--rows", "90", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fairway", *command], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    bound = threading.Timer(LAST_S, os.killpg, (process.pid, signal.SIGKILL))
    bound.start()
    killed = False
    try:
        after = LINES + 1 if rng is None else rng.randint(0, LINES)
        told = 0
        if rng is not None and not after:
            time.sleep(rng.uniform(0, 5))
            killed = True
        while not killed:
            line = process.stdout.readline()
            if not line:
                break
            told += json.loads(line)["event"] == "progress"
            if rng is not None and told == after:
                time.sleep(rng.uniform(0, 1))
                killed = True
        if killed:
            if rng.random() < 0.5:
                os.kill(process.pid, signal.SIGKILL)
            else:
                os.killpg(process.pid, signal.SIGKILL)
        code = process.wait(LAST_S)
    finally:
        bound.cancel()
        process.stdout.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None if code == -signal.SIGKILL else code


@contextlib.contextmanager
def without_some(path, rng):
    """Remove a third of an archive's messages within the block."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        rows = database.execute("SELECT * FROM Message ORDER BY messageHash").fetchall()
        rows = rng.sample(rows, len(rows) // 3)
        database.executemany("DELETE FROM Message WHERE messageHash = ?", [row[:1] for row in rows])
        yield
        database.executemany("INSERT INTO Message VALUES (?, ?, ?, ?, ?, ?, ?)", rows)


@pytest.mark.full
def test_killed_anywhere_it_goes_on_with_late_messages_too_and_ends_in_the_same_tables(streamed, tmp_path, rng):
    (tmp_path / "keys.json").write_text(json.dumps(KEY_FILE))
    words = [word for name in STORES for word in ("--source", f"{name}=sqlite:{tmp_path / name}.db")]
    words += ["--keys", str(tmp_path / "keys.json")]
    out = tmp_path / "live"
    with contextlib.ExitStack() as late:
        for name in STORES:
            shutil.copy(streamed.out.parent / f"{name}.db", tmp_path)
            late.enter_context(without_some(tmp_path / f"{name}.db", rng))
        assert attempt(words, out, None) == 0
    for _ in range(KILLS):
        assert attempt(words, out, rng) in {None, 0}
    assert attempt(words, out, None) == 0
    for table in TABLES:
        made, expected = (rows_of(RunTables(place), table.name) for place in (out, streamed.batch))
        assert made == expected, table.name
    delivered = Counter((row["channel_id"], name) for row in deliveries(out) for name in row["sds_ids"])
    assert set(delivered.values()) == {1}
    assert len(deliveries(out)) == len(RunTables(out).all("delivered"))
