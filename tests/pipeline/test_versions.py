"""What Spark passes to executors is refused there by another version of fairway."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyspark")

from pyspark import cloudpickle
from pyspark.errors import PySparkException

import fairway
from fairway.errors import PipelineError
from fairway.pipeline.sinks.waku import WakuStreamWriter, WakuWriter
from fairway.pipeline.sources.options import SourceOptions
from fairway.pipeline.sources.stream import WakuStreamReader
from fairway.pipeline.sources.waku import WakuReader, register
from fairway.pipeline.streaming.processor import ChannelProcessor
from fairway.storage.nwaku_archive import NwakuArchive

SINK = {"node": "/ip4/127.0.0.1/tcp/60000", "receipts": "sent.db"}
COLUMNS = ("content_topic", "payload", "timestamp_ns")


@pytest.fixture
def archive(tmp_path):
    NwakuArchive(tmp_path / "a.db").close()
    return {"path": str(tmp_path / "a.db")}


@pytest.mark.spark
def test_a_query_of_the_format_is_refused_by_another_version(spark, archive, monkeypatch):
    there = fairway.__version__
    monkeypatch.setattr(fairway, "__version__", "9.9.9")
    register(spark)
    told = f"an executor has fairway {there}, and the driver 9.9.9: install the same version on all"
    for reader in (spark.read, spark.readStream):
        with pytest.raises(PySparkException, match=re.escape(told)):
            reader.format("waku").load(archive["path"])
    monkeypatch.undo()
    register(spark)
    assert spark.read.format("waku").load(archive["path"]).count() == 0


MADE = {
    "table": WakuReader,
    "stream": lambda options: WakuStreamReader(SourceOptions.parse(options)),
    "channels": lambda _: ChannelProcessor(),
    "sink": lambda _: WakuWriter(SINK, COLUMNS),
    "stream-sink": lambda _: WakuStreamWriter(SINK, COLUMNS),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_readers_writers_and_operators_are_refused_by_another_version(make, archive, monkeypatch):
    there = fairway.__version__
    made = make(archive)
    assert type(cloudpickle.loads(cloudpickle.dumps(made))) is type(made)
    monkeypatch.setattr(fairway, "__version__", "9.9.9")
    pickled = cloudpickle.dumps(made)
    monkeypatch.undo()
    told = f"an executor has fairway {there}, and the driver 9.9.9: install the same version on all"
    with pytest.raises(PipelineError, match=re.escape(told)):
        cloudpickle.loads(pickled)
