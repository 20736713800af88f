"""A stream refreshes its tables with what came since the last refresh: they are those of a run over everything."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

pytest.importorskip("pyspark")

from deltalake import DeltaTable

from fairway.options import SegmentationConfig
from fairway.pipeline.run import run
from fairway.pipeline.run.reading import RunTables
from fairway.pipeline.run.sources import parse_sources
from fairway.pipeline.streaming import StreamOptions, StreamProgress, deliveries, stream
from fairway.pipeline.streaming.folder import StreamFolder
from fairway.pipeline.streaming.progress import Phase
from fairway.storage.nwaku_archive import NwakuArchive
from grown_runs import assert_same

pytestmark = [pytest.mark.spark, pytest.mark.full]

SHARD = "/waku/2/rs/1/0"
STORES = ("a", "b", "empty")
ROUNDS = 4
OPTIONS = StreamOptions(once=True, rows_per_batch=200, state_partitions=2)


def sent_messages(log):
    """Return what was sent, in the order of its timestamps: several channels, files in segments, and gaps."""
    rng = random.Random(7)
    channels = [log(f"channel-{number}") for number in range(4)]
    for number in range(260):
        channel = rng.choice(channels)
        if number % 20:
            channel.message(rng.choice(["alice", "bob", "carol"]), b"said %d" % number)
        else:
            channel.file("alice", rng.randbytes(700), SegmentationConfig(segment_size_bytes=128, parity_rate=0.5))
    sent = [waku for channel in channels for number, (_, waku) in enumerate(channel.sent) if number % 31]
    sent.append(channels[0].wrapped(b"\xff\xfe garbage"))
    sent.sort(key=lambda waku: waku.timestamp_ns)
    # No two have one timestamp: what comes to a store later is behind what was read.
    return [replace(waku, timestamp_ns=waku.timestamp_ns + place) for place, waku in enumerate(sent)]


def append(folder, messages):
    """Put messages into the stores: most are in both of them."""
    for name, left_out in (("a", 7), ("b", 5), ("empty", 1)):
        with NwakuArchive(folder / f"{name}.db") as archive:
            for number, waku in enumerate(messages):
                if number % left_out:
                    archive.append(SHARD, waku)


@pytest.fixture(scope="module")
def grown(log, spark, tmp_path_factory):
    """Follow stores that get a few messages after each refresh."""
    folder = tmp_path_factory.mktemp("growing")
    sent = sent_messages(log)
    first = len(sent) * 17 // 20
    size = -(-(len(sent) - first) // ROUNDS)
    rest = [sent[start : start + size] for start in range(first, len(sent), size)]
    # Each time the stores also get a message that is older than those that the stream has read.
    late = [sent.pop(first - 5) for _ in rest]
    first -= len(late)
    rest = [[*messages, waku] for messages, waku in zip(rest, late, strict=True)]
    append(folder, sent[:first])
    stop, told = threading.Event(), []
    sources = [f"{name}=sqlite:{folder / name}.db" for name in STORES]

    def next_round(progress: StreamProgress) -> None:
        told.append(progress)
        if progress.phase is Phase.REFRESHED and progress.mode != "unchanged":
            if rest:
                append(folder, rest.pop(0))
            else:
                stop.set()

    live = StreamOptions(every_s=0.1, refresh_s=0.1, rows_per_batch=200, state_partitions=2)
    stream(sources, folder / "live", options=live, spark=spark, progress=next_round, stop=stop)
    run(sources, folder / "run", spark=spark)
    return SimpleNamespace(folder=folder, out=folder / "live", sources=sources, told=told, channel=log("another"))


def test_the_tables_after_many_refreshes_are_those_of_a_run_over_everything(grown):
    modes = [told.mode for told in grown.told if told.phase is Phase.REFRESHED and told.mode != "unchanged"]
    assert modes[0] == "whole"
    assert modes.count("grown") >= 2
    assert_same(grown.out, grown.folder / "run")


def test_each_message_is_delivered_once(grown):
    delivered = [
        (row["channel_id"], row["sds_ids"][0]) for _, table in deliveries(grown.out) for row in table.to_pylist()
    ]
    assert len(set(delivered)) == len(delivered) == RunTables(grown.out).rows("delivered")


def test_the_tables_grow_on_after_the_recorded_rows_were_compacted(grown, spark):
    folder = StreamFolder.open_for(grown.out, parse_sources(grown.sources), OPTIONS, None)
    with closing(folder):
        before = len(DeltaTable(folder.recorded.place.local).file_uris())
        folder.compact(2)
        assert before > len(DeltaTable(folder.recorded.place.local).file_uris()) == 1
    grown.channel.now_ms = (
        max(row["timestamp_ns"] for row in RunTables(grown.out).all("waku_messages", ["timestamp_ns"])) // 10**6
    )
    for number in range(5):
        grown.channel.message("dave", b"after it %d" % number)
    append(grown.folder, [waku for _, waku in grown.channel.sent])
    told: list[StreamProgress] = []
    stream(grown.sources, grown.out, options=OPTIONS, spark=spark, progress=told.append)
    assert [one.mode for one in told if one.phase is Phase.REFRESHED] == ["grown"]
    run(grown.sources, grown.folder / "again", spark=spark)
    assert_same(grown.out, grown.folder / "again")
