"""``fairway pipeline backfill``: what one archive has and another lacks is in both afterwards, each message once."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from fairway.archives.backfill import BackfillOptions, backfill
from fairway.archives.backfill.backfilling import EvenPace
from fairway.archives.backfill.hash_set import HashSet
from fairway.archives.backfill.node_target import NodeTarget
from fairway.archives.backfill.target import Offered
from fairway.cli import app
from fairway.errors import ConfigurationError, NetworkError, NodeUnavailableError, StorageError
from fairway.nodes.local import NetworkFaults, process_network
from fairway.nodes.node import RoutedMessage
from fairway.pipeline.sources.places import scan_of
from fairway.pipeline.sources.waku_messages import ARROW_SCHEMA, Selection
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash
from iso_times import iso
from lip76_writing import write_lip76
from patience import PATIENCE_S
from postgres_server import running_postgres

TOPICS = ("/app/1/a/proto", "/app/1/b/proto")
START_NS = time.time_ns() - 3_600 * 10**9
SECOND = 10**9
CLUSTER_16 = "/waku/2/rs/16/0"


def message(number, **others):
    given = {"payload": b"message %d" % number, "timestamp_ns": START_NS + number * SECOND, "meta": b"m%d" % number}
    return WakuMessage(content_topic=TOPICS[number % 2], **{**given, **others})


def shard(number):
    return autoshard(TOPICS[number % 2], 1, 8)


def fill_cluster_16(path, numbers):
    with NwakuArchive(path) as archive:
        for number in numbers:
            archive.append(CLUSTER_16, message(number))
    return f"sqlite:{path}"


def hash_of(number):
    return message_hash(shard(number), message(number))


def fill(path, numbers):
    """Put messages into a SQLite archive and return its URI."""
    with NwakuArchive(path) as archive:
        for number in numbers:
            archive.append(shard(number), message(number))
    return f"sqlite:{path}"


def rows(uri):
    """Return the rows of an archive, without the name of the store, in order."""
    scan = scan_of(uri, Selection())
    found = [row for part in scan.plan(3) for batch in scan.read(part) for row in batch.to_pylist()]
    return sorted(
        ({**row, "source": None} for row in found), key=lambda row: (row["timestamp_ns"], row["message_hash"])
    )


def hashes(uri):
    return [row["message_hash"] for row in rows(uri)]


def parquet_of(path, source, copies=1):
    """Write the messages of an archive as Parquet, in an order that tells nothing, and return the URI."""
    path.mkdir()
    table = [{**row, "source": "elsewhere"} for row in rows(source)] * copies
    pq.write_table(
        pa.Table.from_pylist(random.Random(1).sample(table, len(table)), schema=ARROW_SCHEMA), path / "1.parquet"
    )
    return f"parquet:{path}"


def lip76_of(path, source):
    with NwakuArchive(source.removeprefix("sqlite:"), read_only=True) as archive:
        write_lip76(path, archive.read())
    return f"lip76:{path}"


def call(*words):
    return CliRunner().invoke(app, ["pipeline", "backfill", *words])


@contextmanager
def process(*words):
    """Start a command of fairway that prints JSON; it is dead in the end."""
    started = subprocess.Popen(
        [sys.executable, "-c", "from fairway.cli import main; main()", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.wait(PATIENCE_S)
        started.stdin.close()
        started.stdout.close()


@contextmanager
def service_node(tmp_path, *words):
    """A node with relay, light push and store; give its REST address and its multiaddr."""
    words = ("node", "--json", "--state", tmp_path / "state", *words)
    with process(*words) as started:
        told = json.loads(started.stdout.readline())
        yield told["rest"], told["multiaddrs"][0]


def wait_until(condition):
    ends_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends_s, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("kind", ["sqlite", "parquet", "lip76"])
@pytest.mark.parametrize("into", ["sqlite", "parquet"])
def test_files_of_each_kind_get_what_they_lack_as_it_was(tmp_path, kind, into):
    whole = fill(tmp_path / "a.db", range(250))
    source = {"sqlite": lambda: whole, "parquet": lambda: parquet_of(tmp_path / "p", whole, copies=2)}.get(
        kind, lambda: lip76_of(tmp_path / "l", whole)
    )()
    had = fill(tmp_path / "b.db", range(0, 300, 3))
    target = had if into == "sqlite" else parquet_of(tmp_path / "t", had)
    done = backfill(source, target)
    assert (done.there, done.lacking, done.written, done.is_complete) == (84, 166, 166, True)
    assert done.repeated == (250 if kind == "parquet" else 0)
    assert rows(target) == rows(fill(tmp_path / "both.db", [*range(250), *range(252, 300, 3)]))
    again = backfill(source, target)
    assert (again.there, again.lacking, again.written) == (250, 0, 0)


@pytest.mark.parametrize("target", ["sqlite:new.db", "new.db", "b=sqlite:new.db", "parquet:new", "b=parquet:new"])
def test_a_target_that_is_not_there_is_made(tmp_path, monkeypatch, target):
    monkeypatch.chdir(tmp_path)
    fill("a.db", range(20))
    assert backfill("a=a.db", target).written == 20
    assert hashes("parquet:new" if "parquet" in target else "sqlite:new.db") == [
        hash_of(number) for number in range(20)
    ]


def test_a_dry_run_counts_and_leaves_everything_as_it_is(tmp_path):
    source, target = fill(tmp_path / "a.db", range(20)), fill(tmp_path / "b.db", range(5))
    for to in (target, f"sqlite:{tmp_path / 'new.db'}", f"parquet:{tmp_path / 'new'}"):
        told = json.loads(call("--from", source, "--to", to, "--dry-run", "--json").stdout)
        lacking = 15 if to == target else 20
        assert (told["lacking"], told["written"], told["dry_run"], told["complete"]) == (lacking, 0, True, True)
        assert told["lacking_bytes"] == sum(len(b"message %d" % number) for number in range(20 - lacking, 20))
    assert hashes(target) == [hash_of(number) for number in range(5)]
    assert not (tmp_path / "new.db").exists()
    assert not (tmp_path / "new").exists()


def test_times_and_topics_select(tmp_path):
    source = fill(tmp_path / "a.db", range(20))
    words = ["--since", iso(START_NS + 5 * SECOND), "--until", iso(START_NS + 11 * SECOND), "--topic", TOPICS[1]]
    result = call("--from", source, "--to", f"sqlite:{tmp_path / 'b.db'}", *words)
    assert result.exit_code == 0, result.output
    assert hashes(f"sqlite:{tmp_path / 'b.db'}") == [hash_of(number) for number in (5, 7, 9, 11)]


@pytest.mark.parametrize(("option", "value"), [("--topic", "/no/1/such/proto"), ("--channel", "no-such-channel")])
def test_what_is_selected_by_nothing_is_said(tmp_path, option, value):
    source, target = fill(tmp_path / "a.db", range(3)), f"sqlite:{tmp_path / 'b.db'}"
    told = call("--from", source, "--to", target, option, value).output
    assert re.search(rf"nothing was read: .*{option}.* select nothing", " ".join(told.split())), told


def test_limits_of_size_leave_out_and_the_same_command_goes_on(tmp_path):
    source, target = fill(tmp_path / "a.db", range(20)), f"sqlite:{tmp_path / 'b.db'}"
    with NwakuArchive(tmp_path / "a.db") as archive:
        archive.append(shard(7), message(7, payload=bytes(2_000)))
    words = ["--from", source, "--to", target, "--max-bytes", "50", "--max-message-bytes", "1000"]
    codes, sizes = [], []
    for _ in range(6):
        result = call(*words, "--json")
        codes.append(result.exit_code)
        sizes.append(json.loads(result.stdout)["written"])
    assert sizes == [5, 5, 5, 5, 0, 0]
    assert codes == [1] * 6  # the large message is left out each time
    assert json.loads(result.stdout)["too_large"] == 1
    assert backfill(source, target).written == 1


def test_rows_that_are_no_messages_do_not_get_into_the_target(tmp_path):
    """Under a wrong hash a row would keep the right message away."""
    good = rows(fill(tmp_path / "a.db", range(5)))
    odd = [
        {**good[0], "message_hash": hash_of(9)},
        {**good[1], "message_hash": b"short"},
        {**good[2], "payload": b"another"},
        {**good[3], "content_topic": "", "pubsub_topic": ""},
    ]
    (tmp_path / "p").mkdir()
    table = [{**row, "source": "a"} for row in [*odd, good[4]]]
    pq.write_table(pa.Table.from_pylist(table, schema=ARROW_SCHEMA), tmp_path / "p" / "1.parquet")
    target = f"sqlite:{tmp_path / 'b.db'}"
    done = backfill(f"parquet:{tmp_path / 'p'}", target)
    assert (done.invalid, done.written, done.is_complete) == (4, 1, True)
    assert hashes(target) == [hash_of(4)]


def test_a_message_without_a_timestamp_keeps_its_hash_and_the_time_of_its_arrival(tmp_path):
    undated = message(1, timestamp_ns=None)
    with NwakuArchive(tmp_path / "a.db") as archive:
        archive.append(shard(1), undated, received_ns=START_NS)
    for target in (f"sqlite:{tmp_path / 'b.db'}", f"parquet:{tmp_path / 'p'}"):
        assert backfill(f"sqlite:{tmp_path / 'a.db'}", target).written == 1
        assert rows(target) == rows(f"sqlite:{tmp_path / 'a.db'}")
        assert rows(target)[0]["message_hash"] == message_hash(shard(1), undated)


def test_a_table_without_shards_is_read_all_the_same(tmp_path):
    table = pa.Table.from_pylist([{**row, "source": "a"} for row in rows(fill(tmp_path / "a.db", range(5)))])
    (tmp_path / "p").mkdir()
    pq.write_table(table.drop_columns(["pubsub_topic"]), tmp_path / "p" / "1.parquet")
    assert backfill(f"parquet:{tmp_path / 'p'}", f"sqlite:{tmp_path / 'b.db'}").written == 5
    assert rows(f"sqlite:{tmp_path / 'b.db'}") == rows(f"sqlite:{tmp_path / 'a.db'}")


class StoppedError(Exception):
    """What ends a backfill in its midst."""


@pytest.mark.parametrize("kind", ["sqlite", "parquet"])
def test_a_backfill_that_ended_in_its_midst_goes_on(tmp_path, kind):
    source = fill(tmp_path / "a.db", range(3_000))
    target = f"{kind}:{tmp_path / 'b'}"

    def stop(progress):
        if progress.sent >= 2_000:
            raise StoppedError

    with pytest.raises(StoppedError):
        backfill(source, target, progress=stop)
    if kind == "parquet":
        (tmp_path / "b" / ".backfill-0.parquet.new").write_bytes(b"what a killed process leaves")
    done = backfill(source, target)
    assert done.there + done.written == 3_000
    assert hashes(target) == hashes(source)
    assert not list(tmp_path.glob("b/.*"))


@pytest.fixture(params=["s3", pytest.param("hdfs", marks=pytest.mark.full)])
def elsewhere(request):
    """A folder that is not on this machine, as a source and as a target."""
    if request.param == "s3":
        return f"parquet:{request.getfixturevalue('bucket').uri('stores/b')}"
    return f"parquet:{request.getfixturevalue('hdfs')}/stores/b"


def test_a_folder_in_a_bucket_or_in_hdfs_gets_what_it_lacks_also_after_an_end_in_its_midst(tmp_path, elsewhere):
    source = fill(tmp_path / "a.db", range(120))

    def stop(progress):
        if progress.sent >= 60:
            raise StoppedError

    assert backfill(source, elsewhere, options=BackfillOptions(dry_run=True)).lacking == 120
    with pytest.raises(ConfigurationError):  # a dry run makes nothing
        hashes(elsewhere)
    with pytest.raises(StoppedError):
        backfill(source, elsewhere, progress=stop)
    done = backfill(source, elsewhere)
    assert done.there + done.written == 120
    assert hashes(elsewhere) == hashes(source)
    fill(tmp_path / "a.db", range(120, 130))
    assert backfill(source, elsewhere).written == 10
    assert backfill(elsewhere, f"sqlite:{tmp_path / 'back.db'}").written == 130
    assert "not-a-secret" not in repr(done)


def test_a_folder_that_cannot_be_locked_is_told_in_a_sentence(tmp_path):
    (tmp_path / "copy" / "_backfill.lock").mkdir(parents=True)  # a file there cannot be written
    with pytest.raises(StorageError, match=r"copy cannot be written .* run the same command to continue"):
        backfill(fill(tmp_path / "a.db", range(3)), f"parquet:{tmp_path / 'copy'}")


def test_a_folder_of_another_shape_or_in_use_is_refused(tmp_path):
    source = fill(tmp_path / "a.db", range(3))
    (tmp_path / "run").mkdir()
    table = pa.Table.from_pylist([{**row, "sources": ["a"], "copies": 1} for row in rows(source)])
    pq.write_table(table, tmp_path / "run" / "1.parquet")
    for to, why in {
        f"parquet:{tmp_path / 'run'}": "is a table that something else makes, for it has columns sources, copies",
        f"parquet:{tmp_path / 'run' / '1.parquet'}": "is no folder",
        "parquet:ftp://bucket/run": "the scheme 'ftp' is not supported",
        f"lip76:{tmp_path}": "sealed",
        "kafka:topic": "nothing that can be written to; examples are sqlite:",
        source: "is both source and target",
        "": "the target is empty",
    }.items():
        with pytest.raises(ConfigurationError, match=why):
            backfill(source, to)
    with pytest.raises(ConfigurationError, match="names no archive"):
        backfill("kafka:topic", f"sqlite:{tmp_path / 'b.db'}")

    def meanwhile(progress):
        if not progress.sent:
            return
        with pytest.raises(StorageError, match="another backfill writes into it"):
            backfill(source, target)
        raise StoppedError

    target = f"parquet:{tmp_path / 'b'}"
    with pytest.raises(StoppedError):
        backfill(source, target, progress=meanwhile)


@pytest.mark.full
def test_a_node_gets_each_message_once_over_a_kill(tmp_path):
    source = fill_cluster_16(tmp_path / "a.db", range(60))
    kept = tmp_path / "kept.db"
    fill_cluster_16(kept, range(0, 60, 10))
    archive = ("--archive", f"sqlite:{kept}", "--keep", "36500d")
    with service_node(tmp_path, "--cluster", 16, "--shards", 1, *archive) as (_, address):
        words = ("pipeline", "backfill", "--from", source, "--to", address, "--json")
        with process(*words, "--rate-limit", 20, "--epoch-ms", 1_000) as slow, NwakuArchive(kept) as look:
            wait_until(lambda: look.count() >= 10)
            slow.send_signal(signal.SIGKILL)
            slow.wait(PATIENCE_S)
            assert look.count() < 60
        with process(*words) as rest:
            told = json.loads(rest.stdout.read())
            assert rest.wait(PATIENCE_S) == 0
    assert told["complete"]
    assert told["written"] == told["lacking"] > 0
    assert rows(f"sqlite:{kept}") == rows(source)


@pytest.mark.parametrize("by", ["rest", "light push"])
def test_a_service_node_gets_what_it_lacks_by_its_api_and_by_light_push(tmp_path, by):
    source = fill_cluster_16(tmp_path / "a.db", range(30))
    with NwakuArchive(tmp_path / "a.db") as archive:
        archive.append(CLUSTER_16, message(30, payload=bytes(200_000)))
    with service_node(tmp_path, "--cluster", 16, "--shards", 1) as (rest, multiaddr):
        done = backfill(source, rest if by == "rest" else multiaddr)
        assert (done.written, done.there, done.is_complete) == (30, 0, False)
        ((reason, count),) = done.refused.items()
        assert count == 1
        assert "at most 153600" in reason
        if by == "rest":
            assert backfill(rest, f"sqlite:{tmp_path / 'back.db'}").written == 30
            assert rows(f"sqlite:{tmp_path / 'back.db'}") == rows(source)[:30]
        assert backfill(source, rest).there == 30


def offered(number, **others):
    made = message(number, **others)
    return Offered(message=RoutedMessage.of(CLUSTER_16, made), timestamp_ns=made.timestamp_ns)


@pytest.mark.full
def test_a_node_that_refuses_everything_ends_the_backfill_and_says_what_else_can_be_done(tmp_path):
    def target(address):
        return NodeTarget(address, kept_s=0, pause=lambda _: None)

    with service_node(tmp_path, "--cluster", 16, "--shards", 1) as (rest, _), target(rest) as node:
        many = [offered(number, payload=bytes(200_000)) for number in range(25)]
        with pytest.raises(NetworkError, match=r"refuses all messages, 20 so far: .* write into the archive of"):
            node.write(many)
    with service_node(tmp_path, "--cluster", 1) as (rest, _), target(rest) as node:
        old = message(0)
        routed = RoutedMessage.of(shard(0), old)
        with pytest.raises(NetworkError, match=r"takes no messages: .*timestamp is .* write into the archive of"):
            node.write([Offered(message=routed, timestamp_ns=START_NS)])


def test_messages_on_a_shard_that_a_node_does_not_serve_are_left_out_at_once(tmp_path):
    def pause(seconds):
        raise AssertionError(f"the message is tried again after {seconds} s")

    elsewhere = RoutedMessage.of("/waku/2/rs/16/5", message(1))
    with (
        service_node(tmp_path, "--cluster", 16, "--shards", 1) as addresses,
        NodeTarget(addresses[0], kept_s=0, pause=pause) as node,
    ):
        node.write([Offered(message=elsewhere, timestamp_ns=START_NS), offered(2)])
        settled = node.settle(last=True)
    ((reason, count),) = settled.refused.items()
    assert (settled.written, count) == (1, 1)
    assert "/waku/2/rs/16/5" in reason


def local_target(name, **faults):
    process_network(name).faults = NetworkFaults(**faults)
    return NodeTarget(f"local:{name}", kept_s=0)


def test_a_store_that_keeps_nothing_ends_the_backfill_after_some_messages():
    with (
        local_target("keeps nothing", store_loss=1.0) as target,
        pytest.raises(NetworkError, match="accepts messages, and its store keeps none of them"),
    ):
        target.write([offered(number) for number in range(30)])


def test_what_a_store_does_not_keep_is_counted():
    with local_target("keeps some", store_loss=0.2) as target:
        target.write([offered(number) for number in range(60)])
        settled = target.settle(last=True)
    ((reason, count),) = settled.refused.items()
    assert reason == "the node accepted it, and its store does not keep it"
    assert settled.written + count == 60
    assert 0 < count < 40


@pytest.mark.full
def test_a_node_that_is_not_there_is_named(tmp_path):
    with pytest.raises(NodeUnavailableError, match=r"127\.0\.0\.1"):
        backfill(fill(tmp_path / "a.db", range(3)), "/ip4/127.0.0.1/tcp/9")


@pytest.fixture(scope="module")
def postgres():
    with running_postgres() as server:
        yield server.uri


def test_nwakus_tables_in_postgresql_get_what_they_lack_and_give_it_back(tmp_path, postgres):
    source = fill(tmp_path / "a.db", range(250))
    assert backfill(fill(tmp_path / "some.db", range(0, 250, 10)), postgres).written == 25
    done = backfill(source, f"b={postgres}")
    assert (done.there, done.written, done.is_complete) == (25, 225, True)
    assert backfill(source, postgres, options=BackfillOptions(dry_run=True)).there == 250
    assert backfill(postgres, f"sqlite:{tmp_path / 'back.db'}").written == 250
    assert rows(f"sqlite:{tmp_path / 'back.db'}") == rows(source)


def test_a_repair_replaces_damaged_messages_in_postgresql_whatever_their_time(tmp_path, postgres):
    psycopg = pytest.importorskip("psycopg", reason="needs the extra 'postgresql'")
    source = fill(tmp_path / "a.db", range(250))
    backfill(source, postgres)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("UPDATE messages SET payload = '00' WHERE messagehash < '4'")
        connection.execute("UPDATE messages SET timestamp = timestamp + 1 WHERE messagehash > 'c'")
        moved = "UPDATE messages_lookup SET timestamp = timestamp + 1 WHERE messagehash > 'c'"
        connection.execute(moved)
    repaired = backfill(source, postgres, options=BackfillOptions(repair=True))
    assert repaired.damaged == repaired.written > 50
    assert backfill(source, postgres, options=BackfillOptions(repair=True)).damaged == 0
    backfill(postgres, f"sqlite:{tmp_path / 'repaired.db'}")
    assert rows(f"sqlite:{tmp_path / 'repaired.db'}") == rows(source)


def test_old_messages_need_a_since_for_which_partitions_are_made_in_postgresql(tmp_path, postgres):
    """Timestamps are the senders': each may make a partition, so only what is asked for makes one."""
    month_ns = 40 * 24 * 3_600 * SECOND
    old = message(1, timestamp_ns=START_NS - month_ns, payload=b"old")
    with NwakuArchive(tmp_path / "a.db") as archive:
        archive.append(shard(1), old)
    words = ["--from", f"sqlite:{tmp_path / 'a.db'}", "--to", postgres]
    refused = call(*words)
    assert refused.exit_code == 1
    assert "1 not taken: its tables have no room for messages older than 31 days" in refused.output
    taken = call(*words, "--since", iso(START_NS - 2 * month_ns), "--json")
    assert (taken.exit_code, json.loads(taken.stdout)["written"]) == (0, 1)


def test_a_node_reports_its_rate_to_the_backfill():
    with local_target("limited", messages_per_epoch=6_000) as target:
        assert target.quota is not None
        assert (target.quota.limit, target.quota.epoch_ms) == (6_000, 600_000)


def test_no_window_of_an_epoch_has_more_than_the_limit():
    now, sent = [100.0], []

    def sleep(seconds):
        now[0] += seconds

    pace = EvenPace(10.0 / 4, now_s=lambda: now[0], sleep=sleep)
    for number in range(40):
        pace.wait(1)
        sent.append(now[0])
        now[0] += 11.0 if number % 7 == 0 else 0.3  # the work takes time, too
    assert sent[0] >= 102.5  # an earlier process may have sent one just now
    for first in sent:
        assert sum(first <= other < first + 10.0 for other in sent) <= 4


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"rate_limit": 0}, "at least 1 message"),
        ({"epoch_ms": 0}, "at least 1 ms"),
        ({"max_bytes": 0}, "max_bytes is at least 1"),
        ({"max_message_bytes": -1}, "max_message_bytes is at least 1"),
    ],
)
def test_options_that_cannot_work_are_named(options, why):
    with pytest.raises(ConfigurationError, match=why):
        BackfillOptions(**options)


@given(st.lists(st.lists(st.integers(0, 200), max_size=30), max_size=12))
def test_a_set_of_hashes_has_what_was_added(batches):
    hashed = {number: number.to_bytes(2, "big") + bytes(28) + number.to_bytes(2, "big") for number in range(201)}
    there: set[int] = set()
    found = HashSet()
    for batch in batches:
        found.add(hashed[number] for number in batch)
        there |= set(batch)
        assert len(found) == len(there)
        assert found.found(list(hashed.values())) == {hashed[number] for number in there}


def test_help_has_an_example():
    told = call("--help")
    assert told.exit_code == 0
    assert "fairway pipeline backfill --from" in told.output
