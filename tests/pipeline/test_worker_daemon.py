"""The process that forks Python workers: what it spares them, and that they are none the worse for it."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from fairway.pipeline.worker_daemon import without_packed_spark

ZIP = "pyspark/python/lib/pyspark.zip"


def test_a_zip_of_pyspark_is_left_out_where_it_is_unpacked_too():
    assert without_packed_spark([f"/env/{ZIP}", "", "/src", "/env"]) == ["", "/src", "/env"]


def test_a_zip_of_another_pyspark_stays():
    assert without_packed_spark([f"/spark/{ZIP}", "/env"]) == [f"/spark/{ZIP}", "/env"]


@pytest.mark.spark
def test_workers_begin_with_what_tasks_use(spark):
    def of_worker(batches):
        import sys

        # What a task is made of may import modules when it is read; this one needs none of fairway's.
        is_there = "fairway.pipeline.run" in sys.modules
        for batch in batches:
            last = pa.table(batch.columns, names=["id"]).sort_by([("id", "descending")])["id"][0].as_py()
            told = {"is_there": [is_there], "pyspark": [sys.modules["pyspark"].__file__], "last": [last]}
            yield pa.RecordBatch.from_pydict(told)

    frame = spark.range(0, 10, 1, 1).mapInArrow(of_worker, "is_there boolean, pyspark string, last bigint")
    (told,) = frame.collect()
    assert told.is_there
    assert ".zip" not in told.pyspark
    assert told.last == 9
