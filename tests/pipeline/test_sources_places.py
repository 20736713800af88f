"""Archives by URI, planned and read without a JVM."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import random
import shutil
import socket
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import write_csv
from pyarrow.fs import FSSpecHandler, PyFileSystem

from fairway.errors import ConfigurationError, DecodeError, NodeUnavailableError, StoreRefusedError
from fairway.nodes.rest.store_messages import StoreAnswer, StoreEntry, store_request
from fairway.pipeline.location import Location
from fairway.pipeline.sources import parquet_scan
from fairway.pipeline.sources.files_scan import FilesScan
from fairway.pipeline.sources.parquet_scan import ParquetScan
from fairway.pipeline.sources.places import EXAMPLES, scan_of
from fairway.pipeline.sources.store_node import StoreNodeArchive
from fairway.pipeline.sources.waku_messages import Selection
from fairway.storage.archive import LARGEST_HASH, ArchiveCursor, ArchiveSlice, time_slice
from fairway.storage.nwaku_archive import NwakuArchive
from fairway.wire.sds import NIM_SDS, WAKU_SDS, SdsMessage
from fairway.wire.topics import autoshard
from fairway.wire.waku_message import WakuMessage, message_hash
from lip76_writing import PERIOD_NS, write_lip76
from rest_store import archived, rest_store

TOPICS = ("/app/1/0/proto", "/app/1/1/proto")
SHARD = autoshard(TOPICS[0], 1, 8)


def waku(number: int, *, payload: bytes | None = None, step: int = 1) -> WakuMessage:
    return WakuMessage(
        payload=b"%d" % number if payload is None else payload,
        content_topic=TOPICS[number % 2],
        timestamp_ns=1_000 + number * step,
    )


A_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def table_row(message: WakuMessage, **more: object) -> dict[str, object]:
    return {
        "message_hash": message_hash(SHARD, message),
        "pubsub_topic": SHARD,
        "content_topic": message.content_topic,
        "payload": message.payload,
        "version": 0,
        "timestamp_ns": message.timestamp_ns,
        **more,
    }


def timed(row: dict[str, object], time: datetime) -> dict[str, object]:
    """Return a row with a time in place of the exact number."""
    return {name: value for name, value in row.items() if name != "timestamp_ns"} | {"timestamp": time}


def write_parquet(folder, found: list[dict[str, object]]) -> None:
    """Two files, the first one in row groups of seven."""
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(found[:-5]), folder / "part-0.parquet", row_group_size=7)
    pq.write_table(pa.Table.from_pylist(found[-5:]), folder / "part-1.parquet")


def rows(uri: str, selection: Selection | None = None, *, label: str | None = None, partitions=None) -> list[dict]:
    scan = scan_of(uri, selection or Selection(), label)
    parts = pickle.loads(pickle.dumps(scan.plan(partitions)))
    scan = pickle.loads(pickle.dumps(scan))
    return [row for part in parts for batch in scan.read(part) for row in batch.to_pylist()]


def numbers(found: list[dict]) -> list[int]:
    return sorted(int(row["payload"]) for row in found)


@pytest.fixture(params=["sqlite", "lip76", "parquet", "http"])
def uri(request, tmp_path):
    """Forty messages, ten weeks, behind each kind of URI."""
    messages = [waku(number, step=PERIOD_NS // 4) for number in range(40)]
    if request.param == "sqlite":
        with NwakuArchive(tmp_path / "a.db") as archive:
            for message in messages:
                archive.append(SHARD, message)
        yield f"sqlite:{tmp_path}/a.db"
    elif request.param == "lip76":
        write_lip76(tmp_path / "a", (archived(message, SHARD) for message in messages), piece_bytes=300)
        yield f"lip76:{tmp_path}/a"
    elif request.param == "parquet":
        write_parquet(tmp_path / "a", [table_row(message) for message in messages])
        yield f"parquet:{tmp_path}/a"
    else:
        with rest_store(archived(message, SHARD) for message in messages) as store:
            yield store.uri


@pytest.mark.parametrize("partitions", [None, 1, 3, 100])
def test_every_message_is_read_once_whatever_the_partitions(uri, partitions):
    found = rows(uri, partitions=partitions)
    assert numbers(found) == list(range(40))
    row = next(row for row in found if row["payload"] == b"7")
    message = waku(7, step=PERIOD_NS // 4)
    source = uri.partition(":")[2] if not uri.startswith("http") else uri
    assert row == {
        "message_hash": message_hash(SHARD, message),
        "pubsub_topic": SHARD,
        "content_topic": TOPICS[1],
        "payload": b"7",
        "version": 0,
        "timestamp_ns": message.timestamp_ns,
        "meta": None,
        "rate_limit_proof": None,
        "source": source,
    }


def test_time_and_topics_select(uri):
    step = PERIOD_NS // 4
    chosen = Selection(start_ns=1_000 + 5 * step, end_ns=1_000 + 12 * step, content_topics=(TOPICS[0], "/x"))
    assert numbers(rows(uri, chosen)) == [6, 8, 10, 12]
    assert rows(uri, Selection(start_ns=9, end_ns=3)) == []


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [("/app/1/.*/proto", {0, 1}), ("/.*/0/proto", {0}), ("(?i)/APP/1/[1-9]/.+", {1}), ("0|1", ())],
)
def test_a_pattern_selects_the_topics_that_match_it_from_end_to_end(uri, pattern, topics):
    found = rows(uri, Selection(topics_pattern=pattern))
    assert numbers(found) == [number for number in range(40) if number % 2 in topics]


def test_the_topics_that_match_a_pattern_are_requested_from_a_database(tmp_path):
    odd = structs.replace(waku(3), content_topic="/app/1/\N{REPLACEMENT CHARACTER}/proto")
    with NwakuArchive(tmp_path / "a.db") as archive:
        for number in range(3):
            archive.append(SHARD, waku(number))
        for pattern, requested in ((".*/1/proto", TOPICS[1:]), ("1", None)):
            assert Selection(topics_pattern=pattern).topics_in(archive, time_slice()) == requested
        archive.append(SHARD, odd)
        # The archive compares bytes, and this sign may stand for any invalid ones.
        assert Selection(topics_pattern=".*").topics_in(archive, time_slice()) == ()
    assert len(rows(f"sqlite:{tmp_path / 'a.db'}", Selection(topics_pattern=".*"))) == 4


def test_a_place_in_the_order_selects(uri):
    message = waku(9, step=PERIOD_NS // 4)
    place = ArchiveCursor(message.timestamp_ns, message_hash(SHARD, message))
    assert numbers(rows(uri, Selection(after=place))) == list(range(10, 40))
    assert numbers(rows(uri, Selection(through=place))) == list(range(10))


def test_the_label_is_the_source(uri):
    assert {row["source"] for row in rows(uri, label="north")} == {"north"}


@pytest.mark.parametrize("codec", [WAKU_SDS, NIM_SDS])
def test_channels_are_looked_for_in_the_clear(tmp_path, codec):
    with NwakuArchive(tmp_path / "a.db") as archive:
        for number, channel in enumerate(["team", "teams", "other"]):
            message = SdsMessage(message_id=channel, sender_id="alice", channel_id=channel, content=b"x")
            archive.append(SHARD, waku(number, payload=codec.encode(message)))
        archive.append(SHARD, waku(9, payload=b"sealed"))
    found = rows(f"sqlite:{tmp_path}/a.db", Selection(channels=("team", "other")))
    assert sorted(codec.decode(row["payload"]).channel_id for row in found) == ["other", "team"]


@pytest.mark.parametrize(
    ("uri", "instead"),
    [
        ("s3a://bucket/table", "write parquet:s3a://bucket/table or json:s3a://bucket/table or csv:s3a://bucket/table"),
        (
            "hdfs://name:8020/table",
            "write parquet:hdfs://name:8020/table or json:hdfs://name:8020/table or csv:hdfs://name:8020/table",
        ),
        (
            "file:///data/one",
            "write "
            + " or ".join(f"{kind}:file:///data/one" for kind in ("sqlite", "lip76", "parquet", "json", "csv")),
        ),
    ],
)
def test_a_uri_that_names_a_place_alone_is_answered_with_the_kinds_of_archive_there(uri, instead):
    with pytest.raises(ConfigurationError, match=f"does not say what kind of archive is there: {instead}$"):
        scan_of(uri, Selection())


@pytest.mark.parametrize("uri", ["", "ftp://host/file", "kafka:topic"])
def test_a_uri_that_is_not_understood_shows_those_that_are(uri):
    with pytest.raises(ConfigurationError) as raised:
        scan_of(uri, Selection())
    assert all(example in str(raised.value) for example in EXAMPLES)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("parquet:", "names no file or folder"),
        ("sqlite:", "names no file"),
        ("lip76:", "lip76:DIR"),
        ("lip76:a?shard=3", "lip76:DIR"),
        ("lip76:a?shards=many", "whole numbers"),
        ("http://", "an example is"),
        ("http://a?pagesize=3", "no option pagesize; it has maxConcurrentRequests, pageSize, peerAddr"),
        ("http://a?pageSize=101", "pageSize is a whole number from 1 to 100, not '101'"),
        ("http://a?requestTimeoutMs=", "requestTimeoutMs is a whole number from 1 to 86,400,000, not ''"),
        ("http://a?maxConcurrentRequests=0", "maxConcurrentRequests is a whole number from 1"),
    ],
)
def test_a_uri_that_lacks_something_is_named(uri, why):
    with pytest.raises(ConfigurationError, match=why):
        scan_of(uri, Selection())


def test_a_path_alone_is_a_sqlite_archive(tmp_path):
    NwakuArchive(tmp_path / "a.db").close()
    assert rows(str(tmp_path / "a.db")) == []
    (tmp_path / "b.db").write_bytes(b"something else entirely" * 100)
    with pytest.raises(DecodeError):
        rows(str(tmp_path / "b.db"))


@pytest.mark.parametrize(
    "uri", ["postgresql://alice:s3cret@127.0.0.1:1/waku?sslmode=disable", "http://alice:s3cret@127.0.0.1:1"]
)
def test_credentials_become_neither_a_source_nor_text(uri):
    scan = scan_of(uri, Selection())
    assert "127.0.0.1:1" in scan.source
    assert "s3cret" not in scan.source + repr(scan)


@pytest.mark.parametrize(
    ("more", "label", "stores"),
    [
        ({}, None, {"PLACE"}),
        ({"source": "one"}, None, {"one"}),
        ({"source": "one"}, "mine", {"mine"}),
        ({"sources": ["one", "two"]}, None, {"one", "two"}),
        ({"sources": ["one", "two"]}, "mine", {"mine"}),
    ],
)
def test_a_table_tells_which_store_had_a_message(tmp_path, more, label, stores):
    write_parquet(tmp_path / "a", [table_row(waku(number), **more) for number in range(20)])
    found = rows(f"parquet:{tmp_path}/a", label=label)
    place = str(tmp_path / "a")
    assert {row["source"] for row in found} == {place if store == "PLACE" else store for store in stores}
    assert len(found) == 20 * len(stores)


def test_of_a_large_row_group_some_rows_are_held_at_once(tmp_path):
    count, payload_bytes = 1_024, 65_536
    rows = [table_row(waku(number, payload=random.Random(number).randbytes(payload_bytes))) for number in range(count)]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "large.parquet", use_dictionary=False, write_batch_size=16)
    scan = scan_of(f"parquet:{tmp_path}", Selection())
    (part,) = scan.plan()
    before = pa.total_allocated_bytes()
    found, most_bytes = 0, 0
    for batch in scan.read(part):
        found += batch.num_rows
        most_bytes = max(most_bytes, pa.total_allocated_bytes() - before)
    assert found == count
    assert most_bytes < count * payload_bytes


def test_folders_of_a_table_are_columns(tmp_path):
    for store in ("one", "two"):
        folder = tmp_path / "a" / f"source={store}"
        folder.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist([table_row(waku(1))]), folder / "part.parquet")
    assert sorted(row["source"] for row in rows(f"parquet:{tmp_path}/a")) == ["one", "two"]


def test_a_row_of_a_table_that_lacks_what_a_message_has_is_a_row_all_the_same(tmp_path):
    lacking = {"message_hash": None, "content_topic": None, "timestamp_ns": None, "pubsub_topic": None, "version": None}
    found = [table_row(waku(number)) for number in range(10)]
    write_parquet(tmp_path / "a", [*found[:2], found[2] | lacking, found[3] | lacking | {"payload": None}, *found[4:]])
    assert numbers([row for row in rows(f"parquet:{tmp_path}/a") if row["timestamp_ns"]]) == [0, 1, *range(4, 10)]
    odd = [row for row in rows(f"parquet:{tmp_path}/a") if not row["timestamp_ns"]]
    assert sorted((row["payload"] or b"", len(row["message_hash"])) for row in odd) == [(b"", 32), (b"2", 32)]
    assert {(row["content_topic"], row["pubsub_topic"], row["version"]) for row in odd} == {(None, None, 0)}


@pytest.mark.parametrize(
    ("column", "kind", "values", "expected"),
    [
        ("timestamp_ns", pa.uint64(), [7, 2**63], [7, 0]),
        ("timestamp_ns", pa.decimal128(20, 2), [Decimal("7.25"), Decimal(10) ** 17], [7, 10**17]),
        ("version", pa.int64(), [1, 2**31, None], [1, 0, 0]),
        ("content_topic", pa.int32(), [1, None], ["1", None]),
        ("payload", pa.large_binary(), [b"1", None], [b"1", None]),
    ],
)
def test_columns_of_other_types_are_read_as_far_as_their_values_fit(tmp_path, column, kind, values, expected):
    table = pa.Table.from_pylist([table_row(waku(number)) for number in range(len(values))])
    table = table.set_column(table.schema.names.index(column), column, pa.array(values, kind))
    pq.write_table(table, tmp_path / "a.parquet")
    assert [row[column] for row in rows(f"parquet:{tmp_path}/a.parquet")] == expected


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"payload": b"x"}, "no column content_topic, timestamp_ns"),
        (table_row(waku(1)) | {"payload": 7}, "payload is int64; expected bytes"),
        (table_row(waku(1)) | {"timestamp_ns": 1.5}, "timestamp_ns is double; expected timestamp, or integer nanosec"),
        (timed(table_row(waku(1)), True), "timestamp is bool; expected timestamp"),
    ],
)
def test_a_table_of_something_else_is_named(tmp_path, row, why):
    write_parquet(tmp_path / "a", [row] * 6)
    with pytest.raises(ConfigurationError, match=why):
        rows(f"parquet:{tmp_path}/a")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize(("name", "is_refused"), [("payload", True), ("note", False)])
def test_a_table_with_two_columns_of_a_name_is_refused_if_the_name_has_a_meaning(tmp_path, kind, name, is_refused):
    table = pa.table(
        {"content_topic": [TOPICS[0]], "payload": ["61"], "timestamp_ns": [1_001], "note": ["x"], "other": ["62"]}
    )
    table = table.rename_columns([*table.column_names[:-1], name])
    file = tmp_path / f"a.{kind}"
    write_csv(table, file) if kind == "csv" else pq.write_table(table, file)
    if is_refused:
        with pytest.raises(ConfigurationError, match=rf"a\.{kind}: has two columns payload; give a table with one"):
            rows(str(file))
    else:
        assert [row["payload"] for row in rows(str(file))] == [b"a"]


def write_files(folder, *found: dict[str, object]) -> None:
    """A file for each row."""
    folder.mkdir()
    for number, row in enumerate(found):
        pq.write_table(pa.Table.from_pylist([row]), folder / f"part-{number}.parquet")


def without(row: dict[str, Any], *columns: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in columns}


@pytest.mark.parametrize("odd_is_first", [True, False])
@pytest.mark.parametrize(
    "odd",
    [
        without(table_row(waku(1)), "meta", "version", "pubsub_topic"),
        without(table_row(waku(1)), "timestamp_ns") | {"timestamp": 1_001},
        table_row(waku(1)) | {"source": "named"},
    ],
    ids=["fewer", "timestamp-is-nanoseconds", "more"],
)
def test_each_file_of_a_folder_is_read_by_its_own_columns(tmp_path, odd, odd_is_first):
    usual = table_row(waku(2)) | {"meta": b"RELIABLE", "timestamp": datetime(2026, 1, 31, tzinfo=UTC)}
    write_files(tmp_path / "a", *([odd, usual] if odd_is_first else [usual, odd]))
    found = {row["payload"]: row for row in rows(f"parquet:{tmp_path}/a")}
    assert (found[b"1"]["timestamp_ns"], found[b"2"]["timestamp_ns"]) == (1_001, 1_002)
    assert (found[b"1"]["meta"], found[b"2"]["meta"]) == (odd.get("meta"), b"RELIABLE")
    assert found[b"2"]["pubsub_topic"] == SHARD
    assert (found[b"1"]["source"], found[b"2"]["source"]) == (odd.get("source", f"{tmp_path}/a"), f"{tmp_path}/a")
    within = Selection(start_ns=1_001, end_ns=1_001)
    assert [row["payload"] for row in rows(f"parquet:{tmp_path}/a", within)] == [b"1"]


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"a": 1}, "part-1.parquet.*no column content_topic"),
        (timed(table_row(waku(1)), 1.5), "part-1.parquet.*timestamp is double"),
    ],
)
def test_a_file_of_something_else_among_messages_is_named(tmp_path, odd, why):
    write_files(tmp_path / "a", table_row(waku(1)), odd)
    with pytest.raises(ConfigurationError, match=why):
        rows(f"parquet:{tmp_path}/a")


def test_a_folder_without_a_table_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="has no Parquet file; give a table"):
        rows(f"parquet:{tmp_path}")


def test_a_table_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read as Parquet: there is no such file"):
        rows(f"parquet:{tmp_path}/none")
    with pytest.raises(ConfigurationError, match=r"\*\.parquet: cannot be read as Parquet: there is no such file"):
        rows(f"parquet:{tmp_path}/*.parquet")


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    write_parquet(tmp_path / "table", [table_row(waku(number)) for number in range(10)])
    (tmp_path / "table" / "notes.txt").write_text("no table")
    with pytest.raises(ConfigurationError, match=r"/table/notes\.txt: cannot be read as Parquet: Parquet magic bytes"):
        rows(f"parquet:{tmp_path}/table")


def test_a_folder_is_no_archive_in_sqlite(tmp_path):
    with pytest.raises(ConfigurationError, match="is a folder; a SQLite archive is a file in it"):
        rows(f"sqlite:{tmp_path}")


class FakeClient:
    """A node that orders messages of one timestamp as it likes."""

    name = "http://fake"

    def __init__(self, messages: list[WakuMessage], *, undecodable: tuple[bytes, ...] = ()) -> None:
        self.messages, self.undecodable, self.queries = messages, undecodable, []

    def pages(self, query):
        self.queries.append(query)
        entries = tuple(
            StoreEntry(message_hash=message_hash(SHARD, message), pubsub_topic=SHARD, message=message)
            for message in self.messages
            if query.start_ns <= (message.timestamp_ns or 0) < query.end_ns
        )
        starts = range(0, len(entries), 4)
        for start in reversed(starts) if query.newest_first else starts:
            yield StoreAnswer(entries=entries[start : start + 4], undecodable=self.undecodable if not start else ())

    def close(self):
        """Nothing is open."""


def test_slices_of_a_node_end_at_the_present_and_hold_what_claims_to_be_later():
    messages = [waku(number) for number in range(100)] + [waku(200, step=10**15)]
    archive = StoreNodeArchive("", client=FakeClient(messages), now_ns=lambda: 1_099)
    slices = archive.slices(5)
    sizes = [sum(map(len, archive.pages(part))) for part in slices]
    assert sizes == [25, 25, 25, 25, 1]


def test_the_address_of_a_node_bounds_the_requests():
    client = FakeClient([waku(number) for number in range(100)])
    archive = StoreNodeArchive("http://fake?pageSize=3&maxConcurrentRequests=2", client=client, now_ns=lambda: 1_099)
    slices = archive.slices(50)
    assert [sum(map(len, archive.pages(part))) for part in slices] == [50, 50]
    assert {query.page_size for query in client.queries} <= {1, 3}


def test_the_longest_wait_for_an_answer_is_that_of_the_address():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}?requestTimeoutMs=20"
        with (
            StoreNodeArchive(address, sleep=lambda _: None) as archive,
            pytest.raises(NodeUnavailableError, match=r"0\.02 s"),
        ):
            list(archive.pages())


def test_messages_of_one_timestamp_are_read_once_whatever_the_order_of_the_node():
    messages = [waku(number, step=0) for number in range(20)]
    archive = StoreNodeArchive("", client=FakeClient(messages))
    places = sorted(ArchiveCursor(1_000, message_hash(SHARD, message)) for message in messages)
    first = ArchiveSlice(time_slice().after, places[8])
    rest = ArchiveSlice(places[8], ArchiveCursor(1_000, LARGEST_HASH))
    found = [sorted(row.cursor for page in archive.pages(part) for row in page) for part in (first, rest)]
    assert found == [places[:9], places[9:]]


class LimitedClient(FakeClient):
    """A node that refuses ranges with two bounds that are longer than it allows."""

    def __init__(self, messages: list[WakuMessage], longest_ns: int) -> None:
        super().__init__(messages)
        self.longest_ns = longest_ns
        self.refused = 0

    @property
    def longest_asked_ns(self):
        return max(query.end_ns - query.start_ns for query in self.queries if is_bounded(query))

    def pages(self, query):
        if is_bounded(query) and query.end_ns - query.start_ns > self.longest_ns:
            self.refused += 1
            raise StoreRefusedError("http://fake: the node answers 400: time range exceeds 24h")
        yield from super().pages(query)


def is_bounded(query):
    """Return whether the REST API is given both bounds of a query."""
    path = store_request(query)
    return "startTime=" in path and "endTime=" in path


DAY_NS = 86_400_000_000_000


@pytest.mark.parametrize("longest_ns", [DAY_NS, DAY_NS // 5])
@pytest.mark.parametrize("parts", [1, 7])
def test_a_node_that_refuses_long_ranges_is_read_whole(longest_ns, parts):
    messages = [waku(number, step=DAY_NS // 3) for number in range(90)] + [waku(20_000, step=DAY_NS)]
    client = LimitedClient(messages, longest_ns)
    archive = StoreNodeArchive("", client=client, now_ns=lambda: 40 * DAY_NS)
    slices = archive.slices(parts, time_slice(1))
    found = [row.timestamp_ns for part in slices for page in archive.pages(part) for row in page]
    assert found == [message.timestamp_ns for message in messages]
    assert len(slices) == parts
    assert client.longest_asked_ns <= DAY_NS
    assert len(client.queries) < 90 * DAY_NS / longest_ns
    assert client.refused <= (0 if longest_ns == DAY_NS else len(client.queries) / 4)


def test_years_without_messages_are_not_asked_for_day_by_day():
    messages = [waku(1, step=DAY_NS), waku(8_000, step=DAY_NS), waku(20_000, step=DAY_NS)]
    client = LimitedClient(messages, DAY_NS)
    archive = StoreNodeArchive("", client=client)
    assert [row.timestamp_ns for page in archive.pages() for row in page] == [each.timestamp_ns for each in messages]
    assert archive.last(time_slice()).timestamp_ns == messages[-1].timestamp_ns
    assert archive.nth(2, time_slice()).timestamp_ns == messages[1].timestamp_ns
    assert len(client.queries) < 25


def test_messages_without_a_time_do_not_keep_a_node_from_being_read():
    messages = [
        structs.replace(waku(1), timestamp_ns=None),
        *(waku(number, step=DAY_NS) for number in range(9_000, 9_003)),
    ]
    client = FakeClient(messages)
    assert len([row for page in StoreNodeArchive("", client=client).pages() for row in page]) == 4
    assert len(client.queries) < 20


def test_a_node_that_refuses_even_a_second_is_an_error():
    with pytest.raises(StoreRefusedError, match="time range exceeds 24h"):
        list(StoreNodeArchive("", client=LimitedClient([waku(1)], 0)).pages(time_slice(1)))


def test_a_node_that_answers_with_proofs_gives_them():
    archive = StoreNodeArchive("", client=FakeClient([structs.replace(waku(1), rate_limit_proof=b"proof"), waku(2)]))
    assert [row.rate_limit_proof for page in archive.pages() for row in page] == [b"proof", None]


def test_what_is_no_message_comes_as_it_is():
    archive = StoreNodeArchive("", client=FakeClient([waku(1)], undecodable=(b'{"messageHash": 1}',)))
    found, odd = [row for page in archive.pages() for row in page]
    assert (found.payload, odd.payload, odd.content_topic, odd.timestamp_ns) == (b"1", b'{"messageHash": 1}', "", 1_001)
    assert len(odd.message_hash) == 32


def test_a_range_that_is_empty_is_not_asked_for():
    client = FakeClient([waku(1)])
    archive = StoreNodeArchive("", client=client)
    assert archive.last(ArchiveSlice(ArchiveCursor(5, LARGEST_HASH), ArchiveCursor(5, LARGEST_HASH))) is None
    assert client.queries == []


def test_a_node_that_is_gone_is_asked_again_and_each_pause_is_told(caplog):
    pauses = []
    with (
        StoreNodeArchive("http://127.0.0.1:9", sleep=pauses.append) as archive,
        pytest.raises(NodeUnavailableError, match=r"http://127\.0\.0\.1:9: .*see that the node runs"),
    ):
        list(archive.pages())
    assert pauses == [1, 2, 4, 8, 16]
    assert caplog.messages == [
        f"http://127.0.0.1:9 gave no page of messages: attempt {attempt} of 6 in {seconds:g} s"
        for attempt, seconds in enumerate(pauses, start=2)
    ]


TYPES_OF_TIMES = [pa.timestamp(unit, tz) for unit in ("s", "ms", "us", "ns") for tz in (None, "UTC", "Asia/Tokyo")]


@pytest.mark.parametrize("kind", TYPES_OF_TIMES, ids=str)
@pytest.mark.parametrize("column", ["timestamp", "timestamp_ns"])
def test_the_unit_of_a_timestamp_is_that_of_its_type(tmp_path, column, kind):
    times_ns = [1_760_000_000_000_000_000 + number * 10**9 for number in range(5)]
    per = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
    table = pa.Table.from_pylist([without(table_row(waku(number)), "timestamp_ns") for number in range(5)])
    ticks = pa.array([time_ns // per for time_ns in times_ns], pa.int64()).cast(kind)
    pq.write_table(table.append_column(column, ticks), tmp_path / "a.parquet")
    place = f"parquet:{tmp_path}/a.parquet"
    assert [row["timestamp_ns"] for row in rows(place)] == times_ns
    within = Selection(start_ns=times_ns[1], end_ns=times_ns[3] + 1)
    assert [row["timestamp_ns"] for row in rows(place, within)] == times_ns[1:4]


def test_times_of_96_bits_are_read(tmp_path):
    when = datetime(2026, 1, 31, 10, 55, 0, 123_456, tzinfo=UTC)
    row = without(table_row(waku(1)), "timestamp_ns") | {"timestamp": when}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    (found,) = rows(f"parquet:{tmp_path}/a.parquet")
    assert found["timestamp_ns"] == int(when.timestamp()) * 10**9 + 123_456_000


@pytest.mark.parametrize("column", ["timestamp", "timestamp_ns"])
@pytest.mark.parametrize(("per_s", "unit"), [(1, "seconds"), (10**3, "milliseconds"), (10**6, "microseconds")])
def test_integers_that_cannot_be_nanoseconds_are_refused_before_a_task_begins(tmp_path, column, per_s, unit):
    row = without(table_row(waku(1)), "timestamp_ns") | {column: 1_760_000_000 * per_s}
    write_parquet(tmp_path / "a", [row] * 6)
    with pytest.raises(ConfigurationError, match=rf"{column} has integers such as .* {unit} and no nanoseconds; mult"):
        scan_of(f"parquet:{tmp_path}/a", Selection()).plan()


def as_nwaku_has_it(message, *, hexadecimal):
    """A row with the names of nwaku's SQLite tables, or with those of its tables in PostgreSQL, where bytes are hex."""
    shown = bytes.hex if hexadecimal else bytes
    row = {
        "messageHash": shown(message_hash(SHARD, message)),
        "pubsubTopic": SHARD if hexadecimal else SHARD.encode(),
        "contentTopic": message.content_topic if hexadecimal else message.content_topic.encode(),
        "payload": shown(message.payload),
        "version": 0,
        "timestamp": message.timestamp_ns,
        "meta": None,
    }
    return {name.lower(): value for name, value in row.items()} if hexadecimal else row


@pytest.mark.parametrize("hexadecimal", [True, False], ids=["postgresql", "sqlite"])
def test_a_table_with_the_names_of_nwaku_is_one_of_messages(tmp_path, hexadecimal):
    write_parquet(tmp_path / "ours", [table_row(waku(number)) for number in range(20)])
    write_parquet(tmp_path / "theirs", [as_nwaku_has_it(waku(number), hexadecimal=hexadecimal) for number in range(20)])
    ours, theirs = (rows(f"parquet:{tmp_path}/{name}", label="a") for name in ("ours", "theirs"))
    assert ours == theirs


@pytest.mark.parametrize("prefix", ["", "0x", "\\x"])
def test_a_hash_may_be_text(tmp_path, prefix):
    shown = [table_row(waku(n)) | {"message_hash": prefix + message_hash(SHARD, waku(n)).hex()} for n in range(6)]
    write_parquet(tmp_path / "a", shown)
    assert {row["message_hash"] for row in rows(f"parquet:{tmp_path}/a")} == {
        message_hash(SHARD, waku(number)) for number in range(6)
    }


@pytest.mark.parametrize("lacking", [("message_hash",), ("message_hash", "pubsub_topic")])
def test_a_table_without_hashes_gets_them(tmp_path, lacking):
    write_parquet(tmp_path / "a", [without(table_row(waku(number)), *lacking) for number in range(6)])
    for row in rows(f"parquet:{tmp_path}/a"):
        number = int(row["payload"])
        assert row["message_hash"] == message_hash(autoshard(TOPICS[number % 2], 1, 8), waku(number))


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_a_topic_that_is_no_utf8_is_a_row_all_the_same(tmp_path, kind):
    table = pa.Table.from_pylist([table_row(waku(number)) for number in range(3)])
    odd = pa.array([b"/a/1/b/proto", b"/\xff/1/b/proto", None], pa.binary())
    topics = odd.view(pa.string()) if pa.types.is_string(kind) else odd
    pq.write_table(table.set_column(table.schema.names.index("content_topic"), "content_topic", topics), tmp_path / "a")
    assert [row["content_topic"] for row in rows(f"parquet:{tmp_path}/a")] == [
        "/a/1/b/proto",
        "/\ufffd/1/b/proto",
        None,
    ]


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("source=07", "07"),
        ("_source=one", None),
        ("source=a%2Fb%3D1", "a/b=1"),
        ("source=a=b", "a=b"),
        ("source=__HIVE_DEFAULT_PARTITION__", None),
        ("Source=7", "7"),
    ],
)
def test_the_name_of_a_folder_is_text_and_goes_before_a_column(tmp_path, folder, expected):
    """As Spark names folders: ``_name=value`` is one, too, though not the column ``source``."""
    place = tmp_path / "table"
    (place / folder).mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist([table_row(waku(1))]), place / folder / "part.parquet")
    (place / "_temporary").mkdir()
    (place / "_temporary" / "part.parquet").write_text("in the making")
    (place / folder / "_SUCCESS").touch()
    (place / folder / "empty.parquet").touch()
    assert [row["source"] for row in rows(f"parquet:{place}")] == [expected or str(place)]


def test_the_time_may_be_the_name_of_a_folder(tmp_path):
    for number in (1, 2):
        folder = tmp_path / f"timestamp_ns={1_000 + number}"
        folder.mkdir()
        pq.write_table(pa.Table.from_pylist([without(table_row(waku(number)), "timestamp_ns")]), folder / "a.parquet")
    assert numbers(rows(f"parquet:{tmp_path}")) == [1, 2]
    assert numbers(rows(f"parquet:{tmp_path}", Selection(start_ns=1_002))) == [2]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", [0, 1, 2, 3]),
        ("day-?/*.parquet", [0, 1]),
        ("day-[0-1]", [0, 1]),
        ("{day-0,night-1}", [0, 3]),
        ("day-1/part.parquet", [1]),
        ("[!d]*/part*", [2, 3]),
    ],
)
def test_a_pattern_names_files_and_folders(tmp_path, pattern, expected):
    for number, name in enumerate(["day-0", "day-1", "night-0", "night-1"]):
        (tmp_path / name).mkdir()
        pq.write_table(pa.Table.from_pylist([table_row(waku(number))]), tmp_path / name / "part.parquet")
    assert numbers(rows(f"parquet:{tmp_path}/{pattern}")) == expected


def answer_of(messages):
    """A page as nwaku answers it."""
    entries = [
        {
            "messageHash": f"0x{message_hash(SHARD, message).hex()}",
            "message": {
                "payload": base64.b64encode(message.payload).decode(),
                "contentTopic": message.content_topic,
                "version": 0,
                "timestamp": message.timestamp_ns,
            },
            "pubsubTopic": SHARD,
        }
        for message in messages
    ]
    return {"requestId": "", "statusCode": 200, "statusDesc": "OK", "messages": entries}


def saved(path, form):
    """Save forty messages as text: JSON in one of several forms, or CSV with nwaku's columns."""
    messages = [waku(number) for number in range(40)]
    if form.startswith("csv"):
        names = ["messagehash", "pubsubtopic", "contenttopic", "payload", "version", "timestamp", "meta"]
        shown = (lambda data: base64.b64encode(data).decode()) if form == "csv-base64" else bytes.hex
        lines = [",".join(names)] + [
            f'{digest.hex()},"{SHARD}",{each.content_topic},{shown(each.payload)},0,{each.timestamp_ns},'
            for each, digest in ((each, message_hash(SHARD, each)) for each in messages)
        ]
    elif form == "pages":
        lines = [json.dumps(answer_of(messages[start : start + 7])) for start in range(0, 40, 7)]
    elif form == "messages":
        lines = [json.dumps(entry) for entry in answer_of(messages)["messages"]]
    else:
        lines = json.dumps(answer_of(messages), indent=2).splitlines()
    text = "\n".join(lines).encode() + b"\n"
    path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.jsonl", "pages"),
        ("a.ndjson.gz", "pages"),
        ("a.jsonl.gz", "messages"),
        ("a.json", "indented"),
        ("A.CSV", "csv"),
        ("a.csv.gz", "csv-base64"),
    ],
)
def test_a_file_of_text_is_read_by_its_suffix(tmp_path, name, form):
    saved(tmp_path / name, form)
    with NwakuArchive(tmp_path / "a.db") as archive:
        for number in range(40):
            archive.append(SHARD, waku(number))
    expected = sorted(rows(f"sqlite:{tmp_path}/a.db", label="a"), key=repr)
    assert sorted(rows(f"{tmp_path}/{name}", label="a"), key=repr) == expected
    scheme = "csv" if "csv" in name.lower() else "json"
    chosen = Selection(start_ns=1_005, end_ns=1_012, content_topics=(TOPICS[0],))
    assert numbers(rows(f"{scheme}:{tmp_path}/{name}", chosen)) == [6, 8, 10, 12]


def test_a_line_that_is_no_message_is_a_row_as_it_is(tmp_path):
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(answer_of([waku(1)]))}\nnonsense\n{{}}\n")
    assert [row["payload"] for row in rows(f"{tmp_path}/a.jsonl")] == [b"1", b"nonsense", b"{}"]


def test_a_csv_file_without_the_columns_of_a_message_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("name,age\nalice,7\n")
    with pytest.raises(
        ConfigurationError, match=r"a\.csv: is no table of Waku messages; it has no column content_topi"
    ):
        scan_of(f"{tmp_path}/a.csv", Selection()).plan()


@pytest.mark.parametrize("make", [lambda path: path.write_text("PAR1 and more"), lambda path: path.mkdir()])
def test_a_path_whose_name_does_not_say_what_it_is_shows_the_sources_there_are(tmp_path, make):
    make(tmp_path / "store.xyz")
    with pytest.raises(ConfigurationError, match="its name does not say what it is; known are sqlite:") as raised:
        scan_of(f"{tmp_path}/store.xyz", Selection())
    assert all(example in str(raised.value) for example in EXAMPLES)


def test_a_file_that_changes_after_it_was_listed_ends_the_read_with_a_sentence(tmp_path):
    write_parquet(tmp_path / "a", [table_row(waku(number)) for number in range(20)])
    scan = scan_of(f"parquet:{tmp_path}/a", Selection())
    assert isinstance(scan, FilesScan)
    listed = replace(scan, states=scan.current_states())
    parts = listed.plan()
    write_files(tmp_path / "b", table_row(waku(99)))
    shutil.copy(tmp_path / "b/part-0.parquet", tmp_path / "a/late.parquet")
    read = listed.for_tasks().read
    assert numbers([row for part in parts for batch in read(part) for row in batch.to_pylist()]) == list(range(20))
    shutil.copy(tmp_path / "b/part-0.parquet", min((tmp_path / "a").glob("part-*")))
    with pytest.raises(ConfigurationError, match="was changed or removed after it was listed; run again when its"):
        list(read(parts[0]))


@pytest.fixture
def opened(monkeypatch):
    """The names of the files that are opened from now on, in their order."""
    fsspec = pytest.importorskip("fsspec")
    names: list[str] = []

    class Counting(FSSpecHandler):  # type: ignore[misc] # pyarrow has no types
        def open_input_file(self, path):
            names.append(path.rpartition("/")[2])
            return super().open_input_file(path)

    def of(place, _use):
        return Location(PyFileSystem(Counting(fsspec.filesystem("file"))), place, place)

    monkeypatch.setattr(Location, "of", of)
    return names


def listed(uri):
    scan = scan_of(uri, Selection())
    assert isinstance(scan, ParquetScan)
    return replace(scan, states=scan.current_states())


def test_each_footer_is_read_once_for_the_plan_and_once_by_its_task(tmp_path, opened):
    write_files(tmp_path / "a", *(table_row(waku(number)) for number in range(6)))
    scan = listed(f"parquet:{tmp_path}/a")
    assert opened == []
    scan = replace(scan, footers=scan.footers_on_driver())
    assert len(opened) == 6
    assert scan.gives_each_row_once()
    first, second = scan.plan(2)
    assert len(opened) == 6
    assert [row["payload"] for batch in scan.for_tasks().read(first) for row in batch.to_pylist()] == [b"0", b"1", b"2"]
    assert set(opened[6:]) == {"part-0.parquet", "part-1.parquet", "part-2.parquet"}
    assert [piece.state[0] for piece in second] == ["part-3.parquet", "part-4.parquet", "part-5.parquet"]


def test_of_many_files_the_driver_reads_the_footers_of_the_largest(tmp_path, opened, monkeypatch):
    monkeypatch.setattr(parquet_scan, "MOST_FOOTERS", 1)
    write_parquet(tmp_path / "a", [table_row(waku(number)) for number in range(40)])  # five row groups, and one
    (tmp_path / "a" / "part-2.parquet").write_text("no table")
    scan = listed(f"parquet:{tmp_path}/a")
    parts = scan.plan(10)
    assert opened == ["part-0.parquet"]
    assert [len(part) for part in parts] == [1] * 7
    read = scan.for_tasks().read
    assert numbers([row for part in parts[:-1] for batch in read(part) for row in batch.to_pylist()]) == list(range(40))
    with pytest.raises(ConfigurationError, match=r"part-2\.parquet: cannot be read as Parquet: Parquet magic bytes"):
        list(read(parts[-1]))
    assert max(len(pickle.dumps(part)) for part in parts) < 500


def test_a_small_archive_of_files_is_one_part_and_a_large_one_many(tmp_path):
    write_files(tmp_path / "a", *(table_row(waku(number)) for number in range(6)))
    assert len(listed(f"parquet:{tmp_path}/a").plan(cores=100)) == 1
    write_files(tmp_path / "b", *(table_row(waku(n, payload=random.Random(n).randbytes(3_000_000))) for n in range(6)))
    scan = listed(f"parquet:{tmp_path}/b")
    assert [len(scan.plan(cores=cores)) for cores in (1, 100)] == [2, 6]
