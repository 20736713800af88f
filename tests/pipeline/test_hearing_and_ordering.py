"""The jobs that reassemble, look messages up and order them: what they spread over tasks comes out as of one piece."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from fairway.options import SegmentationConfig
from fairway.pipeline.bucket_keys import BucketKeys
from fairway.pipeline.exchange import notes_of
from fairway.pipeline.ranges import FIRST_CLOCK
from fairway.pipeline.run import hearing, ordering, reassembling
from fairway.pipeline.run.hearing import Hearing, split_facts
from fairway.pipeline.run.ordering import Ordering
from fairway.pipeline.run.reassembling import Reassembling
from fairway.pipeline.schema import exact_schema
from fairway.pipeline.stages.acknowledgements import acknowledgement_rows, latency_rows, sent_in
from fairway.pipeline.stages.bloom_evidence import BLOOM_EVIDENCE
from fairway.pipeline.stages.channel_log import channel_logs
from fairway.pipeline.stages.citations import CITED, citations_in
from fairway.pipeline.stages.delivered import are_whole, in_order, incomplete_sets, joined_messages, whole_messages
from fairway.pipeline.stages.keyed import keyed
from fairway.pipeline.stages.missing_messages import missing_rows, rebuilt_in
from fairway.pipeline.stages.reassembled import (
    ARCHIVE_SEGMENTATION,
    computed_segments_in,
    reassembled_rows,
    segments_in,
)
from fairway.pipeline.stages.sds_messages import WITH_CONTENT
from fairway.pipeline.stages.sds_ordered import absent_of, computed_in, logged_in
from fairway.pipeline.tables import table_named
from fairway.pipeline.tables.files import WORK_TABLES, TableFiles
from fairway.protocol.segmentation.segmenter import Segmenter
from fairway.wire.segment import WAKU_SEGMENTS

pytestmark = pytest.mark.spark

SDS = exact_schema(WITH_CONTENT)
BUCKETS, TASKS = 3, 2
SEGMENT_SIZES = SegmentationConfig(segment_size_bytes=128, parity_rate=0.5)
# Channels that bounds split: in order, with gaps, with broken clocks, with both, and with one timestamp for all.
SPLIT = ("clean", "gappy", "broken", "large", "same", "worse")
BOUNDS = [
    ("broken", 40, ""),
    ("broken", 90, "m089"),
    ("clean", FIRST_CLOCK, ""),
    ("clean", 60, "m059"),
    ("gappy", 0, "b"),
    ("gappy", 30, ""),
    ("gappy", 30 + 2**40, ""),
    ("large", 50, ""),
    ("large", 100, ""),
    ("same", 9, "m040"),
    ("same", 9, "m080"),
    ("small", FIRST_CLOCK, ""),
    ("worse", 50, ""),
]
LIMIT = 10_000
CLOCKS = {("broken", 70): 3, ("worse", 70): 3}
"""The clock of one sender is far behind."""


def sds_row(channel_id, message_id, **fields):
    defaults = {
        "message_hash": f"{channel_id} {message_id}".encode(),
        "timestamp_ns": fields.get("lamport") or 5,
        "content_topic": "/t",
        "payload_bytes": 10,
        "profile": "waku",
        "kind": "content",
        "sender_id": "alice",
        "channel_id": channel_id,
        "message_id": message_id,
        "causal_history": [],
        "repair_request": [],
        "history_bytes": 200,
        "content": b"content of " + message_id.encode(),
    }
    return dict.fromkeys(SDS.names) | defaults | fields


def cites(*ids):
    return [{"message_id": one, "retrieval_hint": None, "sender_id": None} for one in ids]


def segments(channel_id, sender_id, lamport, lost=()):
    """Return the segments of a message, of which some are lost; without a timestamp ephemeral ones."""
    rows = []
    for part in Segmenter(SEGMENT_SIZES, WAKU_SEGMENTS).split(f"{channel_id} {lamport}".encode() * 40).segments:
        header = WAKU_SEGMENTS.decode(part.content)
        rows.append(
            sds_row(
                channel_id,
                f"segment-{lamport}-{part.order}",
                sender_id=sender_id,
                lamport=None if lamport is None else lamport + part.order,
                content=part.content,
                segment_hash=header.payload_hash,
                segment_index=header.index,
                is_parity=header.is_parity,
                causal_history=cites(*(row["message_id"] for row in rows[-2:])),
            )
        )
    return [row for place, row in enumerate(rows) if place not in lost]


def archive(rng):
    """Return messages of each kind of channel: 120 and more where bounds split them."""
    rows = []
    for channel_id, count in (*((name, 120) for name in SPLIT), ("small", 8), ("tiny", 3)):
        for number in range(count):
            history = [f"m{earlier:03}" for earlier in range(max(0, number - 3), number)]
            if channel_id in {"gappy", "large", "tiny", "worse"} and number % 17 == 2:
                history.append(f"gone{number}")
            rows.append(
                sds_row(
                    channel_id,
                    f"m{number:03}",
                    lamport=CLOCKS.get((channel_id, number), 9 if channel_id == "same" else number + 1),
                    sender_id=("alice", "bob", "carol")[number % 3],
                    causal_history=cites(*history if channel_id != "same" else ()),
                )
            )
    rows += [sds_row("gappy", "sync-1", kind="sync", content=None, causal_history=cites("unheard"))]
    rows += [sds_row("clean", f"e{number}", kind="ephemeral", lamport=None) for number in range(3)]
    for place, lost in enumerate([(), (1,), (0, 4), (0, 1, 2)]):
        rows += segments("gappy", f"sender {place}", 20 + 25 * place, lost)
    rows += segments("gappy", "astride", 28)  # in two ranges
    rows += [*segments("gappy", "ephemeral", None), sds_row("gappy", "c", lamport=0)]
    rows += segments("large", "eve", 60, (1,))
    for place, lost in enumerate([(), (0, 1, 2)]):
        rows += segments("small", f"sender {place}", 20 + 25 * place, lost)
    rng.shuffle(rows)
    return rows


@dataclass
class Folder:
    """The tables of a run, and the names of their files."""

    files: TableFiles
    names: dict[str, list[str]]

    def write(self, name, number, table):
        self.take(self.files.write(name, number, table)["blob"].to_pylist())

    def take(self, blobs):
        """Take the notes of a job; return those that are of no file."""
        notes = notes_of(blobs)
        for told in notes:
            if "table" in told:
                self.names.setdefault(told["table"], []).append(told["file"])
        return [told for told in notes if "table" not in told]

    def rows(self, name):
        """Return the rows of a table without its instants, in the order of its files."""
        files = sorted(self.names.get(name, []))
        columns = exact_schema(WORK_TABLES[name] if name in WORK_TABLES else table_named(name).schema).names
        return [row for table in self.files.read(name, files, columns) for row in table.to_pylist()]


@pytest.fixture
def folder(tmp_path, rng):
    """Return a run folder with ``sds_messages``: of three buckets, whole messages and segments apart."""
    folder = Folder(TableFiles(root=str(tmp_path)), {})
    rows = archive(rng)
    for bucket in range(3):
        for is_segment in (False, True):
            own = [row for row in rows[bucket::3] if (row["segment_hash"] is not None) == is_segment]
            notes = folder.files.write_messages(bucket, pa.Table.from_pylist(own, SDS), int(is_segment))
            folder.take([blob for told in notes for blob in told["blob"].to_pylist()])
    return folder


def collected(frame):
    return [row.blob for row in frame.select("blob").collect()]


def unordered(rows):
    return sorted(rows, key=repr)


@pytest.mark.parametrize("most_apart", [0, reassembling.MOST_APART])
def test_three_jobs_make_what_their_functions_make_of_everything(spark, folder, monkeypatch, most_apart):
    monkeypatch.setattr(reassembling, "MOST_APART", most_apart)
    keys = BucketKeys(random.Random(1).randbytes(32))
    names = folder.names["sds_messages"]
    assert folder.names["contents"] == names
    unique, contents = (pa.concat_tables(folder.files.read(name, names)) for name in ("sds_messages", "contents"))
    unique = unique.append_column("content", contents["content"])

    reassemble = Reassembling(
        files=folder.files,
        keys=keys,
        buckets=BUCKETS,
        bounds=BOUNDS,
        profile=None,
        config=ARCHIVE_SEGMENTATION,
        apart_buckets=BUCKETS,
    )
    assert folder.take(collected(reassemble.frame(spark, folder.names["sds_messages"], TASKS))) == []
    sets = pa.concat_tables(reassembled_rows(segments_in(unique), None, ARCHIVE_SEGMENTATION))
    assert set(folder.names) == {"sds_messages", "contents", *reassembling.WRITTEN}
    messages = pa.concat_tables([whole_messages(unique.filter(are_whole(unique))), joined_messages(sets)])
    (expected,) = in_order(messages)
    assert folder.rows("delivered") == expected.to_pylist()
    assert unordered(folder.rows("incomplete")) == unordered(incomplete_sets(sets).to_pylist())
    assert unordered(folder.rows("computed_segments")) == unordered(computed_segments_in(sets).to_pylist())
    # A channel in several ranges, and one in a range of its own.
    assert {(row["channel_id"], row["outcome"]) for row in sets.to_pylist()} == {
        (channel, outcome) for channel in ("gappy", "small") for outcome in ("complete", "incomplete")
    } | {("large", "complete")}

    evidence = [
        {"channel_id": "clean", "message_id": "m003", "acknowledged_by": name, "how": "bloom", "acknowledged_at_ns": 4}
        for name in ("dave", "eve")
    ]
    folder.write("bloom_evidence", 0, pa.Table.from_pylist(evidence, exact_schema(BLOOM_EVIDENCE)))
    hear = Hearing(files=folder.files, keys=keys, buckets=BUCKETS, bounds=BOUNDS, possible_acks_threshold=2)
    facts = split_facts(folder.take(collected(hear.frame(spark, folder.names, TASKS))))
    sent, cited, rebuilt, filters = keyed(
        sent_in(unique),
        citations_in(unique).select(CITED.names),
        rebuilt_in(computed_segments_in(sets)),
        pa.Table.from_pylist(evidence, exact_schema(BLOOM_EVIDENCE)),
    )
    missing = missing_rows(sent, cited, rebuilt)
    acknowledged = acknowledgement_rows(sent, cited, filters, possible_acks_threshold=2)
    told = (missing, acknowledged.table, latency_rows(sent, acknowledged))
    for name, table in zip(hearing.WRITTEN, told, strict=True):
        assert unordered(folder.rows(name)) == unordered(table.to_pylist()), name
    assert sum(row["how"] == "bloom" for row in folder.rows("acknowledgements")) == 2
    split = json.loads(json.dumps(facts))
    assert [before for _, before in split["same"]] == [0, 40, 80]
    assert [before for _, before in split["clean"]] == [0, 59]
    assert {name for name, starts in split.items() if starts is None} == {"gappy", "broken", "large", "worse"}

    order = Ordering(files=folder.files, bounds=BOUNDS, split=split, max_channel_bytes=LIMIT)
    assert folder.take(collected(order.frame(spark, folder.names, TASKS))) == []
    assert set(folder.names) > set(ordering.WRITTEN)
    absent = pa.concat_tables([absent_of(missing), computed_in(computed_segments_in(sets))])
    rows = folder.rows("sds_ordered")
    assert rows == channel_logs(logged_in(unique), absent).to_pylist()
    assert len(folder.names["sds_ordered"]) > len(BOUNDS) + 1
    statuses = {(row["channel_id"], row["status"]) for row in rows}
    assert {("clean", "complete"), ("gappy", "waiting"), ("large", "waiting"), ("worse", "waiting")} <= statuses
    assert ("worse", "not-computed") not in statuses
